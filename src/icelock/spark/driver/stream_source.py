"""A stream out of a table by the data source: over Spark Connect, where the JVM has no process that answers for the table.

Spark keeps one process of the driver for the stream of a query. It says up to where a batch goes, and plans its files, by ``OpenStream``;
offsets are those of ``spark.statements.streams``, so a checkpoint can go from one to the other. Tasks read as those of a batch read do.

Spark 4.1 does not say where a batch begins when it asks for its end. So a batch takes all there is, and limits are refused. Until a batch
was planned in this process, its end is that of the newest snapshot, whatever lies before it: a snapshot that is no append is then an error
before the rows that were appended before it. Later Sparks have the reader of ``limited_source``.

A checkpoint does not have where a stream began: if the first batch runs again, that is asked again. A stream that begins with ``now`` may
then begin later than its first batch ended, which has no rows: its first end is its beginning.

Not here: which files a batch has (``table.read.stream``), what executors do (``spark.task.read``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from icelock.errors import PolicyError
from icelock.metadata.column_types import schema_from_json
from icelock.spark.columns.projection import project
from icelock.spark.driver.loaded import Loaded
from icelock.spark.driver.open_stream import OpenStream
from icelock.spark.settings.catalogs import any_table_of, catalog_of, executor_properties
from icelock.spark.settings.options import TableName
from icelock.spark.settings.session import Settings
from icelock.spark.settings.stream_options import schema_read, stream_options
from icelock.spark.task.read import ReadPlan, StreamSplit, StreamTaskReader
from icelock.spark.task.splits import plan_splits
from icelock.table.plain import AnyTable
from icelock.table.read.stream import BEGINNING, StreamLimits, StreamOffset

Offset = dict[str, Any]
_ALL: Final = StreamLimits()


def stream_source(settings: Settings, options: Mapping[str, str], schema: StructType, loaded: Loaded | None) -> DataSourceStreamReader:
    """Return the reader of a stream in the driver, of the kind that this Spark has.

    Args:
        settings: of the session.
        options: of the stream.
        schema: the columns that Spark wants.
        loaded: what ``job_schema`` returned when the DataFrame was made; None for a user's schema.

    Raises:
        PolicyError: invalid options, limits on Spark 4.1, or columns that the table does not have.
    """
    stream_options(options, None)  # refuses others before anything is asked
    name = schema_read(options).table
    catalog = catalog_of(settings, name)

    def load() -> AnyTable:
        return any_table_of(catalog, name)

    table = load()
    opened = OpenStream(load, table, str(name), options, None, _schema_id(table, name, loaded))
    kind = limited_source()
    if kind is None and opened.limits != _ALL:
        raise PolicyError(
            "limits of a stream's batches need a classic session, or PySpark 4.2 or later: Spark 4.1 has none for Python data sources"
        )
    return (kind or StreamSource)(settings, opened, schema, str(name))


def _schema_id(table: AnyTable, name: TableName, loaded: Loaded | None) -> int | None:
    """Return the id of the columns that the DataFrame was made with."""
    if loaded is None:
        return None
    wanted = schema_from_json(loaded.schema).as_struct()
    for schema in table.metadata.schemas:
        if schema.as_struct() == wanted:
            return schema.schema_id
    raise PolicyError(f"the columns of table {name} changed since the DataFrame was made: load it again")


class StreamSource(DataSourceStreamReader):
    """The reader in the driver; its pickle is the executors' reader."""

    def __init__(self, settings: Settings, opened: OpenStream, schema: StructType, name: str) -> None:
        self._settings = settings
        self.opened = opened
        self._schema = schema
        self._name = name
        self._end: StreamOffset | None = None  # of the last batch that was planned here

    def initialOffset(self) -> Offset:
        """Return where a new stream begins; errors as ``TableStream.initial``."""
        return fields(self.opened.now().initial())

    def latestOffset(self) -> Offset:
        """Return the end of a batch that takes all there is; errors as ``TableStream.latest``."""
        return fields(self.opened.now().end() if self._end is None else self.opened.latest(self._end, _ALL))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the files between two offsets, for tasks; errors as ``TableStream.batch``."""
        begin, self._end = offset(start), offset(end)
        stream = self.opened.now()
        if self._end in {begin, BEGINNING} or (self.opened.rules.now and stream.is_after(begin, self._end)):
            return [StreamSplit([], None)]
        scan = stream.batch(begin, self._end, ["*"])
        table = self.opened.table
        columns = project(scan.projection(), self._schema, table=self._name, case_sensitive=self._settings.case_sensitive)
        storage = executor_properties(scan.read_context().io.properties, table.catalog.properties)
        plan = ReadPlan.of(scan.read_context(columns), self._schema, storage, table.metadata.location)
        splits = plan_splits(scan.scan_tasks(), table.metadata.properties, parallelism=self._settings.parallelism)
        return [StreamSplit(split.tasks, plan) for split in splits]

    def read(self, partition: InputPartition) -> Any:
        """Read as an executor does."""
        return StreamTaskReader().read(partition)

    def __reduce__(self) -> Any:
        return StreamTaskReader, ()


def limited_source() -> type[StreamSource] | None:
    """Return the reader that Spark tells where a batch begins, of Spark 4.2 and later; None before."""
    try:
        from pyspark.sql.streaming.datasource import (  # type: ignore[import-not-found, unused-ignore]
            ReadAllAvailable,
            ReadLimit,
            ReadMaxFiles,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:
        return None

    class LimitedSource(StreamSource, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
        last: int | None = None

        def prepareForTriggerAvailableNow(self) -> None:
            self.last = self.opened.now().head

        def getDefaultReadLimit(self) -> ReadLimit:
            """Return a limit of the options; Spark has none for files and rows together, so it only says that there are limits."""
            files, rows = self.opened.limits.files, self.opened.limits.rows
            if files is not None:
                return ReadMaxFiles(files)
            return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # type: ignore[override]
            limits = StreamLimits() if isinstance(limit, ReadAllAvailable) else self.opened.limits
            return fields(self.opened.latest(offset(start), replace(limits, last=self.last)))

    return LimitedSource


def fields(of: StreamOffset) -> Offset:
    """Return an offset as Spark takes it."""
    made: Offset = json.loads(of.to_json())
    return made


def offset(given: Offset) -> StreamOffset:
    """Return an offset that Spark gave; another form is a FormatError."""
    return StreamOffset.parse(json.dumps(given))
