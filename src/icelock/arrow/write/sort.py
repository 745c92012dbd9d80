"""Rows of one row group in the table's sort order.

The order is Iceberg's (spec, "Sorting"): transformed values, nulls where the field says, NaN above every number.

Invariant: a data file names the sort order only if it is sorted as a whole: each row group begins where the one before ended
(`RowSorter.follows`).

Not here: order between files and tasks, which the engine decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from icelock.arrow.transforms import ArrayTransform, array_transform
from icelock.arrow.write.schema import Leaf, WriteSchema
from icelock.errors import PolicyError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    leaf: Leaf
    transform: ArrayTransform
    direction: str
    nulls: str


class RowSorter:
    """Sorts tables of the stored schema."""

    def __init__(self, order: SortOrder, target: WriteSchema) -> None:
        """Find the source columns.

        Raises:
            PolicyError: an unknown transform, or a missing source column.
        """
        self.order_id = order.order_id
        self._keys = []
        for field in order.fields:
            leaf = target.leaf(field.source_id)
            if leaf is None:
                raise PolicyError(f"sort order {order.order_id} needs column id {field.source_id}, which does not have one value a row")
            key = _Key(
                leaf=leaf,
                transform=array_transform(field.transform, leaf.iceberg_type),
                direction="ascending" if field.direction == SortDirection.ASC else "descending",
                nulls="at_start" if field.null_order == NullOrder.NULLS_FIRST else "at_end",
            )
            self._keys.append(key)

    def sort(self, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the sorted rows, and the sort keys of the first and the last of them for `follows`."""
        keys, options = self._sort_keys(table)
        order = pc.sort_indices(keys, sort_keys=options)
        ends = keys.take(pa.concat_arrays([order.slice(0, 1), order.slice(len(order) - 1)]))
        return table.take(order), ends

    def follows(self, before: pa.Table, after: pa.Table) -> bool:
        """Whether rows that end at ``before``'s second key may be followed by rows that begin at ``after``'s first."""
        keys = pa.concat_tables([before.slice(1, 1), after.slice(0, 1)])
        return bool(pc.sort_indices(keys, sort_keys=self._options())[0].as_py() == 0)  # the sort is stable

    def _sort_keys(self, table: pa.Table) -> tuple[pa.Table, list[tuple[str, str, str]]]:
        columns: dict[str, pa.ChunkedArray] = {}
        for index, key in enumerate(self._keys):
            values = pa.chunked_array([key.transform(chunk) for chunk in key.leaf.column_of(table).chunks])
            if pat.is_floating(values.type):
                columns[f"nan{index}"] = pc.is_nan(values)
            columns[f"key{index}"] = values
        return pa.table(columns), self._options()

    def _options(self) -> list[tuple[str, str, str]]:
        options = []
        for index, key in enumerate(self._keys):
            if str(key.leaf.iceberg_type) in {"float", "double"}:
                options.append((f"nan{index}", key.direction, key.nulls))
            options.append((f"key{index}", key.direction, key.nulls))
        return options
