"""Which columns have which metrics: Java's MetricsConfig."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, MapType, StringType, StructType

from icelock.arrow.write.metrics import COUNTS, FULL, NONE, TRUNCATE_16, MetricsMode, metrics_modes
from tests.unit.arrow.writing import opt, req, write

DEFAULT = "write.metadata.metrics.default"
COLUMN = "write.metadata.metrics.column."
LIMIT = "write.metadata.metrics.max-inferred-column-defaults"
SCHEMA = Schema(
    opt(1, "a", StringType()), opt(2, "b", StringType()), opt(3, "st", StructType(opt(4, "x", LongType()), opt(5, "d", DoubleType())))
)


def modes(properties=None, schema=SCHEMA, order=UNSORTED_SORT_ORDER) -> dict[int, MetricsMode]:
    return metrics_modes(properties or {}, schema, order)


def sorted_by(*fields: tuple[int, object]) -> SortOrder:
    made = [SortField(source_id=i, transform=t, direction=SortDirection.ASC, null_order=NullOrder.NULLS_FIRST) for i, t in fields]
    return SortOrder(*made, order_id=1)


def test_truncate_16_is_the_default():
    assert set(modes().values()) == {TRUNCATE_16}
    assert sorted(modes()) == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("text", "mode"),
    [("none", NONE), ("COUNTS", COUNTS), ("full", FULL), ("Truncate(3)", MetricsMode(counts=True, bounds=True, length=3))],
)
def test_the_default_property_is_for_all_columns_and_a_column_property_overrides(text, mode):
    assert set(modes({DEFAULT: text}).values()) == {mode}
    assert modes({f"{COLUMN}st.x": text, DEFAULT: "counts"}) == {1: COUNTS, 2: COUNTS, 4: mode, 5: COUNTS}


@pytest.mark.parametrize("text", ["truncate(0)", "truncate", "some", "truncate(-1)", " full"])
def test_a_mode_that_cannot_be_read_counts_as_not_set(text):
    assert set(modes({DEFAULT: text}).values()) == {TRUNCATE_16}
    assert modes({DEFAULT: "counts", f"{COLUMN}a": text})[1] == COUNTS


def test_only_the_first_hundred_primitive_fields_have_metrics_by_default():
    schema = Schema(*(opt(i, f"c{i}", IntegerType()) for i in range(1, 121)))
    found = modes(schema=schema)
    assert {i for i, mode in found.items() if mode == TRUNCATE_16} == set(range(1, 101))
    assert {i for i, mode in found.items() if mode == NONE} == set(range(101, 121))
    assert set(modes({DEFAULT: "counts"}, schema).values()) == {COUNTS}
    assert sum(mode == TRUNCATE_16 for mode in modes({LIMIT: "7"}, schema).values()) == 7
    assert sum(mode == TRUNCATE_16 for mode in modes({LIMIT: "-1"}, schema).values()) == 100


@pytest.mark.parametrize(
    ("limit", "ids"), [(1, {9}), (2, {9, 2}), (3, {9, 2, 4}), (4, {9, 2, 4, 6}), (5, {9, 2, 4, 6, 8}), (6, {9, 2, 4, 6, 8})]
)
def test_the_limit_takes_a_structs_own_fields_before_those_below_it(limit, ids):
    """The cases of Java's TestMetricsConfig.testNestedStruct."""

    def top(first: int) -> StructType:
        return StructType(req(first, "i", IntegerType()), req(first + 1, "st", StructType(opt(first + 2, "s", StringType()))))

    schema = Schema(req(1, "a1", top(2)), req(5, "a2", top(6)), req(9, "top", IntegerType()))
    found = modes({LIMIT: str(limit)}, schema)
    assert {i for i, mode in found.items() if mode == TRUNCATE_16} == ids


def test_elements_keys_and_values_count_toward_the_limit():
    schema = Schema(
        opt(1, "l", ListType(2, LongType(), element_required=False)),
        opt(3, "m", MapType(4, LongType(), 5, LongType(), value_required=False)),
        opt(6, "top", LongType()),
    )
    assert {i for i, mode in modes({LIMIT: "3"}, schema).items() if mode == TRUNCATE_16} == {6, 2, 4}


def test_sorted_columns_keep_bounds():
    order = sorted_by((1, IdentityTransform()), (2, BucketTransform(4)), (4, TruncateTransform(10)))
    assert modes({DEFAULT: "none"}, order=order) == {1: TRUNCATE_16, 2: NONE, 4: TRUNCATE_16, 5: NONE}
    assert modes({DEFAULT: "counts"}, order=order)[1] == TRUNCATE_16
    assert modes({DEFAULT: "full"}, order=order)[1] == FULL
    assert modes({DEFAULT: "none", f"{COLUMN}a": "counts"}, order=order)[1] == COUNTS


def test_a_column_name_with_a_dot_is_not_a_path():
    schema = Schema(opt(1, "a.b", LongType()), opt(2, "a", StructType(opt(3, "c", LongType()))))
    assert modes({f"{COLUMN}a.b": "none"}, schema) == {1: NONE, 3: TRUNCATE_16}


def test_each_mode_keeps_what_it_says(tmp_path):
    schema = Schema(*(opt(i, name, DoubleType()) for i, name in enumerate(("none", "counts", "full"), 1)), opt(4, "cut", StringType()))
    table = pa.table({"none": [1.0, None], "counts": [float("nan"), None], "full": [2.5, 1.0], "cut": ["abcdef", "ab"]})
    properties = {f"{COLUMN}none": "none", f"{COLUMN}counts": "counts", f"{COLUMN}full": "full", f"{COLUMN}cut": "truncate(3)"}
    (data_file,) = write(tmp_path, table, schema, properties=properties)
    assert sorted(data_file.column_sizes) == [2, 3, 4]
    assert data_file.value_counts == {2: 2, 3: 2, 4: 2}
    assert data_file.null_value_counts == {2: 1, 3: 0, 4: 0}
    assert data_file.nan_value_counts == {2: 1, 3: 0}
    assert sorted(data_file.lower_bounds) == [3, 4]
    assert (data_file.lower_bounds[4], data_file.upper_bounds[4]) == (b"ab", b"abd")
