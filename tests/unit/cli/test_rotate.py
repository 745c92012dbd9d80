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
