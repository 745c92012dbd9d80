"""Which columns get a dictionary: those that it makes smaller on the first page, as parquet-mr decides."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, MapType, StringType, StructType

from icelock.arrow.write.parquet_file import is_smaller
from tests.unit.arrow.writing import opt, parquet_file, read, write


@pytest.mark.parametrize(
    ("values", "smaller"),
    [
        # 1,000 longs of 10 values: 4 bits each = 500 bytes and 80 of dictionary, against 8,000
        (pa.array([number % 10 for number in range(1000)], pa.int64()), True),
        # all distinct: 10 bits each = 1,250 bytes and 8,000 of dictionary
        (pa.array(range(1000), pa.int64()), False),
        # 512 of 600 distinct ints: 9 bits each = 675 bytes and 2,048, against 2,400
        (pa.array([number % 512 for number in range(600)], pa.int32()), False),
        # 256 of 600: 8 bits each = 600 bytes and 1,024, against 2,400
        (pa.array([number % 256 for number in range(600)], pa.int32()), True),
        (pa.array(["a long town name", "another town name"] * 50), True),
        (pa.array([f"{number}" for number in range(100)]), False),
        (pa.array([True, False] * 10), False),
        (pa.array([None, None], pa.string()), True),
        (pa.array([None, "x", "x", "x"]), True),
        (
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.UUID(int=number % 2).bytes for number in range(40)], pa.binary(16))),
            True,
        ),
    ],
)
def test_a_dictionary_is_for_what_it_makes_smaller(values, smaller):
    assert is_smaller(pa.chunked_array([values])) is smaller


def test_columns_of_a_file_at_every_level(tmp_path):
    schema = Schema(
        opt(1, "few", StringType()),
        opt(2, "id", LongType()),
        opt(3, "s", StructType(opt(4, "few", IntegerType()), opt(5, "id", LongType()))),
        opt(6, "l", ListType(7, LongType(), element_required=False)),
        opt(8, "m", MapType(9, StringType(), 10, LongType(), value_required=False)),
    )
    rows = range(30_000)
    table = pa.table(
        {
            "few": pa.array([f"town-{number % 7}" for number in rows]),
            "id": pa.array(rows, pa.int64()),
            "s": pa.array([{"few": number % 3, "id": number} for number in rows], pa.struct([("few", pa.int32()), ("id", pa.int64())])),
            "l": pa.array([[number] for number in rows], pa.list_(pa.int64())),
            "m": pa.array([[("k", number)] for number in rows], pa.map_(pa.string(), pa.int64())),
        }
    )
    (data_file,) = write(tmp_path, table, schema)
    group = parquet_file(data_file).metadata.row_group(0)
    with_dictionary = {group.column(c).path_in_schema: group.column(c).has_dictionary_page for c in range(group.num_columns)}
    assert with_dictionary == {
        "few": True,
        "id": False,
        "s.few": True,
        "s.id": False,
        "l.list.element": True,
        "m.key_value.key": True,
        "m.key_value.value": True,
    }
    assert read([data_file]).to_pylist() == table.to_pylist()
    assert data_file.split_offsets == [4]
