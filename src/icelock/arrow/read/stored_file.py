"""``StoredFile``: one data or delete file of a plan, with what is needed to open it; and its rows, of Parquet, Avro or plain ORC.

Both kinds of files are refused for the same reasons: no key metadata in an encrypted table, damaged key metadata, an unsupported
format. Of a Parquet file, row groups that the footer's statistics exclude are not read; memory is bounded by a row group's stored bytes
and one batch.

Columns are matched by field id; an Avro or ORC file without ids by the table's name mapping or, without one, by the schema's names, as in
Java (ProjectionDatumReader, OrcIterable). A whole Avro or ORC file is read, and its rows are counted: Java took a cut file for a short one
(case J-01).

Not here: the formats (``io.parquet``, ``io.avro.read``, ``io.orc``), types (``arrow.read.avro_types``, ``arrow.read.orc_types``),
projection and filters (``arrow.read.task``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, create_mapping_from_schema

from icelock.arrow.read.avro_types import AvroColumn, avro_columns
from icelock.arrow.read.file_schema import FileField, file_fields
from icelock.arrow.read.orc_types import check_zones, orc_fields
from icelock.arrow.read.prune import matching_row_groups
from icelock.errors import FormatError, IntegrityError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.avro.read import AvroFile, RowDecoder
from icelock.io.limits import Limits
from icelock.io.orc import OrcInput
from icelock.io.parquet import ParquetInput
from icelock.io.plain_input import RESTORE, PlainInput, plain_refused
from icelock.plan.task import DeleteFile, ScanTask

_PARQUET: Final = "PARQUET"
_ORC: Final = "ORC"
FORMATS: Final = (_PARQUET, "AVRO")
"""Formats whose rows are read, also encrypted."""
_PLAIN_FORMATS: Final = (*FORMATS, _ORC)
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 64 << 20
_SMALL_PART: Final = 2  # of an Avro schema: fastavro is slower with a reader's schema, unless that is a small part


def batch_rows(rows: int, size: int) -> int:
    """Return the rows of a batch when ``rows`` rows take ``size`` bytes: fewer where a batch would be larger than ``BATCH_BYTES``."""
    width = size // max(1, rows)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, width)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file to open; ``key_metadata`` None means a plain one, ``record_count`` is what the manifest says."""

    path: str
    file_format: str
    key_metadata: KeyMetadata | None
    record_count: int

    @classmethod
    def of(cls, planned: ScanTask | DeleteFile, *, allow_plaintext: bool, formats: Sequence[str] = ()) -> StoredFile:
        """Return the file of a task, or one of its delete files; ``formats`` can be read (by default, those with rows).

        Raises:
            PolicyError: a plain file where none may be read, or an unsupported format.
            FormatError: key metadata that is damaged.
        """
        plain = planned.key_metadata is None and allow_plaintext
        known = tuple(formats) or (_PLAIN_FORMATS if plain else FORMATS)
        file_format = planned.file_format.upper()
        if file_format not in known:
            raise PolicyError(f"{planned.path} is in {planned.file_format}, and only {', '.join(known)} can be read here; rewrite it")
        return cls(
            path=planned.path,
            file_format=file_format,
            key_metadata=_key_metadata(planned, allow_plaintext=allow_plaintext),
            record_count=planned.record_count,
        )


def _key_metadata(planned: ScanTask | DeleteFile, *, allow_plaintext: bool) -> KeyMetadata | None:
    if planned.key_metadata is not None:
        try:
            return KeyMetadata.decode(planned.key_metadata.reveal())
        except FormatError as e:
            raise FormatError(f"{planned.path}: the manifest entry's key metadata is damaged: {e}") from e
    if not allow_plaintext:
        raise plain_refused(f"{planned.path} has no key metadata")
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """What tells whether a row group has any wanted row: ``has_rows`` asks a batch of these ``leaves``."""

    leaves: Sequence[int]
    has_rows: Callable[[pa.RecordBatch], bool]


