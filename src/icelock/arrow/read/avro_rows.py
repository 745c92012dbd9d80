"""The rows of an Avro data or delete file.

Columns are matched by field id, as in Parquet; a file without ids by the table's name mapping or, without one, by the schema's names,
as in Java (ProjectionDatumReader). The whole file is read, and its rows are counted: Java took a cut file for a short one (case J-01).

Not here: the container (``io.avro.read``), types (``arrow.read.avro_types``), Parquet (``arrow.read.parquet_rows``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, create_mapping_from_schema

from icelock.arrow.read.avro_types import AvroColumn, avro_columns
from icelock.arrow.read.file_schema import FileField, file_fields
from icelock.arrow.read.stored_file import BATCH_BYTES, BATCH_ROWS, StoredFile, batch_rows
from icelock.errors import FormatError, IntegrityError
from icelock.io.avro.read import AvroFile, RowDecoder
from icelock.io.limits import Limits
from icelock.io.plain_input import RESTORE, PlainInput

# fastavro is slower with a reader's schema, unless that is a small part.
_SMALL_PART: Final = 2


@contextmanager
def open_avro(file: StoredFile, io: FileIO, schema: Schema, name_mapping: NameMapping | None) -> Iterator[AvroRows]:
    """Open an Avro file; it is closed after the ``with`` block."""
    with PlainInput(io.new_input(file.path), file.key_metadata) as source:
        avro = AvroFile(source, Limits.of(io.properties))
        columns = avro_columns(avro.schema, location=file.path)
        mapping = name_mapping or create_mapping_from_schema(schema)
        fields = file_fields(pa.schema([column.field for column in columns]), mapping, location=file.path)
        yield AvroRows(avro, columns, fields, record_count=file.record_count)


class AvroRows:
    """The rows of an open Avro file."""

    def __init__(self, file: AvroFile, columns: Sequence[AvroColumn], fields: FileField, *, record_count: int) -> None:
        self.fields = fields
        self._file = file
        self._columns = columns
        self._record_count = record_count

    def batches(self, leaves: Sequence[int], _: BooleanExpression) -> Iterator[tuple[int, pa.RecordBatch]]:
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
                self._refuse(f"more than {self._record_count}")
            if rows and (len(rows) + block.rows > BATCH_ROWS or size + len(block.data) > BATCH_BYTES):
                yield rows, size
                rows, size = [], 0
            rows += decoder.rows(block)
            size += len(block.data)
        if total != self._record_count:
            self._refuse(str(total))
        if rows:
            yield rows, size

    def _refuse(self, found: str) -> None:
        raise IntegrityError(
            f"{self._file.location} has {found} rows, its manifest entry says {self._record_count}: it was cut or replaced; {RESTORE}"
        )

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
