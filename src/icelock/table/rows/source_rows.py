"""The rows that an upsert brings: checked, in the table's own types, found by key and compared.

The key is one or more top-level columns of any primitive type. Keys compare as in Spark: NaN equals NaN, -0.0 equals 0.0, and null equals
nothing. So a null in a key is refused; so is a key that occurs twice, since one row cannot become two. ``row_filter`` matches all rows of a
table that may have one of the keys, and perhaps more: it lists few values, and of many it takes the smallest and the largest.

Not here: the table's rows (``table.rows.upsert``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg import expressions as ex
from pyiceberg.expressions.literals import DateLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType

from icelock.arrow.row_numbers import RowNumbers
from icelock.arrow.types import output_schema, plain_array
from icelock.arrow.write.conform import InputPlan
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.schema import write_schema
from icelock.errors import PolicyError
from icelock.metadata.schema_paths import column_list, find_column

_LISTED: Final = 200  # PyIceberg's evaluators look at no more literals
# Types whose Arrow values are those of filters.
_PLAIN: Final = (pat.is_integer, pat.is_large_string, pat.is_large_binary, pat.is_fixed_size_binary, pat.is_decimal, pat.is_floating)
_AS_NUMBERS: Final = (pat.is_date, pat.is_time, pat.is_timestamp)


class SourceRows:
    """The source of an upsert, held in memory."""

    def __init__(self, context: WriteContext, rows: pa.Table, join_cols: Sequence[str] | None, *, case_sensitive: bool) -> None:
        """Check the rows and index their keys.

        Raises:
            PolicyError: no key, a column that cannot be a key, a null in a key, a key that occurs twice, or rows that do not fit.
        """
        self.rows = rows
        key = _key_fields(context.schema, join_cols, case_sensitive=case_sensitive)
        self.key_names = [field.name for field in key]
        self.stored = _conformed(context, rows)
        columns = [key_column(self.stored.column(name)) for name in self.key_names]
        for name, column in zip(self.key_names, columns, strict=True):
            if column.null_count:
                raise PolicyError(f"key column {name!r} of the input has {column.null_count} nulls, which match no key: fill or drop them")
        self._keys = RowNumbers(columns)
        repeated = self._keys.first_repetition
        if repeated is not None:
            names = ", ".join(map(repr, self.key_names))
            raise PolicyError(
                f"row {repeated} of the input has the same key ({names}) as an earlier row: one row of the table cannot become two"
            )
        self.row_filter = _filter(self.key_names, columns)

    def check_whole(self) -> None:
        """Check that the source has all columns of the table: updated rows would lose the values of others.

        Raises:
            PolicyError: it lacks one.
        """
        lacking = [name for name in self.stored.column_names if name not in self.rows.column_names]
        if lacking:
            raise PolicyError(
                f"the input lacks column {', '.join(map(repr, lacking))}: updated rows would lose its values; add it to the input"
            )

    def find(self, batch: pa.RecordBatch) -> pa.Array:
        """Return for each row of the table the source row with its key, as int64; null where no row has it."""
        return self._keys.find([key_column(batch.column(name)) for name in self.key_names]).cast(pa.int64())

    def differs(self, batch: pa.RecordBatch, numbers: pa.Array) -> pa.Array:
        """Return a boolean array with true for each row of the table that differs from the source row of that number, key aside."""
        source = self.stored.take(numbers).combine_chunks()
        differs = pa.repeat(False, batch.num_rows)
        for name in self.stored.column_names:
            if name not in self.key_names:
                differs = pc.or_(differs, different(batch.column(name), source.column(name).combine_chunks()))
        return differs


def key_column(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return key values such that equal keys have equal bytes: one NaN, one zero; offsets of 64 bits."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    values = pa.concat_arrays([_wide(plain_array(chunk)) for chunk in chunks or [pa.array([], column.type)]])
    if pat.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 + 0.0 is 0.0
        values = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
    return values


def _wide(array: pa.Array) -> pa.Array:
    if pat.is_string(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pat.is_binary(array.type) else array


def different(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return a boolean array with true for each pair of values that differ: a null differs from values, and no value from itself.

    NaN equals NaN and -0.0 equals 0.0, but in lists and maps, which are compared as Python values, NaN equals nothing.
    """
    left, right = plain_array(left), plain_array(right)
    one_null = pc.xor(left.is_null(), right.is_null())
    if pat.is_null(left.type):
        return one_null
    if pat.is_struct(left.type):
        children = (different(a, b) for a, b in zip(left.flatten(), right.flatten(), strict=True))
        return reduce(pc.or_, children, one_null)
    if pat.is_nested(left.type):
        return pa.array([a != b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], pa.bool_())
    unequal = pc.fill_null(pc.not_equal(left, right), False)
    if pat.is_floating(left.type):
        both_nan = pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False)
        unequal = pc.and_not(unequal, both_nan)
    return pc.or_(one_null, unequal)


