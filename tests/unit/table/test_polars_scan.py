"""``icelock.polars.scan``: what Polars pushes down, and that its rows are Polars' own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

import icelock.polars
from icelock.errors import IntegrityError, PolicyError
from icelock.plan.filters.of_polars import of_polars
from icelock.plan.filters.weaker import weaker
from icelock.table.read.pushed import PushedScan
from tests.helpers.filter_model import Model, filters, to_polars, truth
from tests.lakes.filtered import ROWS, filtered_table
from tests.lakes.sqlite import KEYED, TestLake, people


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return filtered_table(tmp_path_factory.mktemp("lake"))


@pytest.fixture
def two_files(lake: TestLake) -> Any:
    """Ids 0 to 9 in one file, 10 to 19 in another."""
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    made.append(people())
    made.append(people(10))
    return made


def files(table: Any) -> list[Path]:
    """The data files, the one of lower ids first."""
    by_id = sorted(table.scan().plan_files(), key=lambda task: task.file.lower_bounds[1])
    return [Path(task.file.file_path.removeprefix("file://")) for task in by_id]


@settings(max_examples=150)
@given(model=filters())
def test_rows_are_those_of_three_valued_logic(table: Any, model: Model) -> None:
    expected = [row["id"] for row in ROWS if truth(model, row) is True]
    lazy = icelock.polars.scan(table).filter(to_polars(model)).select("id")
    assert sorted(lazy.collect()["id"].to_list()) == expected


@settings(max_examples=100)
@given(model=filters())
def test_what_is_pushed_down_takes_no_row_away(table: Any, model: Model) -> None:
    """Without Polars, which would filter again: Iceberg's filter alone has every row that the logic takes."""
    expected = {row["id"] for row in ROWS if truth(model, row) is True}
    batches = PushedScan(table).batches(("id",), of_polars(to_polars(model)))
    assert expected <= {number for batch in batches for number in batch.column("id").to_pylist()}


@pytest.mark.parametrize(
    ("predicate", "filtered"),
    [
        (pl.col("n") > 5, "n > 5"),
        (~(pl.col("n") > 5), "n <= 5"),
        (pl.lit(5) >= pl.col("n"), "n <= 5"),
        (pl.col("n").is_between(1, 3, closed="left"), "n >= 1 and n < 3"),
        (pl.col("s").is_in(["a", "b"]), "s in ('a', 'b')"),
        (pl.col("s").str.starts_with("a"), "s like 'a%'"),
        (pl.col("n").is_not_null() & (pl.col("s").str.len_chars() == 1), "n is not null"),
        (pl.col("d") >= pl.date(2026, 1, 31), "d >= '2026-01-31'"),
        (pl.col("b"), "b = true"),
    ],
)
def test_predicates_have_words_in_iceberg(table: Any, predicate: pl.Expr, filtered: str) -> None:
    """What Polars hands over after its own rewriting is more than "always true"; ids by Iceberg's own filter."""
    told: list[Any] = []
    schema = icelock.polars.scan(table).collect_schema()
    source = pl.io.plugins.register_io_source(lambda _c, given, _n, _b: told.append(given) or iter(()), schema=schema)  # type: ignore[func-returns-value]
    source.filter(predicate).collect()
    pushed = weaker(of_polars(told[0]), table.schema())
    found = table.scan(row_filter=pushed, selected_fields=("id",)).to_arrow()["id"].to_pylist()
    assert sorted(found) == sorted(table.scan(row_filter=filtered, selected_fields=("id",)).to_arrow()["id"].to_pylist())
    assert 0 < len(found) < len(ROWS)


@pytest.mark.parametrize(
    ("predicate", "lacking"),
    [
        (pl.lit(0) < pl.col("n"), {-1, 0}),  # Polars turns it round before it hands it over, this version at least
        (pl.lit(0) >= pl.col("n"), {1, 2**40}),
        (pl.col("f") > 0.0, set()),
        (~(pl.col("f") <= 0.0), set()),
    ],
)
def test_nan_is_kept_and_sides_are_turned(table: Any, predicate: pl.Expr, lacking: set[int]) -> None:
    """By Iceberg's filter alone: NaN is above every number for Polars."""
    found = [row for batch in PushedScan(table).batches(None, of_polars(predicate)) for row in batch.to_pylist()]
    assert {-1, 0, 1, 2**40} - {row["n"] for row in found} == lacking
    if not lacking:
        assert {math.isnan(row["f"]) or row["f"] > 0 for row in found} == {True}
        assert any(math.isnan(row["f"]) for row in found)


