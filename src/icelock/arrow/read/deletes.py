"""The deletes of one task: deletion vectors, position deletes and equality deletes, and the rows of a batch that they leave.

Positions of all delete files together are one bitmap; equality delete files that compare the same columns are one set of rows.
Everything is read and checked before the data file is opened, so with a damaged delete file no row is returned. Decoded files are kept
in the scan's ``DeleteCache``.

Not here: which delete files apply (``plan.delete_index``), the blob (``io.puffin.read``), comparing rows (``arrow.read.equality``).
"""

from __future__ import annotations

import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.equality import EqualityColumns, EqualityKeys, equal_rows
from icelock.arrow.read.open_file import open_file
from icelock.arrow.read.project import FileColumns, Projection
from icelock.arrow.read.stored_file import StoredFile
from icelock.arrow.types import output_schema
from icelock.errors import FormatError, IntegrityError
from icelock.io.limits import Limits, refuse
from icelock.io.plain_input import RESTORE, PlainBytes, PlainInput
from icelock.io.puffin.read import decode_deletion_vector, read_blob
from icelock.plan.task import EQUALITY_DELETES, POSITION_DELETES, DeleteFile, ScanTask
from icelock.properties import LIMIT_DELETE_BYTES

PUFFIN: Final = "PUFFIN"
KEPT_PUFFIN_BYTES: Final = 16 << 20
_POSITIONS: Final = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True), NestedField(2147483545, "pos", LongType(), required=True)
)
_POSITIONS_ARROW: Final = output_schema(_POSITIONS)
_POSITION_BYTES: Final = 8


def check_deletes(context: ReadContext, task: ScanTask) -> None:
    """Refuse what can be refused without reading anything.

    Raises:
        PolicyError: a plain delete file in an encrypted table, or a format that is not read.
        FormatError: an entry that contradicts itself or the data file.
    """
    for delete in task.deletes:
        if delete.content not in (POSITION_DELETES, EQUALITY_DELETES):
            raise FormatError(
                f"{delete.path} is listed as a delete file with content {delete.content}; 1 (positions) and 2 (equality) are known"
            )
        if delete.content == EQUALITY_DELETES and (not delete.equality_ids or len(delete.equality_columns) != len(delete.equality_ids)):
            raise FormatError(f"equality delete file {delete.path} does not say which columns it compares: {delete.equality_ids}")
        _stored(context, delete)
        if _is_vector(delete):
            _check_vector(delete, task)


class Deletes:
    """The deletes of a task, read; ``positions`` are deleted row positions."""

    def __init__(self, positions: BitMap64, equality: Sequence[tuple[EqualityColumns, list[pa.Array]]]) -> None:
        self.positions = positions
        self._equality = equality

    @classmethod
    def read(cls, context: ReadContext, task: ScanTask, *, also: BitMap64 | None = None) -> Deletes:
        """Read every delete file of a task; the positions ``also`` are deleted too.

        Raises:
            IntegrityError: a delete file fails authentication, or differs from its manifest entry.
            FormatError: an invalid delete file.
            KeyUnavailableError: an encrypted delete file without key metadata.
        """
        positions = BitMap64(also)
        groups: dict[tuple[int, ...], list[DeleteFile]] = defaultdict(list)
        for delete in task.deletes:
            if delete.content == EQUALITY_DELETES:
                groups[tuple(sorted(delete.equality_ids or ()))].append(delete)
            else:
                found = _positions_of(context, delete, task.path)
                _check_range(found, delete, task)
                positions |= found
        equality = [(EqualityColumns.of(group[0]), _equality_deletes(context, group)) for group in groups.values()]
        return cls(positions, equality)

    @property
    def compares(self) -> bool:
        """Whether there are equality deletes, which need the data file's rows."""
        return bool(self._equality)

    def bind(self, source: FileColumns) -> RowDeletes:
        """Return the deletes for the batches of the task's data file."""
        return RowDeletes(self.positions, [(EqualityKeys(columns, source), deleted) for columns, deleted in self._equality])