class ParquetRows:
    """The rows of an open Parquet file."""

    def __init__(self, source: ParquetInput, fields: FileField, schema: Schema) -> None:
        self.fields = fields
        self._source = source
        self._schema = schema

    @property
    def count(self) -> int:
        """The number of rows, as the footer says."""
        return self._source.metadata.num_rows  # type: ignore[no-any-return]

    def batches(
        self, leaves: Sequence[int], matching: BooleanExpression, look: FirstLook | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of the row groups that may match; with ``look`` of those of several batches that have a wanted row.

        Raises:
            IntegrityError: bytes were changed, or a row group's number of rows differs from the footer's.
            FormatError: a plain file is damaged.
        """
        columns = self._source.leaf_paths(leaves)
        metadata = self._source.metadata
        wanted = set(range(metadata.num_row_groups))
        if not isinstance(matching, AlwaysTrue):
            wanted = set(matching_row_groups(metadata, self.fields, self._schema, matching))
        first = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            # The size over all columns: asked about a column with a key of its own, pyarrow ends the process (case C-68).
            step = batch_rows(group.num_rows, group.total_byte_size)
            if number in wanted and (look is None or group.num_rows <= step or self._has_rows(number, look, step)):
                position = first
                for batch in self._counted(number, columns, step):
                    yield position, batch
                    position += batch.num_rows
            first += group.num_rows

    def _has_rows(self, number: int, look: FirstLook, step: int) -> bool:
        return any(map(look.has_rows, self._counted(number, self._source.leaf_paths(look.leaves), step)))

    def _counted(self, number: int, columns: Sequence[str], step: int) -> Iterator[pa.RecordBatch]:
        found, said = 0, self._source.metadata.row_group(number).num_rows
        for batch in self._source.batches(number, columns, step):
            yield batch
            found += batch.num_rows
        if found != said:
            raise IntegrityError(f"{self._source.location}: row group {number} has {found} rows, its footer says {said}")


class OrcRows:
    """The rows of an open ORC file."""

    def __init__(self, source: OrcInput, schema: pa.Schema, fields: FileField, *, record_count: int) -> None:
        self.fields = fields
        self._source = source
        self._schema = schema
        self._record_count = record_count

    def batches(self, leaves: Sequence[int], *_: object) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all rows; a batch has the columns with wanted leaves.

        Raises:
            IntegrityError: the number of rows differs from the manifest entry's.
            FormatError: the file is damaged, or has a value that Arrow cannot hold.
        """
        if self._source.rows != self._record_count:
            raise miscounted(self._source.location, str(self._source.rows), self._record_count)
        wanted = set(leaves)
        columns = [stored.name for stored in self.fields.children if not wanted.isdisjoint(stored.leaves)]
        first = 0
        for stripe in self._stripes(columns):
            step = batch_rows(stripe.num_rows, stripe.nbytes)
            for start in range(0, stripe.num_rows, step):
                yield first + start, stripe.slice(start, step)
            first += stripe.num_rows
        if first != self._record_count:
            raise miscounted(self._source.location, str(first), self._record_count)

    def _stripes(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not columns:
            yield from _no_columns(self._source.rows)
            return
        schema = pa.schema([self._schema.field(name) for name in columns])
        for stripe in self._source.stripes(columns):
            try:
                arrays = [array.cast(field.type) for array, field in zip(stripe, schema, strict=True)]
            except pa.ArrowInvalid as e:
                raise FormatError(f"{self._source.location} has a value that is not of its column's type: {e}; {RESTORE}") from e
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _no_columns(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, BATCH_ROWS):
        yield pa.RecordBatch.from_arrays([pa.nulls(min(BATCH_ROWS, rows - start))], names=["row"]).select([])


def miscounted(location: str, found: str, said: int) -> IntegrityError:
    """Return the error for a file that has another number of rows than its manifest entry says."""
    return IntegrityError(f"{location} has {found} rows, its manifest entry says {said}: it was cut or replaced; {RESTORE}")


class AvroRows:
    """The rows of an open Avro file."""

    def __init__(self, file: AvroFile, columns: Sequence[AvroColumn], fields: FileField, *, record_count: int) -> None:
        self.fields = fields
        self._file = file
        self._columns = columns
        self._record_count = record_count

    def batches(self, leaves: Sequence[int], *_: object) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all rows; a batch has the columns with wanted leaves.

        Raises:
            IntegrityError: bytes were changed, or the number of rows differs from the manifest entry's.
            FormatError: the plain bytes are not such a file.
        """
        wanted = set(leaves)
        pairs = zip(self._columns, self.fields.children, strict=True)
        columns = [column for column, stored in pairs if not wanted.isdisjoint(stored.leaves)]
        first = 0
        for rows, size in self._counted(self._decoder(columns)):
            step = batch_rows(len(rows), size)
            for start in range(0, len(rows), step):
                batch = self._batch(columns, rows[start : start + step])
                yield first, batch
                first += batch.num_rows

    def _counted(self, decoder: RowDecoder) -> Iterator[tuple[list[dict[str, Any]], int]]:
        """Yield rows and their encoded bytes, several blocks at a time; the last ones only if the total is correct."""
        rows: list[dict[str, Any]] = []
        size = total = 0
        for block in self._file.blocks():
            total += block.rows
            if total > self._record_count:
                raise miscounted(self._file.location, f"more than {self._record_count}", self._record_count)
            if rows and (len(rows) + block.rows > BATCH_ROWS or size + len(block.data) > BATCH_BYTES):
                yield rows, size
                rows, size = [], 0
            rows += decoder.rows(block)
            size += len(block.data)
        if total != self._record_count:
            raise miscounted(self._file.location, str(total), self._record_count)
        if rows:
            yield rows, size

    def _decoder(self, columns: Sequence[AvroColumn]) -> RowDecoder:
        stored, wanted = _record(self._columns), _record(columns)
        small = len(columns) * _SMALL_PART <= len(self._columns)
        return RowDecoder(stored, wanted if small else stored, location=self._file.location)

    def _batch(self, columns: Sequence[AvroColumn], rows: list[dict[str, Any]]) -> pa.RecordBatch:
        if not columns:
            return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], names=["row"]).select([])
        arrays = []
        for column in columns:
            try:
                arrays.append(column.type.build([row[column.name] for row in rows]))
            except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as e:
                raise FormatError(
                    f"{self._file.location}: column {column.name!r} has a value that is not a {column.field.type}: {e}; {RESTORE}"
                ) from e
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([column.field for column in columns]))


def _record(columns: Sequence[AvroColumn]) -> dict[str, Any]:
    return {"type": "record", "name": "rows", "fields": [column.decode for column in columns]}


Rows = ParquetRows | AvroRows | OrcRows


def check_rows(file: Rows, location: str, record_count: int) -> None:
    """Check that a file has as many rows as its manifest entry says, if it is a Parquet file: those of others are counted as they are read.

    Raises:
        IntegrityError: there are more or fewer.
    """
    if isinstance(file, ParquetRows) and file.count != record_count:
        raise miscounted(location, str(file.count), record_count)


@contextmanager
def open_file(file: StoredFile, io: FileIO, *, schema: Schema, name_mapping: NameMapping | None) -> Iterator[Rows]:
    """Open a file for its rows; it is closed after the ``with`` block.

    All kinds of rows have the file's ``fields``, and ``batches``, which yields in file order the position of a batch's first row and the
    batch, with at least the leaf columns asked for. ``schema`` is the table's, ``io`` the storage's own FileIO.

    Raises:
        IntegrityError: the file fails authentication, or is not as long as its key metadata says.
        FormatError: the bytes are not of the file's format, or there are neither field ids nor mapped names.
        KeyUnavailableError: the file is encrypted, but has no key metadata.
    """
    source = io.new_input(file.path)
    if file.file_format == _PARQUET:
        with ParquetInput(source, file.key_metadata) as parquet:
            yield ParquetRows(parquet, file_fields(parquet.schema, name_mapping, location=file.path), schema)
        return
    mapping = name_mapping or create_mapping_from_schema(schema)
    if file.file_format == _ORC:
        with OrcInput(source) as orc:
            typed = orc_fields(orc.schema, location=file.path)
            fields = file_fields(typed, mapping, location=file.path)
            check_zones(fields, schema, location=file.path)
            yield OrcRows(orc, typed, fields, record_count=file.record_count)
        return
    with PlainInput(source, file.key_metadata) as plain:
        avro = AvroFile(plain, Limits.of(io.properties))
        columns = avro_columns(avro.schema, location=file.path)
        fields = file_fields(pa.schema([column.field for column in columns]), mapping, location=file.path)
        yield AvroRows(avro, columns, fields, record_count=file.record_count)
