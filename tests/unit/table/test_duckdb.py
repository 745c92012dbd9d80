"""DuckDB reads encrypted tables by a dataset: what it pushes down, and that rows are those of SQL."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

import icelock.duckdb
from icelock.errors import PolicyError
from icelock.plan.filters.of_arrow import of_arrow
from icelock.plan.filters.weaker import weaker
from icelock.table.read.dataset import ScanDataset
from icelock.table.read.pushed import PushedScan
from tests.helpers.filter_model import Model, filters, to_sql, truth
from tests.helpers.tables import ids
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


@settings(max_examples=150)
@given(model=filters())
def test_rows_are_those_of_three_valued_logic(table: Any, model: Model) -> None:
    expected = [row["id"] for row in ROWS if truth(model, row) is True]
    with duckdb.connect() as connection:
        rows = icelock.duckdb.relation(table, connection).filter(to_sql(model)).project("id").fetchall()
    assert sorted(number for (number,) in rows) == expected


@settings(max_examples=50)
@given(model=filters())
def test_what_is_pushed_down_takes_no_row_away(table: Any, model: Model) -> None:
    """Without Arrow, which would filter again: Iceberg's filter alone has every row that Arrow takes of what DuckDB hands over."""
    whole = table.scan().to_arrow()
    for expression in pushed(table, to_sql(model)):
        expected = set(whole.filter(expression)["id"].to_pylist())
        batches = PushedScan(table).batches(("id",), of_arrow(expression, whole.schema))
        assert expected <= {number for batch in batches for number in batch.column("id").to_pylist()}


class Recorded(ScanDataset):
    """A dataset that notes what it is asked for."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.asked: list[tuple[Any, Any]] = []

    def scanner(self, columns: Any = None, filter: Any = None, **hints: Any) -> Any:  # noqa: A002 - pyarrow's name
        self.asked.append((columns, filter))
        return super().scanner(columns, filter, **hints)


def pushed(table: Any, where: str) -> list[Any]:
    """Return the filters that DuckDB hands over."""
    dataset = Recorded(table)
    with duckdb.connect() as connection:
        connection.from_arrow(dataset).filter(where).fetchall()
    return [expression for _, expression in dataset.asked if expression is not None]


@pytest.mark.parametrize(
    ("where", "filtered"),
    [
        ("n > 0", "n > 0"),
        ("n in (-1, 2)", "n in (-1, 2)"),
        ("n is null", "n is null"),
        ("n is not null and s >= 'a'", "n is not null and s >= 'a'"),
        ("""s = 'a" or (n > 0'""", """s = 'a" or (n > 0'"""),
        ("d = date '2026-01-31'", "d = '2026-01-31'"),
        ("m > 0.1", "m > 0.1"),
    ],
)
def test_filters_have_words_in_iceberg(table: Any, where: str, filtered: str) -> None:
    (expression,) = pushed(table, where)
    found = ids(table, row_filter=weaker(of_arrow(expression, table.scan().to_arrow().schema), table.schema()))
    assert found == ids(table, row_filter=filtered)
    assert 0 < len(found) < len(ROWS)


def test_a_text_that_looks_like_a_filter_is_a_text() -> None:
    """A guess that Arrow does not find equal does not count."""
    schema = pa.schema({"n": pa.int64(), "s": pa.string(), "n > 1": pa.int64()})
    tricky = pc.field("s") == 'x") or (n == 1'
    found = of_arrow(tricky, schema)
    assert found is None or found.value == 'x") or (n == 1'  # type: ignore[union-attr]
    assert of_arrow(pc.field("n > 1").is_valid(), schema) is None
    assert of_arrow(pc.field("n") > pa.scalar(1, pa.int32()), schema) is None  # another type: another expression
    assert of_arrow(pc.field("n") > pc.field("n > 1"), schema) is None


def test_only_wanted_columns_and_files_are_read(two_files: Any) -> None:
    dataset = Recorded(two_files)
    upper = max(two_files.scan().plan_files(), key=lambda task: task.file.lower_bounds[1])
    Path(upper.file.file_path.removeprefix("file://")).unlink()
    with duckdb.connect() as connection:
        rows = connection.from_arrow(dataset).filter("id < 3").project("city").order("city").fetchall()
        assert rows == [("town-0",), ("town-1",), ("town-2",)]
        assert dataset.asked[-1][0] == ["city"]
        with pytest.raises(duckdb.Error, match=r"(?i)no such file"):
            connection.from_arrow(dataset).fetchall()


def test_a_scan_goes_to_duckdb_by_name(two_files: Any) -> None:
    """PyIceberg's method; the relation can be read again and again."""
    connection = two_files.scan(row_filter="id >= 5").to_duckdb("t")
    for _ in range(2):
        assert connection.sql("select count(*), min(id), max(city) from t").fetchall() == [(15, 5, "town-2")]
    joined = connection.sql("select count(*) from t a join t b on a.id = b.id + 1 where b.id < 10").fetchall()
    assert joined == [(5,)]


def test_a_relation_goes_into_a_table(two_files: Any) -> None:
    with duckdb.connect() as connection:
        two_files.append(connection.sql("select 20 + i as id, 'n' as name, null::varchar as city from range(3) r(i)"))
        two_files.append(icelock.duckdb.relation(two_files, connection).filter("id < 2"))
    assert ids(two_files) == [0, 0, 1, 1, *range(2, 23)]


@pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
def test_narwhals_frames_go_in_and_out(two_files: Any, backend: str) -> None:
    frame = nw.from_dict({"id": [100, 101], "name": ["a", "b"], "city": ["x", None]}, backend=backend)
    two_files.append(frame)
    assert two_files.upsert(frame, ["id"]).rows_updated == 0
    assert sorted(nw.from_arrow(two_files.scan(), backend=backend)["id"].to_list()) == [*range(20), 100, 101]


def test_datafusion_reads_a_dataset(two_files: Any) -> None:
    dataset = Recorded(two_files)
    session = datafusion.SessionContext()
    session.register_dataset("t", dataset)
    assert session.sql("select city from t where id in (3, 14) order by id").to_pydict() == {"city": ["town-0", "town-2"]}
    columns, expression = dataset.asked[-1]
    assert sorted(columns) == ["city", "id"]  # it sorts by id, and has no use for the name
    assert expression is not None
    assert session.sql("select count(*) as n, max(id) as m from t where name is not null").to_pydict() == {"n": [20], "m": [19]}
    assert session.sql("select count(*) as n from t").to_pydict() == {"n": [20]}


def test_arrow_s_rule_of_nan_is_arrow_s(table: Any) -> None:
    """A dataset's filter is Arrow's: NaN is not above 1, by IEEE 754."""
    found = ScanDataset(table).scanner(columns=["id"], filter=pc.field("f") > 1).to_table()["id"].to_pylist()
    assert sorted(found) == [row["id"] for row in ROWS if row["f"] is not None and not math.isnan(row["f"]) and row["f"] > 1]
    below = ~(pc.field("f") > 1)
    assert set(ScanDataset(table).to_table(filter=below)["id"].to_pylist()) == {
        row["id"] for row in ROWS if row["f"] is not None and not row["f"] > 1
    }


def test_a_dataset_is_read_by_scanners_only(two_files: Any) -> None:
    dataset = ScanDataset(two_files)
    assert dataset.count_rows() == 20
    assert dataset.head(3).num_rows == 3
    for use in (lambda: dataset.filter(pc.field("id") > 1), lambda: dataset.sort_by("id")):
        with pytest.raises(PolicyError, match="not a dataset of files"):
            use()