class RowDeletes:
    """A task's deletes for batches of its data file; ``leaves`` are the leaf columns that equality deletes need."""

    def __init__(self, positions: BitMap64, equality: Sequence[tuple[EqualityKeys, list[pa.Array]]]) -> None:
        self._positions = positions
        self._equality = equality
        self.leaves = tuple(sorted({leaf for keys, _ in equality for leaf in keys.leaves}))

    def keep(self, batch: pa.RecordBatch, first: int) -> pa.Array | None:
        """Return a boolean array with true for each row that is not deleted, or None if all are kept; ``first`` is its position."""
        masks = [] if not batch.num_rows else [mask for mask in self._masks(batch, first) if mask is not None]
        if not masks:
            return None
        kept = masks[0]
        for mask in masks[1:]:
            kept = pc.and_(kept, mask)
        return kept

    def _masks(self, batch: pa.RecordBatch, first: int) -> Iterator[pa.Array | None]:
        if self._positions:
            yield _kept_positions(self._positions, first, batch.num_rows)
        for keys, deleted in self._equality:
            found = equal_rows(keys.read(batch), deleted)
            yield None if found is None else pc.invert(found)


def _kept_positions(positions: BitMap64, first: int, rows: int) -> pa.Array | None:
    if not positions.range_cardinality(first, first + rows):
        return None
    found = (positions & BitMap64(range(first, first + rows))).to_array()
    deleted = pa.Array.from_buffers(pa.int64(), len(found), [None, pa.py_buffer(found)])
    # Rows without a deleted position are not in the permutation.
    return pc.is_null(pc.inverse_permutation(pc.subtract(deleted, pa.scalar(first, pa.int64())), max_index=rows - 1))


def _positions_of(context: ReadContext, delete: DeleteFile, data_file: str) -> BitMap64:
    if _is_vector(delete):
        return _deletion_vector(context, delete)
    return _position_deletes(context, delete).get(data_file, BitMap64())


def _check_range(positions: BitMap64, delete: DeleteFile, task: ScanTask) -> None:
    if positions and positions.max() >= task.record_count:
        raise IntegrityError(
            f"{delete.path} deletes row {positions.max()} of {task.path}, which has {task.record_count} rows: "
            f"one of them is not the file that was written; {RESTORE}"
        )


def _is_vector(delete: DeleteFile) -> bool:
    return delete.content == POSITION_DELETES and delete.file_format.upper() == PUFFIN


def _check_vector(delete: DeleteFile, task: ScanTask) -> None:
    if delete.referenced_data_file != task.path:
        raise FormatError(
            f"the deletion vector in {delete.path} is about {delete.referenced_data_file}, not {task.path}: the entries were mixed up"
        )
    if delete.content_offset is None or delete.content_size is None:
        raise FormatError(f"the deletion vector of {task.path} in {delete.path} has no offset or size in its manifest entry; {RESTORE}")


def _stored(context: ReadContext, delete: DeleteFile) -> StoredFile:
    formats = (PUFFIN,) if _is_vector(delete) else ()
    return StoredFile.of(delete, allow_plaintext=context.allow_plaintext, formats=formats)


def _deletion_vector(context: ReadContext, delete: DeleteFile) -> BitMap64:
    stored = _stored(context, delete)
    offset, size = delete.content_offset or 0, delete.content_size or 0
    if delete.file_size <= KEPT_PUFFIN_BYTES:
        # One short file holds the vectors of many data files: it is read once.
        whole = context.delete_cache.get((PUFFIN, delete.path, delete.key_metadata), partial(_whole_file, context, stored))
        blob = read_blob(whole, offset, size)
    else:
        with PlainInput(context.io.new_input(stored.path), stored.key_metadata) as source:
            blob = read_blob(source, offset, size)
    name = f"{delete.path} (at {offset}, of {delete.referenced_data_file})"
    return decode_deletion_vector(blob, cardinality=delete.record_count, name=name)


def _whole_file(context: ReadContext, stored: StoredFile) -> tuple[PlainBytes, int]:
    with PlainInput(context.io.new_input(stored.path), stored.key_metadata) as source:
        return source.read_whole(), source.length


def _position_deletes(context: ReadContext, delete: DeleteFile) -> dict[str, BitMap64]:
    key = ("positions", delete.path, delete.key_metadata)
    return context.delete_cache.get(key, partial(_read_positions, context, _stored(context, delete)))


