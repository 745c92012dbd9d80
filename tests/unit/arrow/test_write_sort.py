"""Rows in the table's sort order, and a sort order id only on files that are sorted from end to end."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, StringType, StructType

from icelock.errors import PolicyError
from tests.unit.arrow.writing import files_in, opt, parquet_file, read, write

SCHEMA = Schema(
    opt(1, "a", IntegerType()), opt(2, "s", StringType()), opt(3, "d", DoubleType()), opt(4, "st", StructType(opt(5, "x", LongType())))
)
ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
NAN = float("nan")


def order(*fields: SortField, order_id: int = 3) -> SortOrder:
    return SortOrder(*fields, order_id=order_id)


def by(source_id: int, direction=ASC, nulls=FIRST, transform=None) -> SortField:
    return SortField(source_id=source_id, transform=transform or IdentityTransform(), direction=direction, null_order=nulls)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (by(1, ASC, FIRST), [None, 1, 2, 3]),
        (by(1, ASC, LAST), [1, 2, 3, None]),
        (by(1, DESC, FIRST), [None, 3, 2, 1]),
        (by(1, DESC, LAST), [3, 2, 1, None]),
    ],
)
def test_nulls_go_where_the_field_says(tmp_path, field, expected):
    (data_file,) = write(tmp_path, pa.table({"a": pa.array([2, None, 3, 1], pa.int32())}), SCHEMA, sort_order=order(field))
    assert read([data_file])["a"].to_pylist() == expected
    assert data_file.sort_order_id == 3


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (by(3, ASC, FIRST), [None, -math.inf, 1.0, math.inf, "nan"]),
        (by(3, ASC, LAST), [-math.inf, 1.0, math.inf, "nan", None]),
        (by(3, DESC, FIRST), [None, "nan", math.inf, 1.0, -math.inf]),
        (by(3, DESC, LAST), ["nan", math.inf, 1.0, -math.inf, None]),
    ],
)
def test_nan_is_above_every_number(tmp_path, field, expected):
    (data_file,) = write(tmp_path, pa.table({"d": [1.0, NAN, None, -math.inf, math.inf]}), SCHEMA, sort_order=order(field))
    found = ["nan" if value is not None and math.isnan(value) else value for value in read([data_file])["d"].to_pylist()]
    assert found == expected


def test_several_fields_transforms_and_nested_columns(tmp_path):
    table = pa.table({"s": ["ab2", "ab1", "aa9", "b"], "st": [{"x": 1}, {"x": 2}, {"x": 3}, None], "a": pa.array([1, 2, 3, 4], pa.int32())})
    sort_order = order(by(2, transform=TruncateTransform(2)), by(5, DESC))
    (data_file,) = write(tmp_path, table, SCHEMA, sort_order=sort_order)
    assert read([data_file])["a"].to_pylist() == [3, 2, 1, 4]


def test_a_bucketed_order_is_by_bucket(tmp_path):
    transform = BucketTransform(4)
    values = list(range(20))
    table = pa.table({"a": pa.array(values, pa.int32())})
    (data_file,) = write(tmp_path, table, SCHEMA, sort_order=order(by(1, transform=transform)))
    bucket = transform.transform(IntegerType())
    assert read([data_file])["a"].to_pylist() == sorted(values, key=bucket)  # both sorts are stable


def test_row_groups_that_overlap_make_no_sorted_file(tmp_path):
    table = pa.table({"a": pa.array([5, 6, 7, 8] * 50, pa.int32())})
    properties = {"write.parquet.row-group-limit": "100"}
    (data_file,) = write(tmp_path, table, SCHEMA, sort_order=order(by(1)), properties=properties)
    assert data_file.sort_order_id == 0
    metadata = parquet_file(data_file).metadata
    assert metadata.num_row_groups == 2
    for index in range(2):
        values = parquet_file(data_file).read_row_group(index)["a"].to_pylist()
        assert values == sorted(values)


def test_row_groups_that_follow_each_other_make_a_sorted_file(tmp_path):
    table = pa.table({"a": pa.array([*range(100, 200), *range(199, 299)][::-1], pa.int32())})
    properties = {"write.parquet.row-group-limit": "100"}
    (data_file,) = write(tmp_path, table, SCHEMA, sort_order=order(by(1, DESC)), properties=properties)
    assert (data_file.sort_order_id, len(data_file.split_offsets)) == (3, 2)


def test_unsorted_tables_keep_the_order_of_input(tmp_path):
    (data_file,) = write(tmp_path, pa.table({"a": pa.array([2, 1, 3], pa.int32())}), SCHEMA)
    assert read([data_file])["a"].to_pylist() == [2, 1, 3]
    assert data_file.sort_order_id == 0


def test_an_order_on_what_has_no_single_value_is_refused(tmp_path):
    schema = Schema(opt(1, "l", ListType(2, LongType(), element_required=False)))
    with pytest.raises(PolicyError, match="sort order 3"):
        write(tmp_path, pa.table({"l": [[1]]}), schema, sort_order=order(by(2)))
    assert files_in(tmp_path) == []
