"""Rows split by partition: one tuple of physical values for each group of rows, in any order of input.

Each group is a copy of its rows, so that a small partition's buffer does not keep a whole batch alive. The order of rows
inside a group is the input's.

Not here: how many files are open (``arrow.write.fanout``), folder names (``arrow.write.partition_path``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record

from icelock.arrow.row_numbers import RowNumbers
from icelock.arrow.transforms import ArrayTransform, array_transform
from icelock.arrow.write.partition_path import partition_path
from icelock.arrow.write.schema import Leaf, WriteSchema
from icelock.errors import PolicyError


class JavaPartitionKey(PartitionKey):
    """PyIceberg's key for location providers, with Java's path and several fields of one source column allowed."""

    @property
    def partition(self) -> Record:
        """The tuple of physical values."""
        return Record(*(field_value.value for field_value in self.field_values))

    def to_path(self) -> str:
        """Return the folders of the partition."""
        fields = [field_value.field for field_value in self.field_values]
        types = [self.schema.find_type(field.source_id) for field in fields]
        return partition_path(fields, types, [field_value.value for field_value in self.field_values])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    field: PartitionField
    leaf: Leaf
    transform: ArrayTransform

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the partition values of a batch."""
        try:
            return self.transform(self.leaf.array(batch))
        except (pa.ArrowException, ArithmeticError) as e:
            kind = self.field.transform.result_type(self.leaf.iceberg_type)
            raise PolicyError(
                f"partition field {self.field.name!r}, {self.field.transform} of a {self.leaf.iceberg_type}, has no value of its type "
                f"{kind} for some of the rows: they are too large or too small for it; leave them out, or change the partition spec"
            ) from e


class Partitioner:
    """Splits batches of the stored schema by a partition spec."""

    def __init__(self, spec: PartitionSpec, target: WriteSchema) -> None:
        """Find the source columns.

        Raises:
            PolicyError: a transform that is not known, or a source column that is not there.
        """
        self._spec = spec
        self._target = target
        self._sources = [_source(field, target) for field in spec.fields]

    @property
    def partitioned(self) -> bool:
        """Whether rows can be in different partitions."""
        return any(source is not None for source in self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def key(self, values: Sequence[Any]) -> PartitionKey | None:
        """Return the location provider's key of a partition; None when the table is not partitioned (any more)."""
        if not self.partitioned:
            return None
        found = [PartitionFieldValue(field, value) for field, value in zip(self._spec.fields, values, strict=True)]
        return JavaPartitionKey(found, self._spec, self._target.schema)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Yield each partition's values and rows; the values are equal for equal partitions as ``identity_of`` sees them.

        Raises:
            PolicyError: rows of which a transform has no value.
        """
        if not batch.num_rows:
            return
        columns = [None if source is None else source.values(batch) for source in self._sources]
        rows = RowNumbers([column for column in columns if column is not None])
        if rows.count == 1:
            yield _values(columns, 0), batch
            return
        order = pc.sort_indices(rows.numbers)
        start = 0
        # Numbers are given in the order in which rows are met, and so are the counts.
        for length in pc.value_counts(rows.numbers).field("counts").to_pylist():
            group = order.slice(start, length)
            yield _values(columns, group[0].as_py()), batch.take(group)
            start += length


def _source(field: PartitionField, target: WriteSchema) -> _Source | None:
    if isinstance(field.transform, VoidTransform):
        return None
    leaf = target.leaf(field.source_id)
    if leaf is None:
        raise PolicyError(f"partition field {field.name!r} needs column id {field.source_id}, which is not a column with one value a row")
    return _Source(field=field, leaf=leaf, transform=array_transform(field.transform, leaf.iceberg_type))


def _values(columns: Sequence[pa.Array | None], row: int) -> tuple[Any, ...]:
    return tuple(None if column is None else column[row].as_py() for column in columns)
