"""Filters by SQL's three-valued logic: truth tables written here by hand, against rows, and against what metadata claims of files."""

from __future__ import annotations

import math
import struct
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions as ex
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, NestedField, StringType

from icelock.arrow.read.file_schema import file_fields, with_names
from icelock.arrow.read.project import FileColumns
from icelock.arrow.read.row_filter import FilterPlan, RowFilter
from icelock.plan.filters.exact import exact_filter
from icelock.plan.metrics_visitor import MetricsEvaluator
from icelock.plan.partition_filter import partition_filter
from icelock.plan.whole_files import WholeFiles

SCHEMA = Schema(
    NestedField(1, "n", IntegerType(), required=False),
    NestedField(2, "f", DoubleType(), required=False),
    NestedField(3, "s", StringType(), required=False),
)
VALUES: dict[str, list[Any]] = {
    "n": [None, -1, 0, 1, 2, 2**31 - 1],
    "f": [None, math.nan, -math.inf, -0.0, 0.0, 1.5, math.inf],
    "s": [None, "", "a", "ab", "\U0001f600", "\uffff"],
}
LITERALS: dict[str, list[Any]] = {
    "n": [-1, 0, 1, 2, 1.5, -0.5, 2**31, -(2**40)],
    "f": [-math.inf, -0.0, 0.0, 1, 1.5, math.inf],
    "s": ["", "a", "ab", "b", "\U0001f600", "\uffff"],
}

# SQL's tables, None is unknown.
NOT = {True: False, False: True, None: None}
AND = {(True, True): True, (True, False): False, (True, None): None, (False, True): False, (False, False): False}
AND |= {(False, None): False, (None, True): None, (None, False): False, (None, None): None}
OR = {(True, True): True, (True, False): True, (True, None): True, (False, True): True, (False, False): False}
OR |= {(False, None): None, (None, True): True, (None, False): None, (None, None): None}
COMPARED = {
    ex.EqualTo: lambda a, b: a == b,
    ex.NotEqualTo: lambda a, b: a != b,
    ex.LessThan: lambda a, b: a < b,
    ex.LessThanOrEqual: lambda a, b: a <= b,
    ex.GreaterThan: lambda a, b: a > b,
    ex.GreaterThanOrEqual: lambda a, b: a >= b,
}
Model = tuple[Any, ...]


def truth(model: Model, row: dict[str, Any]) -> bool | None:
    """Return what a filter is for a row; text sorts by its code points, as its UTF-8 bytes do."""
    kind, *rest = model
    if kind is ex.Not:
        return NOT[truth(rest[0], row)]
    if kind in {ex.And, ex.Or}:
        return (AND if kind is ex.And else OR)[truth(rest[0], row), truth(rest[1], row)]
    if kind in {ex.AlwaysTrue, ex.AlwaysFalse}:
        return kind is ex.AlwaysTrue
    name, *arguments = rest
    return _of_value(kind, row[name], *arguments)


def _of_value(kind: Any, value: Any, *arguments: Any) -> bool | None:
    if kind in {ex.IsNull, ex.NotNull}:
        return (value is None) == (kind is ex.IsNull)
    if kind in {ex.In, ex.NotIn} and not arguments[0]:
        return kind is ex.NotIn  # nothing is compared
    if value is None:
        return None
    return _of_present(kind, value, *arguments)


def _of_present(kind: Any, value: Any, *arguments: Any) -> bool:
    if kind in {ex.IsNaN, ex.NotNaN}:
        return (value != value) == (kind is ex.IsNaN)  # noqa: PLR0124 - NaN
    if kind in {ex.StartsWith, ex.NotStartsWith}:
        return value.startswith(arguments[0]) == (kind is ex.StartsWith)
    if kind in {ex.In, ex.NotIn}:
        return any(value == one for one in arguments[0]) == (kind is ex.In)
    return COMPARED[kind](value, arguments[0])


def expression(model: Model) -> ex.BooleanExpression:
    kind, *rest = model
    return kind(*(expression(part) for part in rest)) if kind in {ex.Not, ex.And, ex.Or, ex.AlwaysTrue, ex.AlwaysFalse} else kind(*rest)


@st.composite
def predicates(draw: st.DrawFn) -> Model:
    name = draw(st.sampled_from(sorted(VALUES)))
    kinds: list[Any] = [*COMPARED, ex.In, ex.NotIn, ex.IsNull, ex.NotNull, ex.IsNaN, ex.NotNaN]
    kind = draw(st.sampled_from([*kinds, ex.StartsWith, ex.NotStartsWith] if name == "s" else kinds))
    if kind in {ex.IsNull, ex.NotNull, ex.IsNaN, ex.NotNaN}:
        return kind, name
    one = st.sampled_from(LITERALS[name])
    return kind, name, draw(st.lists(one, max_size=3) if kind in {ex.In, ex.NotIn} else one)


