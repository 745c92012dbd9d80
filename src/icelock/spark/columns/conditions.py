"""An Iceberg filter as a condition on a DataFrame's columns: it keeps exactly the rows that the Arrow engine keeps.

Both drop rows for which the filter is NULL. Where Spark differs from ``plan.filters.exact`` the condition follows these rules:

    NaN    is unequal to everything, itself included, and neither greater nor less:  x > 5  →  x > 5 and not isnan(x)
    -0.0   equals 0.0, in IN too
    UUID   is text in Spark, and compared as text: canonical text sorts as the bytes do

Not here: Spark's filters as Iceberg's (``spark.columns.filters``).
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.schema import Schema
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

from icelock.arrow.types import output_type
from icelock.metadata.schema_paths import names_to
from icelock.spark.columns.types import quoted, spark_type

_FLOATS: Final = (ice.FloatType, ice.DoubleType)


def condition(bound: BooleanExpression, schema: Schema) -> Column:
    """Return the condition of a filter that is bound to ``schema``, on columns by name."""
    made: Column = visit(bound, _Condition(schema))
    return made


class _Condition(BoundBooleanExpressionVisitor[Column]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def _column(self, term: Any) -> Column:
        return F.col(quoted(*names_to(self._schema.fields, term.ref().field.field_id)))

    def _literal(self, term: Any, value: Any) -> Column:
        kind = term.ref().field.field_type
        if isinstance(kind, ice.UUIDType):
            return F.lit(str(value if isinstance(value, UUID) else UUID(bytes=value)))
        python = pa.scalar(value, output_type(kind)).as_py()
        # As text: PySpark would take dates and times as of this process's time zone.
        plain = python.isoformat() if isinstance(python, dt.date) else python
        return F.lit(plain).cast(spark_type(kind, term.ref().field.name, ""))

    def _ordered(self, term: Any, literal: Literal[Any], compare: Callable[[Column, Column], Column]) -> Column:
        column = self._column(term)
        compared = compare(column, self._literal(term, literal.value))
        if not isinstance(term.ref().field.field_type, _FLOATS):
            return compared
        if math.isnan(literal.value):
            return F.lit(False)
        return compared & ~F.isnan(column)

    def visit_in(self, term: Any, literals: set[Any]) -> Column:
        column = self._column(term)
        zeros = [value for value in literals if value == 0] if isinstance(term.ref().field.field_type, _FLOATS) else []
        values = [self._literal(term, value) for value in literals if value not in zeros]
        found = [column.isin(*values)] if values else []
        found += [column == F.lit(0.0) for _ in zeros[:1]]
        return reduce(operator.or_, found)

    def visit_not_in(self, term: Any, literals: set[Any]) -> Column:
        return ~self.visit_in(term, literals)

    def visit_is_nan(self, term: Any) -> Column:
        column = self._column(term)
        return F.when(column.isNotNull(), F.isnan(column))

    def visit_not_nan(self, term: Any) -> Column:
        column = self._column(term)
        return column.isNotNull() & ~F.isnan(column)

    def visit_is_null(self, term: Any) -> Column:
        return self._column(term).isNull()

    def visit_not_null(self, term: Any) -> Column:
        return self._column(term).isNotNull()

    def visit_equal(self, term: Any, literal: Literal[Any]) -> Column:
        return self._ordered(term, literal, lambda column, value: column == value)

    def visit_not_equal(self, term: Any, literal: Literal[Any]) -> Column:
        column = self._column(term)
        if isinstance(term.ref().field.field_type, _FLOATS) and math.isnan(literal.value):
            return column.isNotNull()
        return column != self._literal(term, literal.value)

    def visit_greater_than_or_equal(self, term: Any, literal: Literal[Any]) -> Column:
        return self._ordered(term, literal, lambda column, value: column >= value)

    def visit_greater_than(self, term: Any, literal: Literal[Any]) -> Column:
        return self._ordered(term, literal, lambda column, value: column > value)

    def visit_less_than(self, term: Any, literal: Literal[Any]) -> Column:
        return self._ordered(term, literal, lambda column, value: column < value)

    def visit_less_than_or_equal(self, term: Any, literal: Literal[Any]) -> Column:
        return self._ordered(term, literal, lambda column, value: column <= value)

    def visit_starts_with(self, term: Any, literal: Literal[Any]) -> Column:
        return F.startswith(self._column(term), F.lit(literal.value))

    def visit_not_starts_with(self, term: Any, literal: Literal[Any]) -> Column:
        return ~self.visit_starts_with(term, literal)

    def visit_true(self) -> Column:
        return F.lit(True)

    def visit_false(self) -> Column:
        return F.lit(False)

    def visit_not(self, child_result: Column) -> Column:
        return ~child_result

    def visit_and(self, left_result: Column, right_result: Column) -> Column:
        return left_result & right_result

    def visit_or(self, left_result: Column, right_result: Column) -> Column:
        return left_result | right_result
