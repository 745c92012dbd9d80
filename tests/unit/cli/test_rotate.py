"""``icelock rotate`` on a table of two snapshots."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.cli.test_maintain import done, run


@pytest.fixture
def table(configured_lake: TestLake) -> Any:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", people().schema, properties=KEYED)
    made.append(people(0))
    made.append(people(10))
    return made


def test_it_says_what_it_would_do_and_does_it(table: Any) -> None:
    (kek,) = {key.encrypted_by_id for key in table.metadata.encryption_keys} - {"keyA"}
    use = {"kek": kek, "master-key": "keyA", "snapshots": 2, "refs": ["main"], "for-new-snapshots": True}
    plan = done("rotate", "test.db.t", "--level", "wrap", "--to-key", "keyB", "--dry-run")
    assert {name: plan[name] for name in ("table", "level", "from-key", "to-key", "wrapped", "made", "dry-run")} == {
        "table": "test.db.t",
        "level": "wrap",
        "from-key": "keyA",
        "to-key": "keyB",
        "wrapped": [kek],
        "made": [],
        "dry-run": True,
    }
    assert [{name: one[name] for name in use} for one in plan["keks"]] == [use]
    assert plan["keks"][0]["files"] == 6, "two manifest lists, two manifests, two data files"
    assert plan["keks"][0]["bytes"] > 0
    assert table.refresh().properties["encryption.key-id"] == "keyA"
    shown = run("rotate", "test.db.t", "--level", "wrap", "--to-key", "keyB").stdout
    assert "wrapped 1 KEKs by master key keyB instead of keyA" in shown
    assert run("rotate", "test.db.t", "--level", "kek").stdout.count("keyB") == 3, "of two KEKs, and in words"
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(20))
    assert table.properties["encryption.key-id"] == "keyB"


@pytest.mark.usefixtures("table")
def test_what_a_new_kek_would_be() -> None:
    plan = done("rotate", "test.db.t", "--level", "kek", "--dry-run")
    assert (plan["made"], plan["new-keks"]) == ([], 1), "its id is not known before"
    assert done("rotate", "test.db.t", "--level", "wrap", "--dry-run")["new-keks"] == 0
    assert "would make 1 KEK under master key keyA" in run("rotate", "test.db.t", "--level", "kek", "--dry-run").stdout


def test_files_are_written_again(table: Any) -> None:
    plan = done("rotate", "test.db.t", "--level", "data", "--dry-run")
    assert (plan["rewritten-files"], plan["new-keks"], plan["kek"], plan["resumed"]) == (2, 1, None, False)
    shown = run("rotate", "test.db.t", "--level", "data", "--dry-run").stdout
    assert re.search(r"would write 2 data files \([0-9,]+ bytes\) again", shown)
    assert re.search(r"│ +6 │ +[0-9]+,", shown), "files and bytes"
    result = run("rotate", "test.db.t", "--level", "data", "--to-key", "keyB")
    assert "wrapped 1 KEKs by master key keyB instead of keyA" in result.stdout
    assert re.search(r"wrote 2 data files .* again, into 1\n", result.stdout)
    assert "100 %" in result.stderr
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(20))
    path = Path(table.inspect.data_files()["file_path"][0].as_py().removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-30] + bytes(30))
    left = run("rotate", "test.db.t", "--level", "data", code=1).stdout
    assert "1 files are left under older KEKs: run the same command again" in left
    assert "went on with the rotation under KEK" in run("rotate", "test.db.t", "--level", "data", code=1).stdout


def test_lists_are_written_again(table: Any) -> None:
    plan = done("rotate", "test.db.t", "--level", "lists", "--dry-run")
    assert (plan["rotated-snapshots"], plan["rewritten-manifests"], plan["new-keks"], plan["removed-keys"]) == (2, 2, 1, [])
    what = "the manifest lists of 2 snapshots and 2 manifests again"
    assert f"would write {what}" in run("rotate", "test.db.t", "--level", "lists", "--dry-run").stdout
    (old,) = {key.encrypted_by_id for key in table.metadata.encryption_keys} - {"keyA"}
    result = run("rotate", "test.db.t", "--level", "lists", "--to-key", "keyB")
    assert f"wrote {what}; 2 key entries are gone" in result.stdout
    assert "100 %" in result.stderr
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(20))
    assert {key.encrypted_by_id for key in table.metadata.encryption_keys if key.key_id == old} == {"keyB"}, "an expiry takes it"
    again = done("rotate", "test.db.t", "--level", "lists")
    assert old in again["removed-keys"]


def test_all_is_written_again(table: Any) -> None:
    plan = done("rotate", "test.db.t", "--level", "all", "--dry-run")
    assert (plan["rotated-snapshots"], plan["rewritten-files"], plan["new-keks"]) == (2, 2, 1), "the branch shares both with its history"
    old = {key.key_id for key in table.metadata.encryption_keys}
    result = run("rotate", "test.db.t", "--level", "all")
    assert re.search(r"wrote 2 data files .* again, into 2\nwrote the manifest lists of 2 snapshots and 2 manifests again", result.stdout)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(20))
    assert not old & {key.key_id for key in table.metadata.encryption_keys}


def test_a_namespace_is_told_from_a_table(table: Any) -> None:
    said = run("rotate", "test.db", "--level", "kek", code=2).stderr
    assert "'test.db' names the namespace db of catalog test" in said
    assert "test.db.TABLE" in said
    assert table.refresh().current_snapshot() is not None


def test_a_namespace_of_the_default_catalog_may_have_the_name_of_a_catalog(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_DEFAULT_CATALOG", "test")
    assert "names the namespace db" in run("rotate", "test.db", "--level", "kek", code=2).stderr
    table.catalog.create_namespace("test")
    table.catalog.create_table("test.db", people().schema, properties=KEYED).append(people())
    assert done("rotate", "test.db", "--level", "kek", "--dry-run")["table"] == "test.db"


def test_what_is_refused(table: Any) -> None:
    assert "--level" in run("rotate", "test.db.t", code=64).stderr
    assert "use level 'wrap'" in run("rotate", "test.db.t", "--level", "kek", "--to-key", "keyB", code=2).stderr
    assert "keyC" in run("rotate", "test.db.t", "--level", "wrap", "--to-key", "keyC", code=2).stderr
    assert table.refresh().properties["encryption.key-id"] == "keyA"


def test_names_of_others_do_not_reach_the_terminal_as_they_are(table: Any) -> None:
    """A tag's name is in metadata.json, which who writes to storage can write: it may hold a terminal's control sequences."""
    name = "\x1b]0;x\x07a\nb\u202ec\x9bd[red]"
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, name).commit()
    for arguments in (("rotate", "test.db.t", "--level", "kek", "--dry-run"), ("audit", "test.db.t", "--depth", "metadata")):
        shown = run(*arguments).stdout
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown)
        assert "[red]" in shown, arguments
        assert r"\x9b" in shown, arguments


@pytest.mark.usefixtures("table")
def test_the_how_to_leaves_one_kek() -> None:
    """docs/how-to/rotate.md: data, expire, and a look."""
    (old,) = done("rotate", "test.db.t", "--level", "wrap", "--dry-run")["keks"]
    made = done("rotate", "test.db.t", "--level", "data")
    assert len(made["keks"]) == 2
    assert done("expire", "test.db.t", "--older-than", "0h", "--retain-last", "1")["left"] == []
    (left,) = done("rotate", "test.db.t", "--level", "wrap", "--dry-run")["keks"]
    assert left["kek"] == made["kek"] != old["kek"]
    assert (left["snapshots"], left["refs"]) == (1, ["main"])
