"""Java data files with what golden tables lack: small pages with a page index, a bloom filter, data pages of version 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, IsNull, LessThan
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType, StructType

from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.plan.task import ScanTask
from tests.unit.arrow.support import context, opt, read, task

FILES = Path(__file__).parent / "java"
SCHEMA = Schema(
    opt(1, "id", LongType()),
    opt(2, "s", StringType()),
    opt(3, "d", DoubleType()),
    opt(4, "st", StructType(opt(5, "a", IntegerType()), opt(6, "b", StringType()))),
)


def _row(i: int) -> dict[str, Any]:
    """As README.md says; worked out here, not by Java."""
    return {
        "id": i,
        "s": f"s{i % 1000}",
        "d": None if i % 10 == 0 else i / 4,
        "st": None if i % 7 == 0 else {"a": i, "b": str(i % 3)},
    }


def _task(name: str) -> ScanTask:
    key = json.loads((FILES / "keys.json").read_text(encoding="utf-8"))[name]
    return task(FILES / f"{name}.parquet", key=KeyMetadata.decode(bytes.fromhex(key)))


@pytest.mark.parametrize(("name", "count"), [("pages", 20_000), ("bloom", 1000)])
def test_all_rows_come_out(name: str, count: int):
    """Cases C-22 and C-23."""
    assert read(context(SCHEMA), _task(name)).to_pylist() == [_row(i) for i in range(count)]


@pytest.mark.parametrize(
    ("row_filter", "wanted"),
    [
        (LessThan("id", 300), range(300)),
        (And(GreaterThanOrEqual("id", 9900), LessThan("id", 10_100)), range(9900, 10_100)),
        (GreaterThanOrEqual("id", 19_990), range(19_990, 20_000)),
        (EqualTo("s", "s777"), range(777, 20_000, 1000)),
        (And(IsNull("st"), IsNull("d")), range(0, 20_000, 70)),
        (And(EqualTo("st.b", "2"), LessThan("d", 10.0)), [i for i in range(40) if i % 3 == 2 and i % 10 and i % 7]),
    ],
)
def test_a_selective_read_of_a_file_with_page_index_gives_the_rows_of_a_full_one(row_filter: BooleanExpression, wanted: range):
    """Case C-23: first, middle and last page; one column."""
    scan = context(SCHEMA.select("id"), row_filter, table_schema=SCHEMA)
    assert read(scan, _task("pages")).column("id").to_pylist() == list(wanted)


def test_a_file_with_a_bloom_filter_can_be_filtered_on_its_column():
    """Case C-22."""
    assert read(context(SCHEMA, EqualTo("s", "s321")), _task("bloom")).to_pylist() == [_row(321)]


def test_data_pages_of_version_2_are_refused_with_the_reason():
    """Case C-24."""
    with pytest.raises(
        IntegrityError, match=r"pagev2\.parquet .*data pages of version 2 \(write\.parquet\.page-version=v2\).*rewrite it with v1"
    ):
        read(context(SCHEMA), _task("pagev2"))
