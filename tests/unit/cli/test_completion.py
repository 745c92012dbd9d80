"""What a shell completes, and the script that makes it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from pyiceberg.utils.config import Config

from icelock.cli.completion import configured_names
from icelock.cli.main import main
from tests.lakes.sqlite import KEYED, TestLake, people

FILES = {
    "two catalogs": "catalog:\n  Lake:\n    type: sql\n  other:\n    type: rest\n",
    "in capitals": "CATALOG:\n  lake:\n    type: sql\n",
    "no catalogs": "default-catalog: lake\n",
}


def offered(*words: str) -> list[str]:
    *before, incomplete = words
    return [item.value for item in BashComplete(main, {}, "icelock", "_ICELOCK_COMPLETE").get_completions(before, incomplete)]


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_catalogs_are_those_that_pyiceberg_reads(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__BY_NAME__TYPE", "sql")
    (tmp_path / ".pyiceberg.yaml").write_text(text)
    found: Any = Config().config.get("catalog")
    assert configured_names() == sorted(found)
    assert "by-name" in configured_names()


def test_a_file_that_cannot_be_read_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: [\n")
    assert offered("head", "") == []


def test_commands_options_and_names_are_offered(configured_lake: TestLake) -> None:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    catalog.create_namespace(("db", "inner"))
    catalog.create_table("db.t", people().schema, properties=KEYED)
    assert offered("he") == ["head"]
    assert "--where" in offered("head", "test.db.t", "--")
    assert offered("rotate", "test.db.t", "--level", "l") == ["lists"]
    assert offered("head", "te") == ["test."]
    assert offered("head", "test.d") == ["test.db."]
    assert offered("head", "test.db.") == ["test.db.inner.", "test.db.t"]
    assert offered("tables", "--catalog", "te") == ["test"]
    assert offered("head", "--catalog", "test", "db.") == ["db.inner.", "db.t"]
    assert offered("head", "nothing.d") == []
    assert offered("head", "test.nowhere.") == []


def test_a_script_is_printed_for_each_shell(tmp_path: Path) -> None:
    scripts = {shell: CliRunner().invoke(main, ["completion", shell]).stdout for shell in ("bash", "fish", "zsh")}
    assert all("_ICELOCK_COMPLETE" in script for script in scripts.values())
    (tmp_path / "script").write_text(scripts["bash"])
    assert subprocess.run(["bash", "-n", str(tmp_path / "script")], check=True).returncode == 0
    assert "compopt -o nospace" in scripts["bash"], "behind a catalog's dot there is no space"
    assert "compadd -U -V unsorted -S '' -a begun" in scripts["zsh"], "likewise; looked at in zsh 5.9, and fish 3.6 puts none there"
