"""``spark.readStream.table`` and ``writeStream.toTable``: what Spark asks of a table as a stream, and the rows of batches.

Out of a table: 1 a query that starts opens the stream (``TableStream.java``), which has a function of its own here. 2 for each batch Spark
asks up to where it goes: the table is loaded again, and the plan is that of ``table.stream``. 3 an optimizer rule puts a native scan of the
batch's files in the place of the relation (``TableRelations.java``).

Columns are those that the table had when the query was defined, by field id, until the query is started again.

Into a table: the rows of a batch come as those of an INSERT do (``StreamCommand.java``), and are written once (``table.epochs``).

Not here: which files a batch has (``table.stream``).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from icelock.errors import PolicyError
from icelock.spark.driver.target import check_same_table
from icelock.spark.native.scan import native_read
from icelock.spark.sealed.job import MAIN
from icelock.spark.settings.catalogs import any_table_of, table_of
from icelock.spark.settings.options import BRANCH
from icelock.spark.settings.stream_options import stream_options
from icelock.spark.statements.asked import Asked, StatementSession
from icelock.spark.table_writer import TableWriter
from icelock.table.epochs import Epoch
from icelock.table.plain import PlainTable
from icelock.table.stream import StreamLimits, StreamOffset, TableStream

# Spark's own of a query that writes.
_OF_QUERIES: Final = ("checkpointlocation", "queryname", "path")

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icelock.spark.statements.asked import Answer
    from icelock.spark.statements.tables import LoadedTable


def open_stream(session: StatementSession, loaded: LoadedTable, asked: Asked) -> dict[str, Any]:
    """Return a function for a stream of a table, where it begins, and the limits of its batches.

    Raises:
        PolicyError: invalid options, a plain table, or a place to begin with that is not in the table's history.
    """
    if isinstance(loaded.table, PlainTable):
        raise PolicyError(f"table {loaded.name} is plain, and icelock streams encrypted tables: use Iceberg's own Spark runtime for it")
    opened = _OpenStream(session, loaded, asked["options"])
    known = asked.get("initial")
    initial = opened.now().initial() if known is None else StreamOffset.parse(known)
    return {
        "target": session.target(opened.answers),
        "initial": initial.to_json(),
        "files": opened.limits.files,
        "rows": opened.limits.rows,
    }


class _OpenStream:
    """The stream of a query."""

    def __init__(self, session: StatementSession, loaded: LoadedTable, options: Mapping[str, str]) -> None:
        self._session = session
        self._name = loaded.name
        self._uuid = loaded.table.metadata.table_uuid
        self._schema_id = loaded.table.metadata.current_schema_id
        self._rules, self.limits = stream_options(options, loaded.at.branch or MAIN)
        self._known: tuple[str, TableStream] | None = None
        self._lock = threading.Lock()
        self.answers: Mapping[str, Answer] = {
            "head": lambda _session, _asked: self.now().head,
            "latest": lambda _session, asked: self._latest(asked),
            "batch": self._batch,
        }

    def now(self) -> TableStream:
        """Return the stream of the table as it is now; a table that was made again is a PolicyError."""
        table = any_table_of(self._session.catalog(self._name.catalog), self._name)
        metadata = table.metadata
        if metadata.table_uuid != self._uuid:
            raise PolicyError(f"table {self._name} was dropped and made again: start the query again, with a new checkpoint")
        with self._lock:
            if self._known is None or self._known[0] != table.metadata_location:
                planned = metadata.model_copy(update={"current_schema_id": self._schema_id})
                self._known = table.metadata_location, TableStream(planned, table.io, self._rules, str(self._name))
            return self._known[1]

    def _latest(self, asked: Asked) -> str | None:
        limits = StreamLimits(files=asked.get("files"), rows=asked.get("rows"), last=asked.get("last"))
        found = self.now().latest(StreamOffset.parse(asked["start"]), limits)
        return None if found is None else found.to_json()

    def _batch(self, session: StatementSession, asked: Asked) -> int:
        scan = self.now().batch(StreamOffset.parse(asked["start"]), StreamOffset.parse(asked["end"]), asked["columns"])
        native = native_read(session.spark, scan, str(self._name))
        if native.rows is None or native.rest:
            reason = native.reason or "some files are not Parquet files with field ids"
            raise PolicyError(f"table {self._name} cannot be read as a stream, which Spark's own reader must be able to read: {reason}")
        return session.give(native.rows)


def write_batch(session: StatementSession, loaded: LoadedTable, asked: Asked) -> bool:
    """Write a batch in one commit; return whether the table had it already: then nothing was done, not even its query.

    Raises:
        PolicyError: a plain table, an option that a stream does not have, columns that do not fit, or a checkpoint that is not the table's.
        Exception: as ``TableWriter``.
    """
    if isinstance(loaded.table, PlainTable):
        raise PolicyError(f"table {loaded.name} is plain, and icelock writes streams to encrypted tables: use Iceberg's own Spark runtime")
    table = table_of(session.catalog(loaded.name.catalog), loaded.name)
    check_same_table(table, str(loaded.table.metadata.table_uuid), loaded.name)
    epoch = replace(Epoch.of(asked["query"], asked["epoch"]), offsets=asked["offsets"], before=asked["before"])
    branch = loaded.at.branch or MAIN
    if epoch.is_in(table.metadata, branch):
        return True
    given = {name: value for name, value in asked["options"].items() if name.lower() not in _OF_QUERIES}
    writer = TableWriter(session.rows(asked.given), str(loaded.name), table, epoch).options(**given)
    if branch != MAIN:
        writer.option(BRANCH, branch)
    if asked["mode"] == "append":
        writer.append()
    else:
        writer.overwrite("true")
    return False
