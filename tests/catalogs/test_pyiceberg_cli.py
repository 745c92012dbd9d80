"""``icelock pyiceberg``: PyIceberg's own commands on encrypted tables, on each kind of catalog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from pyiceberg.exceptions import NoSuchTableError

from icelock.cli.main import main
from tests.lakes.catalogs import CatalogLake
from tests.lakes.sqlite import people

Command = Callable[..., str]
ICELOCK = ["-c", "from icelock.cli.main import main; main()", "pyiceberg"]
PYICEBERG = ["-c", "from pyiceberg.cli.console import run; run()"]


def by_hand(lake: CatalogLake, tmp_path: Path, program: list[str]) -> Command:
    """The command in a process of its own, which reads its file."""
    kind = type(lake.catalog())

    def run(*words: str, kms: bool = True, code: int = 0) -> str:
        given = {name: value for name, value in lake.properties().items() if kms or not name.startswith(("encryption.", "kms."))}
        impl = {"py-catalog-impl": f"{kind.__module__.removesuffix('.catalog')}.{kind.__name__}"}
        (tmp_path / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"test": {**given, **impl}}}))
        environment = {**os.environ, "PYICEBERG_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "1000"}
        command = [sys.executable, *program, "--catalog", "test", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def in_process(lake: CatalogLake, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same program, without a process for each command."""

    def run(*words: str, code: int = 0) -> str:
        monkeypatch.setattr("icelock.cli.pyiceberg.load_catalog", lambda *_, **__: lake.catalog())
        done = CliRunner(env={"COLUMNS": "1000"}).invoke(main, ["pyiceberg", "--catalog", "test", *words])
        assert done.exit_code == code, done.output
        return str(done.output)

    return run


@pytest.mark.turns(3)
@pytest.mark.parametrize("lake", ["sqlite", "rest", "postgres", "glue", pytest.param("hive", marks=pytest.mark.hive)], indirect=True)
def test_every_command_works_on_an_encrypted_table(lake: CatalogLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, name, pyiceberg = lake.make(rows=3, owner="us"), lake.name(), in_process(lake, monkeypatch)
    [data] = [path for path in lake.files() if path.endswith(".parquet")]
    assert name in pyiceberg("list", lake.space)
    described = json.loads(pyiceberg("--output", "json", "describe", name))
    assert described["metadata"]["properties"]["encryption.key-id"] == "keyA"
    assert "encryption.key-id" in pyiceberg("describe", name)
    assert data in pyiceberg("files", name)
    assert "city" in pyiceberg("schema", name)
    assert "[]" in pyiceberg("spec", name)
    assert pyiceberg("uuid", name).strip() == str(table.metadata.table_uuid)
    assert pyiceberg("location", name).strip() == table.location()
    assert "main" in pyiceberg("list-refs", name)
    assert pyiceberg("properties", "get", "table", name, "owner").strip() == "us"
    pyiceberg("properties", "set", "table", name, "owner", "them")
    assert lake.load().properties["owner"] == "them"
    pyiceberg("properties", "remove", "table", name, "owner")
    assert "owner" not in lake.load().properties
    refused = pyiceberg("properties", "remove", "table", name, "encryption.key-id", code=1)
    assert "cannot be removed" in refused
    pyiceberg("rename", name, lake.name("u"))
    assert sorted(lake.load("u").scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    pyiceberg("drop", "table", "--purge", lake.name("u"))
    with pytest.raises(NoSuchTableError):
        lake.load("u")
    assert lake.files() == {}


@pytest.mark.turns(2)
@pytest.mark.parametrize("lake", ["sqlite", "rest"], indirect=True)
def test_the_command_itself(lake: CatalogLake, tmp_path: Path) -> None:
    lake.make(rows=2).append(people(2, 1))
    pyiceberg, name = by_hand(lake, tmp_path, ICELOCK), lake.name()
    data = [path for path in lake.files() if path.endswith(".parquet")]
    listed = pyiceberg("files", "--history", name)
    assert len(data) == 2
    assert all(path in listed for path in data)
    pyiceberg("properties", "set", "table", name, "owner", "us")
    assert lake.load().properties["owner"] == "us"
    files = lake.files()
    refused = pyiceberg("files", name, kms=False, code=1)
    assert "no KMS is configured for catalog test: set encryption.kms-type" in refused
    assert lake.files() == files


@pytest.mark.parametrize("lake", ["sqlite"], indirect=True)
def test_pyicebergs_own_command_does_not_find_the_class_and_reads_nothing(lake: CatalogLake, tmp_path: Path) -> None:
    """A PyIceberg that looks for ``py-catalog-impl`` in its file makes ``icelock pyiceberg`` needless: then this fails."""
    lake.make(rows=2)
    assert "No schema found in Avro file headers" in by_hand(lake, tmp_path, PYICEBERG)("files", lake.name(), code=1)


def test_a_catalog_that_cannot_be_loaded_is_one_line() -> None:
    done = CliRunner(env={"PYICEBERG_HOME": "/nonexistent"}).invoke(main, ["pyiceberg", "--catalog", "nowhere", "list"])
    assert (done.exit_code, "is not in PyIceberg's configuration" in " ".join(done.output.split())) == (1, True)
    assert CliRunner().invoke(main, ["pyiceberg", "files", "--help"]).exit_code == 0, "help needs no catalog"
    assert "0.12." in CliRunner().invoke(main, ["pyiceberg", "version"]).output
