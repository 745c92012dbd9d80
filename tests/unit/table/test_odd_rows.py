"""Rows and updates that no table can hold: a typed error before anything is written, whatever Arrow or PyIceberg would say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddPartitionSpecUpdate, AddSchemaUpdate
from pyiceberg.transforms import BucketTransform, HourTransform, IdentityTransform, TruncateTransform
from sqlalchemy import text

from icelock.errors import FormatError, PolicyError
from icelock.table.encryption import TableEncryption
from tests.helpers.table_model import verified
from tests.lakes.sqlite import KEYED, TestLake


def made(lake: TestLake, kind: Any, transform: Any = None, source: int = 1) -> Any:
    spec = PartitionSpec() if transform is None else PartitionSpec(PartitionField(source, 1000, transform, "p"))
    return lake.catalog().create_table("db.t", Schema(ice.NestedField(1, "v", kind, required=False)), partition_spec=spec, properties=KEYED)


def instants(*micros: int) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us"))


# An hour since 1970 is 32 bits: 2**31 hours are 244,983 years. Truncating -999.99 to tenths gives -1000.0, which has a digit more.
BEYOND: dict[str, tuple[ice.PrimitiveType, Any, pa.Array]] = {
    "hours after": (ice.TimestampType(), HourTransform(), instants(2**31 * 3_600_000_000)),
    "hours before": (ice.TimestampType(), HourTransform(), instants(-(2**31 + 1) * 3_600_000_000)),
    "decimal": (ice.DecimalType(5, 2), TruncateTransform(10), pa.array([Decimal("-999.99")], pa.decimal128(5, 2))),
    "38 digits": (ice.DecimalType(38, 0), TruncateTransform(7), pa.array([Decimal(-(10**38) + 1)], pa.decimal128(38, 0))),
}


@pytest.mark.parametrize("what", list(BEYOND))
def test_values_that_a_partition_cannot_have(lake: TestLake, what: str) -> None:
    kind, transform, values = BEYOND[what]
    table = made(lake, kind, transform)
    before = lake.files()
    with pytest.raises(PolicyError, match=r"has no partition by (hours|truncate)"):
        table.append(pa.table({"v": values}))
    assert lake.files() == before


def test_the_last_hour_that_a_partition_can_have(lake: TestLake) -> None:
    table = made(lake, ice.TimestampType(), HourTransform())
    table.append(pa.table({"v": instants((2**31 - 1) * 3_600_000_000, -(2**31) * 3_600_000_000)}))
    assert table.scan().count() == 2


def test_dates_for_timestamps_are_refused_with_a_remedy(lake: TestLake) -> None:
    with pytest.raises(
        PolicyError, match=r"column 'v' is timestamp, and the input has date32\[day\] \(a time of day is not invented: cast"
    ):
        made(lake, ice.TimestampType()).append(pa.table({"v": [date(2024, 1, 1)]}))


LATIN = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"ok\xff\xfe")])
LARGE = pa.Array.from_buffers(pa.large_string(), 1, [None, pa.py_buffer(bytes(8) + b"\2" + bytes(7)), pa.py_buffer(b"\xff\xfe")])
NO_TEXT: dict[str, pa.Array] = {
    "text": LATIN,
    "large": LARGE,
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([1, 0]), LATIN),
    "cut character": pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer("é".encode())]),
}


@pytest.mark.parametrize("transform", [None, IdentityTransform(), TruncateTransform(2), BucketTransform(3)], ids=str)
@pytest.mark.parametrize("form", list(NO_TEXT))
def test_text_that_is_no_utf8(lake: TestLake, form: str, transform: Any) -> None:
    table = made(lake, ice.StringType(), transform)
    before = lake.files()
    with pytest.raises(PolicyError, match="column 'v' has text that is not UTF-8"):
        table.append(pa.table({"v": NO_TEXT[form]}))
    assert lake.files() == before


def test_text_inside_lists_is_looked_at_too(lake: TestLake) -> None:
    table = made(lake, ice.ListType(2, ice.StringType(), element_required=False))
    with pytest.raises(PolicyError, match="not UTF-8"):
        table.append(pa.table({"v": pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), LATIN)}))
    good = LATIN.slice(0, 1)
    table.append(pa.table({"v": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), good)}))
    assert table.scan().to_arrow()["v"].to_pylist() == [["ok"]]


@pytest.mark.parametrize("transform", [IdentityTransform(), TruncateTransform(10), BucketTransform(3)], ids=str)
def test_a_partition_of_a_required_field_in_a_struct_that_is_null(lake: TestLake, transform: Any) -> None:
    """Partition fields are optional, as Java's PartitionSpec.partitionType makes them."""
    table = made(lake, ice.StructType(ice.NestedField(2, "r", ice.LongType(), required=True)), transform, source=2)
    kind = pa.struct([pa.field("r", pa.int64(), nullable=False)])
    table.append(pa.table({"v": pa.array([{"r": 1}, None], kind)}))
    assert sorted(table.scan().to_arrow()["v"].to_pylist(), key=str) == [None, {"r": 1}]
    assert table.scan(row_filter="v.r = 1").to_arrow().num_rows == 1
    assert table.scan(row_filter="v is null").to_arrow().num_rows == 1
    verified(table)


