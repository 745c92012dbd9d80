"""``icelock optimize``: a table, a namespace, a catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from icelock.cli.main import main
from tests.lakes.sqlite import KEYED, TestLake, people


@pytest.fixture
def tables(configured_lake: TestLake) -> dict[str, Any]:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    made = {}
    for name in ("db.a", "db.b"):
        made[name] = catalog.create_table(name, people().schema, properties=KEYED)
        for start in range(0, 50, 10):
            made[name].append(people(start))
    return made


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["optimize", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_a_dry_run_says_and_a_run_does(tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    found = json.loads(run("test.db.a", "--dry-run", "--json").stdout)
    assert [(table["table"], table["dry-run"], table["failed"]) for table in found] == [("db.a", True, False)]
    compact = found[0]["steps"][0]
    assert (compact["name"], compact["outcome"], compact["result"]) == ("compact", "would be done", None)
    assert compact["found"].startswith("5 data files of ")
    result = run("test.db")
    assert "db.a: compact: done" in result.stderr
    assert "2 tables" in result.stdout
    for table in tables.values():
        assert len(table.refresh().inspect.data_files()) == 1
    done = json.loads(run("db", "--catalog", "test", "--json", "--option", "expire=false", "--within", "2h").stdout)
    assert [step["outcome"] for step in done[0]["steps"]] == [*["nothing to do"] * 3, "switched off", *["nothing to do"] * 2]


def test_one_that_fails_is_exit_code_1_and_the_others_are_done(tables: dict[str, Any]) -> None:
    Path(tables["db.a"].metadata_location.removeprefix("file://")).write_bytes(b"{}")
    done = json.loads(run("test", "--json", code=1).stdout)
    assert [(table["table"], table["failed"]) for table in done] == [("db.a", True), ("db.b", False)]
    assert done[1]["steps"][0]["result"]["rewritten-files"] == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("test.none",), 2, "no table and no namespace none"),
        (("tset",), 2, "did you mean 'test'?"),
        (("test.db", "--option", "compct=false"), 2, "did you mean 'compact'?"),
        (("test.db", "--within", "soon"), 64, "no span of time"),
    ],
)
def test_what_cannot_be_is_a_sentence(tables: dict[str, Any], arguments: tuple[str, ...], code: int, message: str) -> None:
    assert message in run(*arguments, code=code).stderr
    assert len(tables["db.b"].refresh().inspect.data_files()) == 5
