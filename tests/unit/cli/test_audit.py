"""``icelock audit``: exit codes, the JSON of the documented schema, and no key bytes."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from icelock.cli.main import main
from tests.lakes.sqlite import KEYED, TestLake, people

SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "audit.schema.json"


@pytest.fixture
def table(configured_lake: TestLake) -> Any:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.[red]t", people().schema, properties=KEYED)
    table.append(people())
    return table


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["audit", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_a_sound_table(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run("test.db.[red]t", "--depth", "bytes", "--depth", "foreign").stdout
    assert "db.[red]t: sound (bytes, foreign; all snapshots; " in shown
    assert "master key keyA: 1 snapshots (main); without it 3 files" in shown
    assert "KEK " in shown
    assert f"snapshot {table.refresh().current_snapshot().snapshot_id} (main)" in shown
    assert "catalog agrees, hash agrees" in shown
    assert run("db.[red]t", "--catalog", "test", "--depth", "metadata").stdout.startswith("db.[red]t: sound (metadata; all")


def test_findings_are_exit_code_1_and_json_has_the_documented_form(table: Any) -> None:
    (Path(table.location().removeprefix("file://")) / "x.csv").write_text("a")
    found = json.loads(run("test", "--depth", "foreign", "--json", code=1).stdout)
    assert found["schema"] == "icelock-audit/1"
    assert [finding["code"] for finding in found["tables"][0]["findings"]] == ["plain-object"]
    check(found, json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_the_page(table: Any, tmp_path: Path) -> None:
    del table
    run("test.db", "--html", str(tmp_path / "a.html"))
    assert "<bdi>db.[red]t</bdi>" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "cannot be written" in run("test.db", "--html", str(tmp_path / "no" / "a.html"), code=2).stderr


@pytest.mark.parametrize("shown", [[], ["--json"]], ids=["text", "json"])
def test_a_report_that_cannot_be_printed_is_exit_code_2(table: Any, shown: list[str]) -> None:
    """It was 1, which says that something is wrong with the table. The device is full as a disk is (Linux)."""
    del table
    command = [sys.executable, "-m", "icelock", "audit", "test.db", *shown]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "No space left on device" in done.stderr) == (2, True)


def test_a_page_that_cannot_be_written_leaves_the_one_before_whole(table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del table
    page = tmp_path / "a.html"
    page.write_text("of yesterday")
    write = Path.write_text

    def full(path: Path, data: str, **more: Any) -> int:
        write(path, data[:100], **more)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        assert "cannot be written: No space left on device" in run("test.db", "--html", str(page), code=2).stderr
    assert {path.name: path.read_text() for path in tmp_path.glob("*.html*")} == {"a.html": "of yesterday"}
    page.chmod(0o600)
    (tmp_path / "link.html").symlink_to(page)
    run("test.db", "--html", str(tmp_path / "link.html"))
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert {path.name for path in tmp_path.glob("*.html*")} | {path.name for path in tmp_path.glob(".*")} == {"a.html", "link.html"}
    assert stat.S_IMODE(page.stat().st_mode) == 0o600, "who may read it"
    run("test.db", "--html", "/dev/null")
    assert not Path("/dev/null").is_file()


def test_what_could_not_be_looked_at_is_exit_code_2(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    del table
    assert "no table and no namespace db.nix" in run("test.db.nix", code=2).stderr
    assert "catalog nix is not in PyIceberg's configuration" in run("db.t", "--catalog", "nix", code=2).stderr
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__URI", "sqlite:////nowhere/at/all.db")
    assert "OperationalError" in run("test.db.t", code=2).stderr


def test_a_configuration_that_cannot_be_read_is_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text("a: [")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "correct the file" in run("db.t", code=2).stderr


def check(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, where: str = "$") -> None:
    """Check a value against the part of JSON Schema that the file uses; anything else in it is an error."""
    root = root or schema
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    known = {"type", "properties", "required", "additionalProperties", "items", "enum", "const"}
    assert not schema.keys() - known - {"$schema", "$id", "$defs", "title", "description"}, (where, schema.keys())
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}
    if "type" in schema:
        wanted = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        assert any(isinstance(value, kinds[one]) and (one == "boolean" or not isinstance(value, bool)) for one in wanted), (where, value)
    assert value in schema.get("enum", [value]), (where, value)
    assert value == schema.get("const", value), (where, value)
    if isinstance(value, dict):
        assert not set(schema.get("required", ())) - value.keys(), where
        more = schema.get("additionalProperties", True)
        for name, one in value.items():
            part = schema.get("properties", {}).get(name, more)
            assert part is not False, f"{where}.{name} is not in the schema"
            check(one, part if isinstance(part, dict) else {}, root, f"{where}.{name}")
    for number, one in enumerate(value if isinstance(value, list) else ()):
        check(one, schema.get("items", {}), root, f"{where}[{number}]")
