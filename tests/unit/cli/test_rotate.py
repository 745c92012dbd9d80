"""``icelock rotate`` on a table of two snapshots."""

from __future__ import annotations

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
    assert table.refresh().properties["encryption.key-id"] == "keyA"
    shown = run("rotate", "test.db.t", "--level", "wrap", "--to-key", "keyB").stdout
    assert "wrapped 1 KEKs by master key keyB instead of keyA" in shown
    assert run("rotate", "test.db.t", "--level", "kek").stdout.count("keyB") == 2
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(20))
    assert table.properties["encryption.key-id"] == "keyB"


def test_what_is_refused(table: Any) -> None:
    assert "--level" in run("rotate", "test.db.t", code=2).stderr
    assert "use level 'wrap'" in run("rotate", "test.db.t", "--level", "kek", "--to-key", "keyB", code=1).stderr
    assert "keyC" in run("rotate", "test.db.t", "--level", "wrap", "--to-key", "keyC", code=1).stderr
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
