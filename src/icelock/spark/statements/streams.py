"""``spark.readStream`` and ``writeStream`` of tables: what Spark asks of a table as a stream, and the rows of batches.

Out of a table: 1 a query that starts opens the stream (``TableStream.java``), which has a function of its own here. 2 for each batch Spark
asks up to where it goes: the table is loaded again, and the plan is that of ``table.read.stream``. 3 an optimizer rule puts a native scan
of the batch's files in the place of the relation (``TableRelations.java``).

Columns are those that the table had when the query was defined, by field id, until the query is started again.

Into a table: the rows of a batch come as those of an INSERT do (``StreamCommand.java``), and are written once (``table.epochs``).

Not here: which files a batch has (``table.read.stream``).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from icelock.errors import PolicyError
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.open_stream import OpenStream
from icelock.spark.driver.target import check_same_table
from icelock.spark.native.scan import native_read
from icelock.spark.sealed.job import MAIN
from icelock.spark.settings.catalogs import any_table_of, table_of
from icelock.spark.settings.options import BRANCH
from icelock.spark.settings.stream_options import batch_options
from icelock.spark.statements.asked import Asked, StatementSession
from icelock.spark.table_writer import TableWriter
from icelock.table.epochs import Epoch
from icelock.table.plain import PlainTable
from icelock.table.read.stream import StreamLimits, StreamOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icelock.spark.statements.asked import Answer
    from icelock.spark.statements.tables import LoadedTable
    from icelock.table.plain import AnyTable


def open_stream(session: StatementSession, loaded: LoadedTable, asked: Asked) -> dict[str, Any]:
    """Return a function for a stream of a table, where it begins, and the limits of its batches.

    Raises:
        PolicyError: invalid options, columns that changed, or a place to begin with that is not in the table's history.
    """
    opened = _OpenStream(session, loaded, asked["options"])
    _check_columns(loaded, asked.get("columns"))
    known = asked.get("initial")
    initial = opened.now().initial() if known is None else StreamOffset.parse(known)
    return {
        "target": session.target(opened.answers),
        "initial": initial.to_json(),
        "files": opened.limits.files,
        "rows": opened.limits.rows,
    }


def _check_columns(loaded: LoadedTable, columns: str | None) -> None:
    """Check that a table has the columns that a query was defined with, as Spark's JSON, where Spark did not take them from it."""
    if columns is not None:
        given = StructType.fromJson(json.loads(columns))
        now = spark_schema(loaded.table.schema(), table=str(loaded.name))
        if given.simpleString() != now.simpleString():
            raise PolicyError(f"the columns of table {loaded.name} changed since the DataFrame was made: load it again")


class _OpenStream(OpenStream):
    """The stream of a query of this session."""

    def __init__(self, session: StatementSession, loaded: LoadedTable, options: Mapping[str, str]) -> None:
        name = loaded.name

        def load() -> AnyTable:
            return any_table_of(session.catalog(name.catalog), name)

        super().__init__(load, loaded.table, str(name), options, loaded.at.branch)
        self.answers: Mapping[str, Answer] = {
            "head": lambda _session, _asked: self.now().head,
            "latest": lambda _session, asked: self._latest(asked),
            "batch": self._batch,
        }

    def _latest(self, asked: Asked) -> str | None:
        start = StreamOffset.parse(asked["start"])
        found = self.latest(start, StreamLimits(files=asked.get("files"), rows=asked.get("rows"), last=asked.get("last")))
        return None if found == start else found.to_json()

    def _batch(self, session: StatementSession, asked: Asked) -> int:
        scan = self.now().batch(StreamOffset.parse(asked["start"]), StreamOffset.parse(asked["end"]), asked["columns"])
        native = native_read(session.spark, scan, self._name)
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
    given = batch_options(asked["options"], loaded.name)
    writer = TableWriter(session.rows(asked.given), str(loaded.name), table, epoch).options(**given)
    if branch != MAIN:
        writer.option(BRANCH, branch)
    if asked["mode"] == "append":
        writer.append()
    else:
        writer.overwrite("true")
    return False
