"""Whatever rows come, in whatever Arrow form and cut into whatever batches: what was written is what is read."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, MapType, StringType, StructType

from tests.unit.arrow.writing import opt, read, req, write

SCHEMA = Schema(
    req(1, "n", LongType()),
    opt(2, "s", StringType()),
    opt(3, "st", StructType(req(4, "x", IntegerType()), opt(5, "l", ListType(6, StringType(), element_required=False)))),
    opt(7, "ls", ListType(8, StructType(opt(9, "d", DoubleType()), req(10, "t", StringType())), element_required=False)),
    opt(11, "m", MapType(12, StringType(), 13, ListType(14, LongType(), element_required=True), value_required=False)),
)
TEXT = st.text(max_size=5)
INNER = st.fixed_dictionaries({"d": st.none() | st.floats(allow_nan=False), "t": TEXT})
ROW = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**31), 2**31 - 1),
        "s": st.none() | TEXT,
        "st": st.none() | st.fixed_dictionaries({"x": st.integers(-128, 127), "l": st.none() | st.lists(st.none() | TEXT, max_size=3)}),
        "ls": st.none() | st.lists(st.none() | INNER, max_size=3),
        "m": st.none()
        | st.dictionaries(TEXT, st.none() | st.lists(st.integers(0, 9), max_size=3), max_size=3).map(lambda d: list(d.items())),
    }
)


def arrow_schema(text: pa.DataType, lists, key: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("n", pa.int32()),
            ("s", text),
            ("st", pa.struct([("l", lists(text)), ("x", pa.int8())])),
            ("ls", lists(pa.struct([("t", text), ("d", pa.float64())]))),
            ("m", pa.map_(key, lists(pa.int64()))),
        ]
    )


FORMS = [
    arrow_schema(pa.string(), pa.list_, pa.string()),
    arrow_schema(pa.large_string(), pa.large_list, pa.large_string()),
    arrow_schema(pa.string_view(), pa.list_view, pa.string()),
    arrow_schema(pa.string(), pa.large_list_view, pa.string()),
]
SPEC = PartitionSpec(
    PartitionField(1, 1000, BucketTransform(3), "b"),
    PartitionField(2, 1001, TruncateTransform(1), "t"),
    PartitionField(4, 1002, TruncateTransform(50), "x"),
)


def canonical(row) -> str:
    return json.dumps(row, sort_keys=True)


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=12),
    form=st.sampled_from(FORMS),
    sizes=st.tuples(st.integers(0, 3), st.integers(1, 12)),
    split=st.booleans(),
)
def test_rows_come_back(tmp_path_factory, rows, form, sizes, split):
    cut, batch = sizes
    table = pa.Table.from_pylist(rows, form).slice(min(cut, len(rows) - 1))
    fields = {"spec": SPEC} if split else {}
    properties = {"write.parquet.row-group-limit": "4", "write.parquet.row-group-check-min-record-count": "1"}
    data_files = write(tmp_path_factory.mktemp("t"), table, SCHEMA, batch_rows=batch, properties=properties, **fields)
    found = [{name: row[name] for name in ("n", "s", "st", "ls", "m")} for row in read(data_files).to_pylist()]
    expected = rows[min(cut, len(rows) - 1) :]
    assert sum(data_file.record_count for data_file in data_files) == len(expected)
    if split:
        found, expected = sorted(found, key=canonical), sorted(expected, key=canonical)
    assert found == expected
