"""dbt on an encrypted lake: the project of docs/how-to/dbt.md as it stands there, and more models beside it, built twice.

Expected rows are computed by hand from the seed's. It runs in the lane ``test-dbt``: dbt is in a folder of its own (Makefile).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

import icelock
from icelock.cli.main import main
from tests.helpers.places import ROOT
from tests.helpers.spark import WARM, end_jvm, session, spark_environment
from tests.pages.blocks import read_page

pytestmark = [
    pytest.mark.spark,
    # dbt leaves its log to the garbage collector when it is called again.
    pytest.mark.filterwarnings("ignore:unclosed file .*dbt.log:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO .*dbt.log:pytest.PytestUnraisableExceptionWarning"),
]

FILES = read_page(ROOT / "docs" / "how-to" / "dbt.md").files()
MORE = Path(__file__).parent / "project"
SALES = "seeds/sales.csv"
FIRST, SECOND = datetime(2026, 1, 1, 8), datetime(2026, 1, 2, 8)  # noqa: DTZ001 - as Spark gives timestamps
CHANGED, LAST = datetime(2026, 1, 3, 8), datetime(2026, 1, 3, 9)  # noqa: DTZ001
CITIES = "select city, sales, total from lake.shop.cities order by city"
LATEST = "select id, total from lake.shop.latest order by id"
HISTORY = "select id, total, dbt_valid_from, dbt_valid_to from lake.shop.history order by id, dbt_valid_from"

Rows = Callable[[str], list[tuple[object, ...]]]


def make_project(folder: Path) -> None:
    """Write the page's project and the models beside it; make the key ring, with one more key."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(MORE, folder, dirs_exist_ok=True)
    made = CliRunner().invoke(main, ["keyring", "init", "keyring.json", "lake-key", "other-key", "--key-file", "keyring.key"])
    assert made.exit_code == 0, made.output


def run_dbt(*arguments: str) -> None:
    """Run the page's program, which finds the session that is there."""
    program = compile(FILES["run_dbt.py"], "run_dbt.py", "exec")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["run_dbt.py", *arguments])
        with pytest.raises(SystemExit) as ended:
            exec(program, {})  # noqa: S102
    assert ended.value.code == 0, Path("logs/dbt.log").read_text(encoding="utf-8")[-5000:]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rows, dict[str, list[tuple[object, ...]]]]]:
    """Build the project, change the seed, build it again, in its folder; return what runs a query, and rows of the first time."""
    folder = tmp_path_factory.mktemp("dbt")
    end_jvm()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in spark_environment(WARM).items():
            patch.setenv(name, value)
        make_project(folder)
        spark = session({"spark.sql.warehouse.dir": str(folder / "of-spark"), "spark.sql.session.timeZone": "UTC"})

        def rows(query: str) -> list[tuple[object, ...]]:
            return [tuple(row) for row in spark.sql(query).collect()]

        run_dbt("build")
        first = {query: rows(query) for query in (CITIES, LATEST, HISTORY)}
        seed = Path(SALES).read_text(encoding="utf-8").replace("2,Regensburg,20,2026-01-01 08", "2,Regensburg,25,2026-01-03 08")
        seed = seed.replace("1,Heidelberg,10,2026-01-01 08:00:00\n", "")
        Path(SALES).write_text(f"{seed}4,Regensburg,5,2026-01-03 09:00:00\n", encoding="utf-8")
        run_dbt("build")
        yield rows, first
        end_jvm()


def test_rows_of_the_first_build(built):
    _, first = built
    assert first[CITIES] == [("Heidelberg", 2, 40), ("Regensburg", 1, 20)]
    assert first[LATEST] == [(1, 10), (2, 20), (3, 30)]
    assert first[HISTORY] == [(1, 10, FIRST, None), (2, 20, FIRST, None), (3, 30, SECOND, None)]


def test_a_table_is_replaced_in_one_commit(built):
    rows, _ = built
    assert rows(CITIES) == [("Heidelberg", 1, 30), ("Regensburg", 2, 30)]
    assert rows("select count(*) from lake.shop.cities.snapshots") == [(2,)]