@pytest.mark.parametrize(
    "predicate",
    [pl.col("n") + 1 > 3, pl.col("n") > pl.col("id"), pl.col("n").eq_missing(None), pl.col("s").is_in([None], nulls_equal=True)],
)
def test_what_has_no_word_stays_with_polars(table: Any, predicate: pl.Expr) -> None:
    frame = pl.from_arrow(table.scan().to_arrow())
    assert isinstance(frame, pl.DataFrame)
    expected = sorted(frame.filter(predicate)["id"].to_list())
    assert sorted(icelock.polars.scan(table).filter(predicate).collect()["id"].to_list()) == expected


def test_files_without_matching_rows_are_not_opened(two_files: Any) -> None:
    files(two_files)[1].unlink()
    lazy = icelock.polars.scan(two_files)
    assert lazy.filter(pl.col("id") < 10).collect().height == 10
    assert lazy.head(0).collect().height == 0
    with pytest.raises(FileNotFoundError):
        lazy.collect()


def test_a_limit_opens_no_more_files_than_it_needs(two_files: Any) -> None:
    first = next(iter(two_files.scan().iter_tasks())).path
    for path in files(two_files):
        if not first.endswith(path.name):
            path.unlink()
    assert icelock.polars.scan(two_files).head(10).collect().height == 10
    with pytest.raises(FileNotFoundError):
        icelock.polars.scan(two_files).head(11).collect()


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_only_wanted_columns_are_read(two_files: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    batches = PushedScan.batches

    def recorded(self: PushedScan, columns: Any, *rest: Any) -> Any:
        asked.append(columns)
        return batches(self, columns, *rest)

    monkeypatch.setattr(PushedScan, "batches", recorded)
    lazy = icelock.polars.scan(two_files)
    assert sorted(lazy.select("city", "id").filter(pl.col("id") > 17).collect(engine=engine).rows()) == [("town-0", 18), ("town-1", 19)]
    assert sorted(asked.pop()) == ["city", "id"]
    assert lazy.select(pl.len()).collect(engine=engine).item() == 20
    assert len(asked.pop()) == 1


def test_a_scan_s_own_filter_columns_and_limit_hold(two_files: Any) -> None:
    scan = two_files.scan(row_filter="ID >= 5", selected_fields=("NAME", "id"), case_sensitive=False)
    lazy = icelock.polars.scan(scan)
    assert lazy.collect_schema().names() == two_files.scan(selected_fields=("name", "id")).to_arrow().schema.names
    assert sorted(lazy.filter(pl.col("id") < 8).collect()["id"].to_list()) == [5, 6, 7]
    limited = icelock.polars.scan(two_files.scan(limit=12))
    assert limited.collect().height == 12
    first = set(two_files.scan(limit=12).to_arrow()["id"].to_pylist())
    assert set(limited.collect()["id"].to_list()) == first
    later = [number for number in range(20) if number not in first]  # a filter does not bring later rows in
    assert limited.filter(pl.col("id").is_in(later)).collect().height == 0
    assert icelock.polars.scan(two_files).head(12).filter(pl.col("id").is_in(later)).collect().height == 0
    assert icelock.polars.scan(two_files.scan(selected_fields=("id", "_pos"))).collect()["_pos"].sort().to_list() == sorted(
        [*range(10)] * 2
    )


def test_the_version_is_that_of_the_call(two_files: Any) -> None:
    before = icelock.polars.scan(two_files)
    two_files.append(people(20))
    assert before.collect().height == 20
    assert icelock.polars.scan(two_files).collect().height == 30
    assert two_files.to_polars().filter(pl.col("id") > 25).collect().height == 4


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_icelock_s_errors_come_out_as_they_are(two_files: Any, engine: Any) -> None:
    path = files(two_files)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError):
        icelock.polars.scan(two_files).collect(engine=engine)


@pytest.mark.parametrize("source", [None, people()])
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(PolicyError, match="expected a table, or a scan of one"):
        icelock.polars.scan(source)


def test_a_scan_of_appended_rows_is_refused(two_files: Any) -> None:
    with pytest.raises(PolicyError, match="take as they are"):
        icelock.polars.scan(two_files.incremental_append_scan())
