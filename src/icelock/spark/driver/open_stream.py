"""The stream of a query: a table that is loaded anew for each batch, with the columns that the query was defined with.

Not here: which files a batch has (``table.read.stream``), who asks: statements (``spark.statements.streams``) and the data source
(``spark.driver.stream_source``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from icelock.errors import PolicyError
from icelock.spark.settings.stream_options import stream_options
from icelock.table.plain import AnyTable
from icelock.table.read.stream import StreamLimits, StreamOffset, TableStream


class OpenStream:
    """The stream of a query out of a table."""

    def __init__(  # noqa: PLR0913 - what a stream is of
        self,
        load: Callable[[], AnyTable],
        table: AnyTable,
        name: str,
        options: Mapping[str, str],
        branch: str | None = None,
        schema_id: int | None = None,
    ) -> None:
        """Take a table.

        Args:
            load: loads it anew.
            table: it, loaded.
            name: for messages.
            options: of the stream.
            branch: that the table's name has, if any.
            schema_id: of the columns that the query was defined with; None: those of the loaded table.

        Raises:
            PolicyError: invalid options.
        """
        self._load = load
        self._name = name
        self.rules, self.limits = stream_options(options, branch)
        self._table: AnyTable = table
        self._uuid = table.metadata.table_uuid
        self._schema_id = table.metadata.current_schema_id if schema_id is None else schema_id
        self._known: tuple[str, TableStream] | None = None
        self._lock = threading.Lock()

    def now(self) -> TableStream:
        """Return the stream of the table as it is now; a table that was made again is a PolicyError."""
        table = self._load()
        metadata = table.metadata
        if metadata.table_uuid != self._uuid:
            raise PolicyError(f"table {self._name} was dropped and made again: start the query again, with a new checkpoint")
        with self._lock:
            if self._known is None or self._known[0] != table.metadata_location:
                planned = metadata.model_copy(update={"current_schema_id": self._schema_id})
                self._known = table.metadata_location, TableStream(planned, table.io, self.rules, self._name)
                self._table = table
            return self._known[1]

    def latest(self, start: StreamOffset, limits: StreamLimits) -> StreamOffset:
        """Return the end of the batch that begins at ``start``, which is ``start`` if there is nothing new."""
        return self.now().latest(start, limits) or start

    @property
    def table(self) -> AnyTable:
        """The table as it was loaded last."""
        return self._table
