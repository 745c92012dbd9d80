"""Frames of other libraries go in as they are, and scans go out without a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from icelock.errors import PolicyError
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, TestLake, people

SCHEMA = people().schema


class Stream:
    """What only has the PyCapsule interface, as DuckDB's relations do; counts how often it is asked."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.asked = 0

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.asked += 1
        return self._rows.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "arrow batch": lambda rows: rows.to_batches()[0],
    "arrow batches": lambda rows: rows.to_batches(max_chunksize=3),
    "pandas": lambda rows: rows.to_pandas(),
    "pandas, some rows": lambda rows: pd.concat([people(-5, 5).to_pandas(), rows.to_pandas()]).query("id >= 0"),
    "polars": pl.from_arrow,
    "dicts": lambda rows: rows.to_pylist(),
    "capsule": Stream,
}


@pytest.fixture
def table(lake: TestLake) -> Any:
    return lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)


def of(lake: TestLake, *fields: tuple[str, ice.IcebergType]) -> Any:
    """Return a table with optional columns."""
    schema = Schema(*(ice.NestedField(index, name, kind, required=False) for index, (name, kind) in enumerate(fields, 1)))
    return lake.catalog().create_table("db.typed", schema, properties=KEYED)


def values(table: Any, name: str) -> list[Any]:
    found: list[Any] = table.refresh().scan().to_arrow().column(name).to_pylist()
    return found


@pytest.mark.parametrize("form", list(FORMS))
def test_rows_go_in_as_they_are(table: Any, form: str) -> None:
    """The same rows as the Arrow table's, by every way to write them."""
    make = FORMS[form]
    table.append(make(people()))
    assert table.scan().to_arrow().sort_by("id").equals(people())
    table.overwrite(make(people(20)))
    assert ids(table) == list(range(20, 30))
    result = table.upsert(make(people(25)), ["id"])
    assert (result.rows_updated, result.rows_inserted) == (0, 5)
    assert ids(table) == list(range(20, 35))
    table.overwrite(make(people(0, 2)), "id < 30")
    assert ids(table) == [0, 1, *range(30, 35)]


def test_a_stream_is_asked_once(table: Any) -> None:
    rows = Stream(people())
    table.append(rows)
    assert rows.asked == 1
    assert ids(table) == list(range(10))


def test_a_table_takes_its_own_scan(table: Any) -> None:
    """The version that is read is the scan's, so the rows double once."""
    table.append(people())
    table.append(table.scan(row_filter="id < 3"))
    assert ids(table) == [0, 0, 1, 1, 2, 2, *range(3, 10)]
    table.overwrite(table.scan(row_filter="id < 3"))
    assert ids(table) == [0, 0, 1, 1, 2, 2]


def test_a_named_index_is_data_and_is_refused(table: Any, lake: TestLake) -> None:
    frame = people().to_pandas().set_index("city")
    before = lake.files()
    with pytest.raises(PolicyError, match=r"'city' in its index, which is no column: df\.reset_index\(\)"):
        table.append(frame)
    assert lake.files() == before
    table.append(frame.reset_index())
    assert ids(table) == list(range(10))


def test_pandas_gaps_are_nulls_and_whole_numbers_stay_whole(lake: TestLake) -> None:
    table = of(lake, ("n", ice.LongType()), ("i", ice.IntegerType()), ("f", ice.DoubleType()), ("s", ice.StringType()))
    table.append(pd.DataFrame({"n": [1, None, 3], "i": [1, 2, 3], "f": [1.5, None, math.inf], "s": ["a", None, "c"]}))
    assert table.scan().to_arrow().to_pydict() == {
        "n": [1, None, 3], "i": [1, 2, 3], "f": [1.5, None, math.inf], "s": ["a", None, "c"],
    }  # fmt: skip


