"""The deletes of one task: deletion vectors, position deletes and equality deletes, and the rows of a batch that they leave.

Positions of all delete files together are one bitmap; equality delete files that compare the same columns are one set of rows.
Everything is read and checked before the data file is opened, so with a damaged delete file no row is returned. Decoded files are kept
in the scan's ``DeleteCache``.

By equality deletes, rows are deleted that equal a deleted row in all compared columns (spec, "Equality Delete Files"). Equal is as Java's
StructLikeSet has it: null equals null, NaN equals NaN, -0.0 is not 0.0, and a null struct is not a struct of nulls. Values are those
after projection, on both sides: promoted, with initial defaults, from partitions.

Not here: which delete files apply (``plan.delete_index``), the blob (``io.puffin``).
"""

from __future__ import annotations

import array
import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.project import FileColumns, Projection
from icelock.arrow.read.stored_file import StoredFile, open_file
from icelock.arrow.row_numbers import RowNumbers
from icelock.arrow.types import output_schema, plain_array
from icelock.errors import FormatError, IntegrityError
from icelock.io.limits import Limits, refuse
from icelock.io.plain_input import RESTORE, PlainBytes, PlainInput
from icelock.io.puffin.read import decode_deletion_vector, read_blob
from icelock.metadata.column_types import field_from_json
from icelock.plan.task import EQUALITY_DELETES, POSITION_DELETES, DeleteFile, ScanTask
from icelock.properties import LIMIT_DELETE_BYTES

PUFFIN: Final = "PUFFIN"
KEPT_PUFFIN_BYTES: Final = 16 << 20
POSITIONS: Final = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True), NestedField(2147483545, "pos", LongType(), required=True)
)
_POSITIONS_ARROW: Final = output_schema(POSITIONS)
_POSITION_BYTES: Final = 8
_AS_BITS: Final = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
_MANY: Final = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EqualityColumns:
    """The columns that a group of delete files compares, each in a schema of its own: names may repeat when columns were dropped."""

    ids: tuple[int, ...]
    schemas: tuple[Schema, ...]
    arrow_schemas: tuple[pa.Schema, ...]

    @classmethod
    def of(cls, delete: DeleteFile) -> EqualityColumns:
        """Return the columns of an equality delete file, in the order of their ids."""
        ids = tuple(sorted(delete.equality_ids or ()))
        by_id = dict(zip(delete.equality_ids or (), delete.equality_columns, strict=True))
        schemas = tuple(Schema(field_from_json(by_id[field_id])) for field_id in ids)
        return cls(ids=ids, schemas=schemas, arrow_schemas=tuple(output_schema(schema) for schema in schemas))