def test_an_incremental_model_merges_by_its_key(built):
    rows, _ = built
    assert rows(LATEST) == [(1, 10), (2, 25), (3, 30), (4, 5)]
    # The first is of a CREATE OR REPLACE, which is an overwrite, as Java's.
    assert rows("select operation from lake.shop.latest.snapshots order by committed_at") == [("overwrite",), ("overwrite",)]


def test_a_snapshot_closes_rows_and_opens_others(built):
    rows, _ = built
    assert rows(HISTORY) == [
        (1, 10, FIRST, None),
        (2, 20, FIRST, CHANGED),
        (2, 25, CHANGED, None),
        (3, 30, SECOND, None),
        (4, 5, LAST, None),
    ]
    assert "history__dbt_tmp" not in {name for _, name, _ in rows("show views in spark_catalog.default")}


def test_a_snapshot_records_that_a_row_is_gone(built):
    rows, _ = built
    assert rows("select id, total, dbt_is_deleted, dbt_valid_to is null from lake.shop.gone order by id, dbt_is_deleted, total") == [
        (1, 10, "False", False),
        (1, 10, "True", True),
        (2, 20, "False", False),
        (2, 25, "False", True),
        (3, 30, "False", True),
        (4, 5, "False", True),
    ]


def test_other_incremental_models(built):
    rows, _ = built
    assert rows("select * from lake.shop.changes order by id, changed") == [
        (1, FIRST, None),
        (2, FIRST, None),
        (2, CHANGED, "Regensburg"),
        (3, SECOND, None),
        (4, LAST, "Regensburg"),
    ]
    assert rows("select distinct partition.changed_day from lake.shop.changes.files order by 1") == [
        (date(2026, 1, 1),),
        (date(2026, 1, 2),),
        (date(2026, 1, 3),),
    ]
    assert rows("select id, total from lake.shop.parts order by id") == [(1, 10), (2, 25), (3, 30)]


def test_views_are_sparks(built):
    rows, _ = built
    assert rows("select * from spark_catalog.reports.report order by city") == [("Heidelberg", 30), ("Regensburg", 30)]


def test_properties_comments_and_failures_are_in_the_lake(built):
    rows, _ = built
    assert rows("select * from lake.shop.large_by_city order by city") == [("Heidelberg", 1), ("Regensburg", 1)]
    described = {name: (kind, comment) for name, kind, comment in rows("describe extended lake.shop.large_by_city")}
    assert described["city"] == ("string", "where it was")
    assert described["Comment"][0] == "sales of 20 and more"
    assert rows("select file_format from lake.shop.large_by_city.files") == [("AVRO",)]
    assert rows("select value_field, n_records from lake.dbt_test__audit.accepted_values_large_by_city_sales__17") == [(1, 2)]


@pytest.mark.usefixtures("built")
def test_docs_know_the_columns():
    run_dbt("docs", "generate")
    nodes = json.loads(Path("target/catalog.json").read_text(encoding="utf-8"))["nodes"]
    assert {name: column["type"] for name, column in nodes["model.shop.cities"]["columns"].items()} == {
        "city": "string",
        "sales": "long",
        "total": "long",
    }


@pytest.mark.usefixtures("built")
def test_every_table_is_encrypted_and_no_value_is_in_the_warehouse():
    catalog = icelock.load_catalog("lake", type="sql", uri="sqlite:///lake.db")
    tables = [name for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)]
    keys = {name[-1]: catalog.load_table(name).properties["encryption.key-id"] for name in tables}
    assert keys == {
        "accepted_values_large_by_city_sales__17": "lake-key",
        "changes": "lake-key",
        "cities": "lake-key",
        "gone": "lake-key",
        "history": "lake-key",
        "large_by_city": "other-key",
        "latest": "lake-key",
        "parts": "lake-key",
        "sales": "lake-key",
    }
    files = {path: path.read_bytes() for path in Path("warehouse").rglob("*") if path.is_file()}
    assert {data[:4] for path, data in files.items() if not path.name.endswith(".metadata.json")} == {b"PARE", b"AGS1"}
    assert not [path for path, data in files.items() if b"Heidelberg" in data or b"Regensburg" in data]
    assert not list(Path("of-spark").rglob("*.parquet"))