def _read_positions(context: ReadContext, stored: StoredFile) -> tuple[dict[str, BitMap64], int]:
    """Read a position delete file; return the positions by data file, and roughly their memory."""
    found: dict[str, BitMap64] = defaultdict(BitMap64)
    with open_file(stored, context.io, schema=_POSITIONS, name_mapping=create_mapping_from_schema(_POSITIONS)) as rows:
        source = FileColumns(location=stored.path, fields=rows.fields, constants={}, complete=True)
        projection = Projection(_POSITIONS, _POSITIONS_ARROW, source)
        count = 0
        for _, batch in rows.batches(projection.leaves, AlwaysTrue()):
            count += batch.num_rows
            _add_positions(found, projection.apply(batch), stored.path)
    check_count(stored, count)
    return dict(found), count * _POSITION_BYTES + sum(len(path) for path in found)


def _add_positions(found: dict[str, BitMap64], batch: pa.RecordBatch, location: str) -> None:
    if not batch.num_rows:
        return
    positions = batch.column(1)
    if pc.min(positions).as_py() < 0:
        raise FormatError(f"{location} deletes position {pc.min(positions)}, which no file has; {RESTORE}")
    paths = batch.column(0).dictionary_encode()
    names = paths.dictionary.to_pylist()
    if len(names) > 1:
        positions = positions.take(pc.array_sort_indices(paths.indices))
    start = 0
    # Indices are in order of first occurrence of the paths, and so are the counts.
    for name, count in zip(names, pc.value_counts(paths.indices).field("counts").to_pylist(), strict=True):
        found[name] |= bitmap_of(positions.slice(start, count))
        start += count


def bitmap_of(positions: pa.Array) -> BitMap64:
    """Return the bitmap of an int64 array without nulls."""
    numbers = array.array("Q")
    start = positions.offset * _POSITION_BYTES
    numbers.frombytes(memoryview(positions.buffers()[1])[start : start + len(positions) * _POSITION_BYTES])
    return BitMap64(numbers)


def _equality_deletes(context: ReadContext, group: Sequence[DeleteFile]) -> list[pa.Array]:
    """Return the compared columns of all rows of a group of delete files that compare the same columns."""
    columns = EqualityColumns.of(group[0])
    files = sorted(group, key=lambda delete: delete.path)
    key = ("equality", columns.ids, *((delete.path, delete.key_metadata) for delete in files))
    return context.delete_cache.get(key, partial(_read_equality_group, context, files, columns))


def _read_equality_group(context: ReadContext, files: Sequence[DeleteFile], columns: EqualityColumns) -> tuple[list[pa.Array], int]:
    if len(files) == 1:
        return _read_equality(context, _stored(context, files[0]), columns)
    parts = [_equality_deletes(context, [delete]) for delete in files]
    together = [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]
    return together, sum(keys.nbytes for keys in together)


def _read_equality(context: ReadContext, stored: StoredFile, columns: EqualityColumns) -> tuple[list[pa.Array], int]:
    with open_file(stored, context.io, schema=context.table_schema, name_mapping=context.name_mapping) as rows:
        keys = EqualityKeys(columns, FileColumns(location=stored.path, fields=rows.fields, constants={}, complete=True))
        parts = []
        limit, size = Limits.of(context.io.properties).delete_bytes, 0
        for _, batch in rows.batches(keys.leaves, AlwaysTrue()):
            parts.append(keys.read(batch))
            size += sum(array.nbytes for array in parts[-1])
            if size > limit:
                refuse(stored.path, "bytes of deleted rows", limit, LIMIT_DELETE_BYTES)
    check_count(stored, sum(len(part[0]) for part in parts))
    together = [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)] or keys.none
    return together, sum(keys.nbytes for keys in together)


def check_count(stored: StoredFile, found: int) -> None:
    """Check that a delete file has as many deletes as its manifest entry says.

    Raises:
        IntegrityError: it has more or fewer.
    """
    if found != stored.record_count:
        raise IntegrityError(
            f"{stored.path} has {found} deletes, its manifest entry says {stored.record_count}: it was cut or replaced; {RESTORE}"
        )
