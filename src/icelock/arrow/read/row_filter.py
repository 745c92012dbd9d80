"""Which rows of a batch a bound filter keeps: Iceberg predicates as Arrow kernels.

The filter sees the table's values (after projection: promoted, defaulted, from partitions), so the result does not
depend on the file. ``plan.filters.exact``, which every plan uses, decides about null, NaN and -0.0.

Three differences from PyIceberg 0.12, where it contradicts itself, SQL and Java: it compares a promoted column in the file's type (a float
0.1 read as double equals 0.1), lets ``!=`` keep the nulls of a column that the file lacks and NOT IN those of any, and tells -0.0 from 0.0
in IN only.

Not here: what a filter means (``plan.filters.exact``), skipping row groups (``arrow.read.prune``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg.expressions import And, BooleanExpression, BoundEqualTo, BoundIn, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, bind, extract_field_ids, visit
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import UUIDType

from icelock.arrow.read.project import FileColumns, Projection
from icelock.arrow.types import UUID_STORAGE, output_schema, output_type, plain_array
from icelock.metadata.schema_paths import schema_paths
from icelock.plan.filters.exact import exact_filter


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilterPlan:
    """A filter shared by all files of a scan: bound to the table's schema, with the columns that it needs.

    ``paths`` are the positions of each of its fields in a row of ``schema``.
    """

    expression: BooleanExpression
    schema: Schema
    arrow_schema: pa.Schema
    paths: Mapping[int, tuple[int, ...]]

    @classmethod
    def make(cls, row_filter: BooleanExpression, table_schema: Schema, *, case_sensitive: bool) -> FilterPlan:
        """Bind a filter, which may be bound already."""
        bound = bind(table_schema, exact_filter(row_filter, table_schema, case_sensitive=case_sensitive), case_sensitive=True)
        ids = extract_field_ids(bound)
        schema = prune_columns(table_schema, ids, select_full_types=True)
        paths = {path.field.field_id: path.positions for path in schema_paths(schema.fields) if path.field.field_id in ids}
        return cls(expression=bound, schema=schema, arrow_schema=output_schema(schema), paths=paths)


class RowFilter:
    """A filter for the batches of one file; ``leaves`` are the leaf columns that it needs."""

    def __init__(self, plan: FilterPlan, source: FileColumns) -> None:
        self._plan = plan
        self._projection = Projection(plan.schema, plan.arrow_schema, source)
        self.leaves = self._projection.leaves

    def keep(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return a boolean array with true for each row to keep, or None if all rows match."""
        values = self._projection.apply(batch)
        mask = visit(self._plan.expression, _Mask({field_id: _at(values, path) for field_id, path in self._plan.paths.items()}))
        if isinstance(mask, pa.Scalar):
            return None if mask.as_py() else pa.repeat(mask, batch.num_rows)
        return None if mask.true_count == len(mask) else mask

    def has_rows(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch has a row to keep."""
        mask = self.keep(batch)
        return bool(batch.num_rows if mask is None else mask.true_count)

    @property
    def finds_values(self) -> bool:
        """Whether all rows to keep have one of some values in a column, so that most parts of a table may have none."""
        return bool(self.leaves) and _finds_values(self._plan.expression)


def _finds_values(expression: BooleanExpression) -> bool:
    if isinstance(expression, And):
        return _finds_values(expression.left) or _finds_values(expression.right)
    return isinstance(expression, (BoundEqualTo, BoundIn))


def _at(batch: pa.RecordBatch, path: tuple[int, ...]) -> pa.Array:
    array = batch.column(path[0])
    return plain_array(pc.struct_field(array, list(path[1:])) if path[1:] else array)


class _Mask(BoundBooleanExpressionVisitor[Any]):
    """Evaluates a bound filter on arrays by field id; a result is a boolean array or scalar, null where unknown."""

    def __init__(self, columns: Mapping[int, pa.Array]) -> None:
        self._columns = columns

    def _column(self, term: BoundTerm) -> pa.Array:
        return self._columns[term.ref().field.field_id]

    def _scalar(self, term: BoundTerm, literal: Literal[Any]) -> pa.Scalar:
        return pa.scalar(_raw(literal.value), _literal_type(term))

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Any:
        column, values = self._column(term), pa.array([_raw(value) for value in literals], _literal_type(term))
        if pat.is_floating(column.type):  # -0.0 + 0.0 is 0.0
            column, values = (pc.add(array, pa.scalar(0.0, array.type)) for array in (column, values))
        found = pc.is_in(column, value_set=values)
        return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_())) if column.null_count else found

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Any:
        return pc.invert(self.visit_in(term, literals))

    def visit_is_nan(self, term: BoundTerm) -> Any:
        return pc.is_nan(self._column(term))

    def visit_not_nan(self, term: BoundTerm) -> Any:
        return pc.invert(pc.is_nan(self._column(term)))

    def visit_is_null(self, term: BoundTerm) -> Any:
        return pc.is_null(self._column(term))

    def visit_not_null(self, term: BoundTerm) -> Any:
        return pc.is_valid(self._column(term))

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Any:
        return pc.equal(self._column(term), self._scalar(term, literal))

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Any:
        return pc.not_equal(self._column(term), self._scalar(term, literal))

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Any:
        return pc.greater_equal(self._column(term), self._scalar(term, literal))

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Any:
        return pc.greater(self._column(term), self._scalar(term, literal))

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Any:
        return pc.less(self._column(term), self._scalar(term, literal))

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Any:
        return pc.less_equal(self._column(term), self._scalar(term, literal))

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Any:
        return pc.starts_with(self._column(term), pattern=literal.value)

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Any:
        return pc.invert(self.visit_starts_with(term, literal))

    def visit_true(self) -> Any:
        return pa.scalar(True)  # noqa: FBT003

    def visit_false(self) -> Any:
        return pa.scalar(False)  # noqa: FBT003

    def visit_not(self, child_result: Any) -> Any:
        return pc.invert(child_result)

    def visit_and(self, left_result: Any, right_result: Any) -> Any:
        return pc.and_kleene(left_result, right_result)

    def visit_or(self, left_result: Any, right_result: Any) -> Any:
        return pc.or_kleene(left_result, right_result)


def _literal_type(term: BoundTerm) -> pa.DataType:
    iceberg_type = term.ref().field.field_type
    return UUID_STORAGE if isinstance(iceberg_type, UUIDType) else output_type(iceberg_type)


def _raw(value: Any) -> Any:
    """Return a literal's value as Arrow takes it: a UUID as its bytes."""
    return value.bytes if hasattr(value, "bytes") and hasattr(value, "hex") and not isinstance(value, (bytes, float)) else value