UNLOADABLE: dict[str, tuple[Any, str]] = {
    "a schema id that is taken": (
        AddSchemaUpdate(
            schema=Schema(ice.NestedField(1, "v", ice.LongType(), required=False), ice.NestedField(2, "w", ice.LongType(), required=False))
        ),
        "schema-id 0 occurs twice",
    ),
    "a partition field id twice": (
        AddPartitionSpecUpdate(
            spec=PartitionSpec(
                PartitionField(1, 1000, IdentityTransform(), "p"), PartitionField(1, 1000, IdentityTransform(), "q"), spec_id=3
            )
        ),
        "its id 1000 occurs twice",
    ),
}


@pytest.mark.parametrize("what", list(UNLOADABLE))
def test_updates_that_nobody_could_load(lake: TestLake, what: str) -> None:
    update, message = UNLOADABLE[what]
    table = made(lake, ice.LongType())
    before = lake.files()
    with pytest.raises(PolicyError, match=message):
        table.transaction()._stage((update,)).commit_transaction()
    assert lake.files() == before
    assert lake.catalog().load_table("db.t").schema() == table.schema()


MAKES: dict[str, tuple[Callable[[Any, Schema], Any], str]] = {
    "two fields of one name": (
        lambda c, s: c.create_table(
            "db.t",
            s,
            partition_spec=PartitionSpec(
                PartitionField(1, 1000, IdentityTransform(), "p"), PartitionField(1, 1001, BucketTransform(2), "p")
            ),
            properties=KEYED,
        ),
        "'p' or its id 1001 occurs twice",
    ),
    "no bucket": (
        lambda c, s: c.create_table(
            "db.t", s, partition_spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(0), "p")), properties=KEYED
        ),
        "expected a positive width",
    ),
    "bucket of a double": (
        lambda c, s: c.create_table(
            "db.t", s, partition_spec=PartitionSpec(PartitionField(2, 1000, BucketTransform(2), "p")), properties=KEYED
        ),
        "choose another transform",
    ),
    "a comment that is no text": (
        lambda c, s: c.create_table("db.t", s, properties={**KEYED, "comment": "\ud800"}),
        "half of a surrogate pair",
    ),
    "no name": (lambda c, s: c.create_table("db.", s, properties=KEYED), "is not the name of a table"),
    "None": (lambda c, s: c.create_table(None, s, properties=KEYED), "is not the name of a table"),
    "a list of properties": (lambda c, s: c.create_table("db.t", s, properties=[("encryption.key-id", "keyA")]), "give a dict"),
    "a property without a value": (lambda c, s: c.create_table("db.t", s, properties={**KEYED, "owner": None}), "'owner' is None"),
}


@pytest.mark.parametrize("what", list(MAKES))
def test_tables_that_nobody_could_load_or_name(lake: TestLake, what: str) -> None:
    make, message = MAKES[what]
    catalog = lake.catalog()
    with pytest.raises(PolicyError, match=message):
        make(
            catalog,
            Schema(ice.NestedField(1, "v", ice.LongType(), required=False), ice.NestedField(2, "x", ice.DoubleType(), required=False)),
        )
    assert catalog.list_tables("db") == []
    assert not lake.warehouse.exists() or lake.files() == {}


@pytest.mark.parametrize("now", [-1, -(10**12), 253_402_300_800_000])
def test_a_clock_that_is_no_time_makes_no_table(now: int) -> None:
    """Before 1970 and after 9999 (253402300800 s, by arithmetic) there are no times in metadata."""
    with pytest.raises(PolicyError, match="the clock of this machine says"):
        TableEncryption({}, owner="catalog c", kms=None, clock=lambda: now).clock()


@pytest.mark.parametrize("value", [b"abc", b"\xff", ""])
def test_a_row_of_the_database_that_names_no_file(lake: TestLake, value: object) -> None:
    table = made(lake, ice.LongType())
    catalog = lake.catalog()
    with catalog.engine.begin() as connection:
        connection.execute(text("update iceberg_tables set metadata_location = :value"), {"value": value})
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(pa.table({"v": [1]}))):
        with pytest.raises(FormatError, match=r"the row of table db\.t in the catalog's database is damaged: its metadata_location is"):
            use()
