from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from icelock.cli.main import main
from tests.lakes.sqlite import KEYED, TestLake, people


@pytest.fixture
def configured(configured_lake: TestLake) -> TestLake:
    """A table and two files that are left over."""
    lake = configured_lake
    catalog = lake.catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    for name, days in (("old", 4), ("young", 2)):
        path = Path(table.location()) / "data" / f"{name}.parquet"
        path.write_bytes(b"PARE" * 3 if name == "old" else b"PAR1" * 3)
        when = path.stat().st_mtime - days * 86_400
        os.utime(path, (when, when))
    catalog.create_table("db.plain", people().schema, properties={"icelock.plain": "true"})
    return lake


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["leftovers", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def listed(*arguments: str) -> dict[str, Any]:
    return json.loads(run("db.t", "--catalog", "test", "--json", *arguments).stdout)


def test_files_are_listed_and_nothing_is_deleted(configured: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # a narrow table folds paths
    before = configured.files()
    found = listed()
    assert [(Path(file["path"]).name, file["size"], file["kind"], file["content"]) for file in found["files"]] == [
        ("old.parquet", 12, "data", "encrypted"),
        ("young.parquet", 12, "data", "plain"),
    ]
    assert (found["deleted"], found["failed"], found["unneeded-keys"]) == (False, [], [])
    assert [Path(file["path"]).name for file in listed("--older-than", "71h")["files"]] == ["old.parquet"]
    text = run("test.db.t").stdout  # the same, by its full name
    assert "old.parquet" in text
    assert "2 files, 24 bytes" in text
    assert re.search(r"data\W+plain\W+12\W", text)
    assert "1 of them hold rows or values in plaintext" in text
    assert configured.files() == before


def test_delete_takes_those_of_three_days_unless_told_otherwise(configured: TestLake) -> None:
    before = set(configured.files())
    assert "1 files, 12 bytes deleted" in run("db.t", "--catalog", "test", "--delete").stdout
    assert before - set(configured.files()) == {"db/t/data/old.parquet"}
    assert [Path(file["path"]).name for file in listed("--delete", "--older-than", "1d")["files"]] == ["young.parquet"]
    assert listed()["files"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("db.none", "--catalog", "test"), 2, "no table db.none"),
        (("db.plain", "--catalog", "test"), 2, "not encrypted"),
        (("db.t", "--catalog", "test", "--older-than", "3"), 64, "no span of time"),
        (("db.t", "--catalog", "test", "--older-than", "-3d"), 64, "no span of time"),
    ],
)
def test_what_cannot_be_is_a_sentence(configured: TestLake, arguments: tuple[str, ...], code: int, message: str) -> None:
    before = configured.files()
    assert message in run(*arguments, code=code).stderr
    assert configured.files() == before
