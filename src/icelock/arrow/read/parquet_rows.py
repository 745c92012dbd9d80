"""The rows of a Parquet data or delete file, one row group at a time.

Row groups that the footer's statistics exclude are not read; memory is bounded by a row group's stored bytes and one batch.

Not here: Parquet itself (``io.parquet``), Avro (``arrow.read.avro_rows``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from icelock.arrow.read.file_schema import FileField, file_fields
from icelock.arrow.read.prune import matching_row_groups
from icelock.arrow.read.stored_file import StoredFile, batch_rows
from icelock.errors import IntegrityError
from icelock.io.parquet import ParquetInput


@contextmanager
def open_parquet(file: StoredFile, io: FileIO, schema: Schema, name_mapping: NameMapping | None) -> Iterator[ParquetRows]:
    """Open a Parquet file; it is closed after the ``with`` block."""
    with ParquetInput(io.new_input(file.path), file.key_metadata) as source:
        yield ParquetRows(source, file_fields(source.schema, name_mapping, location=file.path), schema)


class ParquetRows:
    """The rows of an open Parquet file."""

    def __init__(self, source: ParquetInput, fields: FileField, schema: Schema) -> None:
        self.fields = fields
        self._source = source
        self._schema = schema

    def batches(self, leaves: Sequence[int], matching: BooleanExpression) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of the row groups that may match.

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
            if number in wanted:
                position = first
                for batch in self._source.batches(number, columns, _group_batch_rows(group)):
                    yield position, batch
                    position += batch.num_rows
                if position - first != group.num_rows:
                    raise IntegrityError(
                        f"{self._source.location}: row group {number} has {position - first} rows, its footer says {group.num_rows}"
                    )
            first += group.num_rows


def _group_batch_rows(group: Any) -> int:
    """Use the row group's size over all columns: asked about a column with a key of its own, pyarrow ends the process (case C-68)."""
    return batch_rows(group.num_rows, group.total_byte_size)