def _key_fields(schema: Schema, join_cols: Sequence[str] | None, *, case_sensitive: bool) -> list[NestedField]:
    if join_cols is None:
        names = [schema.find_column_name(field_id) or "" for field_id in sorted(schema.identifier_field_ids)]
    else:
        names = list(column_list(join_cols, argument="join_cols"))
    if not names:
        raise PolicyError("upsert needs a key: give join_cols, or set the table's identifier fields")
    top = {field.field_id for field in schema.fields}
    found = {field.field_id: field for field in (find_column(schema, name, case_sensitive=case_sensitive) for name in names)}
    for field in found.values():
        if field.field_id not in top or not isinstance(field.field_type, PrimitiveType):
            name = schema.find_column_name(field.field_id)
            raise PolicyError(f"column {name!r} cannot be a key: only top-level columns of a primitive type can")
    return list(found.values())


def _conformed(context: WriteContext, rows: pa.Table) -> pa.Table:
    """Return the rows in the types in which a scan gives the table's."""
    target = write_schema(context.schema)
    by_name = output_schema(context.schema)
    plain = dataclasses.replace(target, arrow=pa.schema([by_name.field(field.name) for field in target.fields]))
    plan = InputPlan(rows.schema, plain, downcast_ns=context.downcast_ns)
    return pa.Table.from_batches([plan.apply(batch) for batch in rows.to_batches()], schema=plain.arrow)


def _filter(names: Sequence[str], columns: Sequence[pa.Array]) -> ex.BooleanExpression:
    return reduce(ex.And, (_one_of(name, pc.unique(column)) for name, column in zip(names, columns, strict=True)))


def _one_of(name: str, values: pa.Array) -> ex.BooleanExpression:
    """Return a filter that matches each of some distinct values."""
    nan: ex.BooleanExpression = ex.AlwaysFalse()
    if not len(values):
        return nan
    if pat.is_floating(values.type):
        missing = pc.is_nan(values)
        nan = ex.IsNaN(term=ex.Reference(name)) if missing.true_count else nan
        values = values.filter(pc.invert(missing))
        if not len(values):
            return nan
    numbers = _numbers(values)
    if numbers is None:
        return ex.AlwaysTrue()
    literal_of: Callable[[Any], Any] = DateLiteral if pat.is_date32(values.type) else lambda value: value  # a number is no date literal
    # -0.0 and 0.0 are one key, but two values of IN.
    if len(numbers) <= _LISTED and not pat.is_floating(values.type):
        return ex.In(term=ex.Reference(name), literals={literal_of(number) for number in numbers.to_pylist()})
    order = pc.sort_indices(numbers)
    low, high = (literal_of(numbers[order[place].as_py()].as_py()) for place in (0, len(order) - 1))
    return ex.Or(
        nan, ex.And(ex.GreaterThanOrEqual(term=ex.Reference(name), value=low), ex.LessThanOrEqual(term=ex.Reference(name), value=high))
    )


def _numbers(values: pa.Array) -> Any:
    """Return values in the form of filters; None for a type that filters do not take."""
    kind = values.type
    if pat.is_timestamp(kind) and kind.unit == "ns":
        return None
    if any(is_type(kind) for is_type in _AS_NUMBERS):
        return values.cast(pa.int32() if pat.is_date32(kind) else pa.int64())
    return values if any(is_type(kind) for is_type in _PLAIN) else None
