"""``icelock compact``, ``rewrite-deletes``, ``rewrite-manifests``, ``expire``: what they do to a table of 60 rows in six files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner

from icelock.cli.main import main
from tests.lakes.sqlite import KEYED, TestLake, people

MOR = {"write.delete.mode": "merge-on-read"}


@pytest.fixture
def table(configured_lake: TestLake) -> Any:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", people().schema, properties={**KEYED, **MOR})
    for start in range(0, 60, 10):
        made.append(people(start))
    catalog.create_table("db.plain", people().schema, properties={"icelock.plain": "true"})
    return made


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def done(*arguments: str) -> dict[str, Any]:
    return json.loads(run(*arguments, "--json").stdout)


def test_compact_says_what_it_would_do_and_does_it(table: Any) -> None:
    expected = {"table": "test.db.t", "groups": 1, "rewritten-files": 6, "added-files": 1, "dry-run": True, "snapshots": []}
    found = done("compact", "test.db.t", "--dry-run")
    assert {name: found[name] for name in expected} == expected
    assert len(table.refresh().inspect.data_files()) == 6
    result = run("compact", "test.db.t", "--sort-by", "id desc", "--option", "min-input-files=2")
    assert re.search(r"rewritten files\s+│?\s*6\b", result.stdout)
    assert "100 %" in result.stderr, "how far it is, as lines where no terminal is"
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == list(range(59, -1, -1))
    assert done("compact", "db.t", "--catalog", "test")["rewritten-files"] == 0, "nothing is left to do"


@pytest.mark.usefixtures("table")
def test_a_dry_run_prints_no_number_that_it_does_not_know() -> None:
    """The old files that an expiry will delete, and the size of new ones, are told afterwards."""
    shown = run("compact", "test.db.t", "--dry-run").stdout
    assert re.search(r"rewritten files\s+│?\s*6\b", shown)
    assert not re.search(r"\b0\b|snapshots|none", shown), shown
    assert "deleted" not in run("expire", "test.db.t", "--older-than", "0s", "--dry-run").stdout
    assert "nothing to do" in run("rewrite-deletes", "test.db.t", "--dry-run").stdout
    assert re.search(r"removed delete files\s+│?\s*0\b", run("rewrite-deletes", "test.db.t").stdout), "what was done is said whole"


def test_compact_of_what_a_filter_takes(table: Any) -> None:
    found = done("compact", "test.db.t", "--where", "id >= 40", "--option", "min-input-files=2", "--z-order-by", "id,name", "--dry-run")
    assert (found["rewritten-files"], found["added-files"]) == (2, 1)
    table.manage_snapshots().create_branch(table.snapshots()[1].snapshot_id, "side").commit()
    assert done("compact", "test.db.t", "--branch", "side", "--option", "rewrite-all=true")["rewritten-files"] == 2


def test_deletes_manifests_and_snapshots(table: Any) -> None:
    table.delete("id = 3")
    assert done("rewrite-deletes", "test.db.t", "--into", "data", "--dry-run")["rewritten-files"] == 1
    found = done("rewrite-deletes", "test.db.t", "--into", "data")
    assert (found["rewritten-files"], found["added-files"], found["removed-delete-files"]) == (1, 1, 1)
    assert done("rewrite-manifests", "test.db.t", "--dry-run")["created"] == 1
    assert done("rewrite-manifests", "test.db.t")["created"] == 1
    assert len(table.refresh().inspect.manifests()) == 1
    numbers = sorted(snapshot.snapshot_id for snapshot in table.snapshots())
    current = table.current_snapshot().snapshot_id
    gone = [number for number in numbers if number != current]
    assert done("expire", "test.db.t")["snapshots"] == [], "by the table's own settings: five days"
    assert len(done("expire", "test.db.t", "--older-than", "0s", "--retain-last", "3", "--dry-run")["snapshots"]) == len(numbers) - 3
    assert done("expire", "test.db.t", "--older-than", "0s", "--dry-run")["snapshots"] == gone
    assert [snapshot.snapshot_id for snapshot in table.refresh().snapshots()] != [current]
    found = done("expire", "test.db.t", "--older-than", "0s", "--drop-unreadable")
    assert (found["snapshots"], found["left"], found["dry-run"]) == (gone, [], False)
    assert found["deleted"] == len(found["files"]) > 0
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [n for n in range(60) if n != 3]
    left = done("leftovers", "test.db.t")
    assert (left["table"], left["unneeded-keys"]) == ("test.db.t", [])


def test_one_snapshot_by_its_id(table: Any) -> None:
    first, *_, last = [snapshot.snapshot_id for snapshot in table.snapshots()]
    assert done("expire", "test.db.t", "--id", str(first))["snapshots"] == [first]
    assert "cannot expire: 'main' names it" in run("expire", "test.db.t", "--id", str(last), code=2).stderr
    assert "has no snapshot 5;" in run("expire", "test.db.t", "--id", "5", code=2).stderr


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("compact", "test.db.none"), 2, "catalog test has no table db.none"),
        (("compact", "test.db.plain"), 2, "not encrypted"),
        (("compact", "tset.db.t"), 2, "did you mean 'test'?"),
        (("expire", "t", "--catalog", "test"), 2, "not the name of a table"),
        (("compact", "test.db.t", "--option", "rewrite-all"), 64, "not NAME=VALUE"),
        (("compact", "test.db.t", "--option", "rewrite-al=true"), 2, "no option 'rewrite-al'"),
        (("compact", "test.db.t", "--z-order-by", "id,,name"), 64, "commas between"),
        (("compact", "test.db.t", "--sort-by", "id", "--z-order-by", "id"), 2, "not both"),
        (("rewrite-deletes", "test.db.t", "--into", "air"), 64, "air"),
        (("rewrite-manifests", "test.db.t", "--branch", "none"), 2, "no branch 'none'"),
        (("expire", "test.db.t", "--older-than", "7"), 64, "no span of time"),
        (("expire", "test.db.t", "--retain-last", "0"), 64, "--retain-last"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_changes_nothing(
    configured_lake: TestLake, table: Any, arguments: tuple[str, ...], code: int, message: str
) -> None:
    del table
    before = configured_lake.files()
    assert message in run(*arguments, code=code).stderr
    assert configured_lake.files() == before


def test_files_that_are_left_end_with_exit_code_1(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expiry that storage does not let delete."""
    del table
    monkeypatch.setattr("icelock.table.maintenance.removal.expire.delete_files", lambda _io, files: list(files))
    found = json.loads(run("expire", "test.db.t", "--older-than", "0s", "--json", code=1).stdout)
    assert found["deleted"] == 0
    assert found["left"]