models = st.recursive(
    st.one_of(predicates(), predicates(), st.sampled_from([(ex.AlwaysTrue,), (ex.AlwaysFalse,)])),
    lambda inner: st.one_of(st.tuples(st.just(ex.Not), inner), st.tuples(st.sampled_from([ex.And, ex.Or]), inner, inner)),
    max_leaves=5,
)
rows = st.lists(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}), min_size=1, max_size=4)
TYPES = pa.schema([("n", pa.int32()), ("f", pa.float64()), ("s", pa.string())])


def exact(model: Model) -> ex.BooleanExpression:
    return exact_filter(expression(model), SCHEMA, case_sensitive=True)


@settings(max_examples=300, deadline=None)
@given(model=models, rows=rows)
def test_rows_are_taken_where_the_filter_is_true_and_nowhere_else(model, rows):
    plan = FilterPlan.make(expression(model), SCHEMA, case_sensitive=True)
    batch = pa.RecordBatch.from_pylist(rows, schema=TYPES)
    fields = with_names(file_fields(TYPES, SCHEMA.name_mapping, location="memory"), SCHEMA.name_mapping, location="memory")
    mask = RowFilter(plan, FileColumns(location="memory", fields=fields, constants={})).keep(batch)
    taken = batch if mask is None else batch.filter(mask)
    assert repr(taken.to_pylist()) == repr([{name: row[name] for name in VALUES} for row in rows if truth(model, row) is True])
    again = exact_filter(exact(model), SCHEMA, case_sensitive=True)
    assert again == exact(model)


def _single(name: str, value: Any) -> bytes:
    return struct.pack("<i", value) if name == "n" else struct.pack("<d", value) if name == "f" else value.encode()


def _file(rows: list[dict[str, Any]], *, counts: bool, nans: bool, bounds: bool) -> Any:
    """Return a data file's metrics, as much of them as a writer may leave."""
    file = SimpleNamespace(
        record_count=len(rows), value_counts={}, null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={}
    )
    for number, name in enumerate(VALUES, start=1):
        there = [row[name] for row in rows if row[name] is not None]
        compared = [value for value in there if value == value]  # noqa: PLR0124 - NaN is no bound
        if counts:
            file.value_counts[number] = len(rows)
            file.null_value_counts[number] = len(rows) - len(there)
        if nans and name == "f":
            file.nan_value_counts[number] = len(there) - len(compared)
        if bounds and compared:
            file.lower_bounds[number], file.upper_bounds[number] = _single(name, min(compared)), _single(name, max(compared))
    return file


@settings(max_examples=300, deadline=None)
@given(model=models, rows=rows, counts=st.booleans(), nans=st.booleans(), bounds=st.booleans())
def test_metrics_never_take_a_row_that_stays_nor_hide_one_that_goes(model, rows, counts, nans, bounds):
    """The worst that a delete could do is to drop a file unread although one of its rows does not match."""
    file = _file(rows, counts=counts, nans=nans, bounds=bounds)
    answers = [truth(model, row) is True for row in rows]
    planned: Any = SimpleNamespace(file=file, residual=None)
    assert all(answers) or not WholeFiles(SCHEMA, exact(model)).certain(planned)
    assert not any(answers) or MetricsEvaluator(SCHEMA, exact(model)).eval(file)


TRANSFORMS: dict[str, list[Any]] = {
    "n": [IdentityTransform(), BucketTransform(3), TruncateTransform(2)],
    "f": [IdentityTransform()],
    "s": [IdentityTransform(), BucketTransform(3), TruncateTransform(1)],
}


@settings(max_examples=300, deadline=None)
@given(model=models, row=rows.map(lambda many: many[0]), data=st.data())
def test_no_partition_is_passed_over_that_holds_a_row_which_matches(model, row, data):
    name = data.draw(st.sampled_from(sorted(VALUES)))
    source = SCHEMA.find_field(name)
    transform = data.draw(st.sampled_from(TRANSFORMS[name]))
    spec = PartitionSpec(PartitionField(source.field_id, 1000, transform, "p"))
    partition = Record(transform.transform(source.field_type)(row[name]))
    may_hold = expression_evaluator(Schema(*spec.partition_type(SCHEMA).fields), partition_filter(SCHEMA, spec, exact(model)), True)  # noqa: FBT003
    assert may_hold(partition) or truth(model, row) is not True
