"""New data files of one task: their locations, keys and manifest entries.

    name  00000-<task>-<operation id>-<attempt>-<count>.parquet or .avro       as in Java, with an attempt added

The attempt is random: a task that runs twice (retry, speculation, case C-56) never writes the same path. Each file has a new DEK
and AAD prefix, also when a writer rolls over or fans out. Every file that was begun is remembered until `discard` or the end, so
that a failed task can delete all of them. All data files are created here (case C-65).

Not here: when files begin and end (``arrow.write.fanout``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import Record

from icelock.arrow.write.avro_file import EncryptedAvroFile, avro_data_schema
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.metrics import FileMetrics, MetricsCollector, metrics_modes
from icelock.arrow.write.options import AVRO, MAX_PARTS, WriteOptions
from icelock.arrow.write.parquet_file import EncryptedParquetFile
from icelock.arrow.write.partition import Partitioner
from icelock.arrow.write.schema import write_schema
from icelock.arrow.write.sort import RowSorter
from icelock.errors import IntegrityError, PolicyError
from icelock.io.listing import delete_files
from icelock.keys.entropy import Entropy, mint_file_key
from icelock.metadata.manifest import DataFile

_ATTEMPT_LENGTH: Final = 8
_EncryptedFile = EncryptedParquetFile | EncryptedAvroFile


class DataFiles:
    """Creates the data files of one attempt of one task, and can delete them all."""

    def __init__(self, context: WriteContext, *, task_id: int, entropy: Entropy) -> None:
        """Check everything that can be checked before writing.

        Raises:
            PolicyError: settings, types, transforms or a column count that an encrypted table cannot have.
        """
        self.options = WriteOptions.parse(context.properties, row_group_rows=context.row_group_rows)
        self.target = write_schema(context.schema)
        self.partitioner = Partitioner(context.spec, self.target)
        self.sorter = None if context.sort_order.is_unsorted else RowSorter(context.sort_order, self.target)
        if self.options.file_format == AVRO:
            avro_data_schema(self.target.fields)
        self._modes = metrics_modes(context.properties, context.schema, context.sort_order)
        self._locations = _locations(context)
        self._context = context
        self._entropy = entropy
        attempt = entropy.random_bytes(_ATTEMPT_LENGTH).hex()
        self._name = f"00000-{task_id}-{context.operation_id}-{attempt}"
        self._begun: list[str] = []

    def open(self, partition: Sequence[Any], first: pa.Table) -> OpenDataFile:
        """Begin a file for rows of one partition; ``first`` are its first rows."""
        name = f"{self._name}-{len(self._begun) + 1:05d}.{self.options.file_format}"
        location = self._locations.new_data_location(name, self.partitioner.key(partition))
        self._begun.append(location)
        try:
            file = self._create(location, first)
        except FileExistsError:
            self._begun.remove(location)  # it is not ours to delete
            raise
        metrics = None if self.options.file_format == AVRO else MetricsCollector(self.target.leaves, self._modes)
        return OpenDataFile(file, metrics, self.sorter, Record(*partition), self._context.spec.spec_id)

    def _create(self, location: str, first: pa.Table) -> _EncryptedFile:
        file_key = mint_file_key(self._entropy, self._context.data_key_length)
        if self.options.file_format == AVRO:
            return EncryptedAvroFile(self._context.io, location, self.target, self.options, file_key, self._entropy)
        return EncryptedParquetFile(self._context.io, location, self.target, self.options, file_key, first)

    def discard(self) -> list[str]:
        """Delete every file that was begun; return the locations that are still there."""
        left = delete_files(self._context.io, self._begun)
        self._begun.clear()
        return left


def _locations(context: WriteContext) -> LocationProvider:
    try:
        return load_location_provider(context.location, dict(context.properties))
    except ValueError as e:
        raise PolicyError(str(e)) from e


class OpenDataFile:
    """A data file while it is written."""

    def __init__(
        self, file: _EncryptedFile, metrics: MetricsCollector | None, sorter: RowSorter | None, partition: Record, spec_id: int
    ) -> None:
        self._file = file
        self._metrics = metrics
        self._sorter = sorter
        self._partition = partition
        self._spec_id = spec_id
        self._last: pa.Table | None = None
        self._sorted = sorter is not None
        self._rows = 0

    @property
    def stored_bytes(self) -> int:
        """Bytes given to storage so far."""
        return self._file.stored_bytes

    @property
    def full(self) -> bool:
        """Whether the file cannot have more row groups (case C-21)."""
        return self._file.parts >= MAX_PARTS

    def write(self, table: pa.Table) -> None:
        """Write rows of the stored schema as one row group, sorted if the table has a sort order."""
        if self._sorter is not None:
            table, ends = self._sorter.sort(table)
            self._sorted = self._sorted and (self._last is None or self._sorter.follows(self._last, ends))
            self._last = ends
        self._file.write(table)
        if self._metrics is not None:
            self._metrics.add(table)
        self._rows += table.num_rows

    def close(self) -> DataFile:
        """Finish the file; return its manifest entry.

        Raises:
            IntegrityError: what is stored differs from what was written.
        """
        closed = self._file.close()
        if closed.rows != self._rows:
            raise IntegrityError(f"{self._file.location} has {closed.rows} rows, {self._rows} were written: do not commit it")
        metrics = None if self._metrics is None else self._metrics.finish(closed.footer)
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._file.location,
            file_format=FileFormat.AVRO if metrics is None else FileFormat.PARQUET,
            partition=self._partition,
            record_count=self._rows,
            file_size_in_bytes=closed.size,
            key_metadata=closed.key_metadata.encode(),
            sort_order_id=self._sorter.order_id if self._sorter is not None and self._sorted else 0,
            **_fields(metrics),
        )
        data_file.spec_id = self._spec_id
        data_file.fresh = True
        return data_file

    def abort(self) -> None:
        """Stop writing."""
        self._file.abort()


def _fields(metrics: FileMetrics | None) -> dict[str, Any]:
    return {} if metrics is None else {field.name: getattr(metrics, field.name) for field in dataclasses.fields(metrics)}
