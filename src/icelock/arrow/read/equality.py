"""Equality deletes over Arrow arrays: which rows of a batch equal a deleted row in all compared columns (spec, "Equality Delete Files").

Equal is as Java's StructLikeSet has it: null equals null, NaN equals NaN, -0.0 is not 0.0, and a null struct is not a struct of
nulls. Values are those after projection, on both sides: promoted, with initial defaults, from partitions.

Not here: which files apply (``plan.delete_index``), reading them (``arrow.read.deletes``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg.schema import Schema

from icelock.arrow.read.project import FileColumns, Projection
from icelock.arrow.row_numbers import RowNumbers
from icelock.arrow.types import output_schema, plain_array
from icelock.metadata.column_types import field_from_json
from icelock.plan.task import DeleteFile

_AS_BITS: Final = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}

_MANY: Final = 4

Keys = Sequence[pa.Array]


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
        self._projections = [
            Projection(schema, arrow, source) for schema, arrow in zip(columns.schemas, columns.arrow_schemas, strict=True)
        ]
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


def equal_rows(rows: Keys, deleted: Keys) -> pa.Array | None:
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