def test_times_of_pandas_are_kept_exactly(lake: TestLake) -> None:
    table = of(lake, ("t", ice.TimestampType()), ("z", ice.TimestamptzType()), ("d", ice.DateType()))
    times = pd.Series(["2026-01-31T12:00:00.000001", None]).astype("datetime64[ns]")
    table.append(pd.DataFrame({"t": times, "z": times.dt.tz_localize("Europe/Oslo"), "d": [date(2026, 1, 31), None]}))
    assert values(table, "t") == [datetime.fromisoformat("2026-01-31T12:00:00.000001"), None]
    assert values(table, "z") == [datetime(2026, 1, 31, 11, 0, 0, 1, tzinfo=UTC), None]
    assert values(table, "d") == [date(2026, 1, 31), None]


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("n", [1.5, None]),
        ("n", [2.0**53 + 2, None]),  # what stood there before pandas made floats cannot be known
        ("i", [2**31]),
        ("n", ["1"]),
        ("t", pd.Series(["2026-01-31T12:00:00.000000001"]).astype("datetime64[ns]")),
        ("t", pd.Series(["2026-01-31"]).astype("datetime64[us, UTC]")),
        ("z", pd.Series(["2026-01-31"]).astype("datetime64[us]")),
        ("m", [Decimal("1.234")]),
        ("m", [1.5]),
        ("s", [1]),
        ("s", [1, "a"]),
        ("x", [1]),
    ],
)
def test_values_that_would_change_are_refused(lake: TestLake, column: str, found: Any) -> None:
    kinds = {"n": ice.LongType(), "i": ice.IntegerType(), "t": ice.TimestampType(), "z": ice.TimestamptzType(), "s": ice.StringType()}
    table = of(lake, *kinds.items(), ("m", ice.DecimalType(9, 2)))
    before = lake.files()
    frame = pd.DataFrame({column: found})
    for rows in (frame, frame.to_dict("records")):
        if isinstance(rows, list) and column == "t":
            continue  # pandas' own nanoseconds are lost on the way to dicts
        with pytest.raises(PolicyError, match=f"{column!r}"):
            table.append(rows)
    assert lake.files() == before


def test_dicts_hold_every_type(lake: TestLake) -> None:
    inner = ice.StructType(
        ice.NestedField(10, "a", ice.LongType(), required=False), ice.NestedField(11, "b", ice.StringType(), required=False)
    )
    table = of(
        lake,
        ("f", ice.DoubleType()),
        ("m", ice.DecimalType(9, 2)),
        ("u", ice.UUIDType()),
        ("z", ice.TimestamptzType()),
        ("st", inner),
        ("li", ice.ListType(20, ice.LongType(), element_required=False)),
        ("ma", ice.MapType(30, ice.StringType(), 31, ice.LongType(), value_required=False)),
    )
    rows = [
        {
            "f": 1, "m": Decimal("1.5"), "u": UUID(int=7), "z": datetime(2026, 1, 31, tzinfo=UTC), "st": {"a": 1, "b": "x"},
            "li": [1, None], "ma": {"k": 1, "l": None},
        },
        dict.fromkeys(["f", "m", "u", "z", "st", "li", "ma"]),
        {"f": 2.5, "m": Decimal("-0.25"), "u": None, "z": None, "st": {"a": None, "b": "y"}, "li": [], "ma": {}},
    ]  # fmt: skip
    table.append(rows)
    table.append(pd.DataFrame(rows))
    table.append([])
    first = {**rows[0], "m": Decimal("1.50"), "ma": [("k", 1), ("l", None)]}
    last = {**rows[2], "ma": []}
    assert table.scan().to_arrow().to_pylist() == [first, rows[1], last] * 2
    for wrong in ({"ma": {"k": 1.5}}, {"ma": {"k": "1"}}, {"st": {"a": 1, "c": 2}}, {"f": 2**53 + 1}):
        with pytest.raises(PolicyError, match=next(iter(wrong))):
            table.append([wrong])
    with pytest.raises(PolicyError, match="column 'f' is in some of the rows and not in others"):
        table.append([{"f": 1.0}, {"m": None}])


@pytest.mark.parametrize(
    "read",
    [
        lambda scan: pl.DataFrame(scan)["id"].to_list(),
        lambda scan: pa.table(scan)["id"].to_pylist(),
        lambda scan: pa.RecordBatchReader.from_stream(scan).read_all()["id"].to_pylist(),
        *([lambda scan: pd.DataFrame.from_arrow(scan)["id"].tolist()] if hasattr(pd.DataFrame, "from_arrow") else []),  # from pandas 3 on
    ],
)
def test_scans_go_out_without_a_call(table: Any, read: Callable[[Any], list[int]]) -> None:
    first = table
    first.append(people())
    begin = table.current_snapshot().snapshot_id
    table.append(people(10))
    scan = table.scan(row_filter="id >= 5", selected_fields=("id",))
    assert sorted(read(scan)) == list(range(5, 20))
    assert sorted(read(scan)) == list(range(5, 20))  # each taking reads anew
    assert sorted(read(table.incremental_append_scan(from_snapshot_id_exclusive=begin))) == list(range(10, 20))
    assert sorted(read(table.changes(start_snapshot_id=begin))) == list(range(10, 20))


def test_a_scan_is_read_batch_by_batch(table: Any, lake: TestLake) -> None:
    """The second file is only opened when its rows are asked for."""
    table.append(people())
    table.append(people(10))
    reader = pa.RecordBatchReader.from_stream(table.scan())
    tasks = table.scan().scan_tasks()
    first = reader.read_next_batch()
    for path in {task.path for task in tasks}:
        lake.warehouse.joinpath(path.partition("warehouse/")[2]).unlink()
    assert first.num_rows == 10
    with pytest.raises(Exception, match=r"(?i)no such file|FileNotFound"):
        reader.read_next_batch()