class EqualityKeys:
    """Reads the compared columns of one file's batches; ``leaves`` are the leaf columns it needs."""

    def __init__(self, columns: EqualityColumns, source: FileColumns) -> None:
        pairs = zip(columns.schemas, columns.arrow_schemas, strict=True)
        self._projections = [Projection(schema, arrow, source) for schema, arrow in pairs]
        self.leaves = tuple(sorted({leaf for projection in self._projections for leaf in projection.leaves}))

    @property
    def none(self) -> list[pa.Array]:
        """The compared columns of no row."""
        return [key for projection in self._projections for key in _keys(pa.nulls(0, projection.schema.field(0).type))]

    def read(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the compared columns in a form in which equal rows have equal values.

        Raises:
            FormatError: a stored value does not fit its type.
        """
        arrays = (projection.apply(batch).column(0) for projection in self._projections)
        return [key for array in arrays for key in _keys(array)]


def equal_rows(rows: Sequence[pa.Array], deleted: Sequence[pa.Array]) -> pa.Array | None:
    """Return a boolean array with true for each of ``rows`` that is among ``deleted``, or None if there is no such row."""
    if len(deleted[0]) > _MANY * len(rows[0]):
        # A hash table of all deleted values for each batch costs more than one of the batch, to find those that matter.
        near = reduce(pc.and_, [pc.is_in(there, value_set=here) for here, there in zip(rows, deleted, strict=True)])
        deleted = [keys.filter(near) for keys in deleted]
    if not len(deleted[0]):
        return None
    found = pc.is_in(rows[0], value_set=deleted[0]) if len(rows) == 1 else RowNumbers(deleted).find(rows).is_valid()
    return found if found.true_count else None


def _keys(array: pa.Array) -> Iterator[pa.Array]:
    """Yield whether each struct on the way is null, then the value itself."""
    while pat.is_struct(array.type):
        yield array.is_null()
        array = pc.struct_field(array, [0])
    array = plain_array(array)
    bits = _AS_BITS.get(array.type)
    if bits is not None:
        array = pc.if_else(pc.is_nan(array), pa.scalar(math.nan, array.type), array).view(bits)
    yield array


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
                check_range(found, delete, task.path, task.record_count)
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


def deleted_positions(context: ReadContext, delete: DeleteFile) -> Mapping[str, BitMap64]:
    """Return the positions of a vector or a position delete file, by data file.

    Raises:
        IntegrityError, PolicyError, FormatError, OSError: the file cannot be read.
    """
    if not _is_vector(delete):
        return _position_deletes(context, delete)
    if delete.referenced_data_file is None:
        raise FormatError(f"the deletion vector in {delete.path} names no data file; {RESTORE}")
    return {delete.referenced_data_file: _deletion_vector(context, delete)}


def check_range(positions: BitMap64, delete: DeleteFile, path: str, rows: int) -> None:
    """Check that a data file has the rows that are deleted from it.

    Raises:
        IntegrityError: it has not.
    """
    if positions and positions.max() >= rows:
        raise IntegrityError(
            f"{delete.path} deletes row {positions.max()} of {path}, which has {rows} rows: "
            f"one of them is not the file that was written; {RESTORE}"
        )


def check_equality(context: ReadContext, delete: DeleteFile) -> None:
    """Read an equality delete file as a scan does.

    Raises:
        IntegrityError, PolicyError, FormatError, OSError: the file cannot be read, or lacks a column that it compares.
    """
    _equality_deletes(context, [delete])


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
    offset, size = delete.content_offset or 0, delete.content_size or 0
    if delete.file_size <= KEPT_PUFFIN_BYTES:
        # One short file holds the vectors of many data files: it is read once, and its key metadata decoded once.
        whole = context.delete_cache.get((PUFFIN, delete.path, delete.key_metadata), partial(_whole_file, context, delete))
        blob = read_blob(whole, offset, size)
    else:
        stored = _stored(context, delete)
        with PlainInput(context.io.new_input(stored.path), stored.key_metadata) as source:
            blob = read_blob(source, offset, size)
    name = f"{delete.path} (at {offset}, of {delete.referenced_data_file})"
    return decode_deletion_vector(blob, cardinality=delete.record_count, name=name)


def _whole_file(context: ReadContext, delete: DeleteFile) -> tuple[PlainBytes, int]:
    stored = _stored(context, delete)
    with PlainInput(context.io.new_input(stored.path), stored.key_metadata) as source:
        return source.read_whole(), source.length


def _position_deletes(context: ReadContext, delete: DeleteFile) -> dict[str, BitMap64]:
    key = ("positions", delete.path, delete.key_metadata)
    return context.delete_cache.get(key, partial(_read_positions, context, _stored(context, delete)))


def _read_positions(context: ReadContext, stored: StoredFile) -> tuple[dict[str, BitMap64], int]:
    """Read a position delete file; return the positions by data file, and roughly their memory."""
    found: dict[str, BitMap64] = defaultdict(BitMap64)
    with open_file(stored, context.io, schema=POSITIONS, name_mapping=create_mapping_from_schema(POSITIONS)) as rows:
        source = FileColumns(location=stored.path, fields=rows.fields, constants={}, complete=True)
        projection = Projection(POSITIONS, _POSITIONS_ARROW, source)
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


def among(ids: pa.Array, wanted: BitMap64) -> pa.Array:
    """Return a boolean array: which of the ids are wanted; false for null."""
    present = ids.drop_null()
    found = bitmap_of(present) & wanted
    if not found:
        return pa.repeat(pa.scalar(value=False), len(ids))
    if len(found) == len(ids):
        return pa.repeat(pa.scalar(value=True), len(ids))
    numbers = found.to_array()
    return pc.is_in(ids, value_set=pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))


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
