"""``icelock convert`` on a plain table of two files, and ``--remove-plain`` after it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import icelock
from icelock.maintenance import audit, convert, remove_plain, undo_conversion
from tests.helpers.tables import ids, local
from tests.lakes.sqlite import TestLake, people
from tests.unit.cli.conftest import configure
from tests.unit.cli.test_maintain import done, run


@pytest.fixture
def table(configured_lake: TestLake) -> Any:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", people().schema, properties={"icelock.plain": "true"})
    made.append(people(0))
    made.append(people(10))
    return made


def test_it_says_what_it_would_do_and_does_it(table: Any, configured_lake: TestLake) -> None:
    sizes = [task.file.file_size_in_bytes for task in table.scan().plan_files()]
    plan = done("convert", "test.db.t", "--key-id", "keyA", "--dry-run")
    expected = {"table": "test.db.t", "key-id": "keyA", "files": 2, "bytes": sum(sizes), "added-files": 0, "snapshot-id": None}
    assert {name: plan[name] for name in expected} == expected
    assert (plan["dry-run"], len(plan["plain-files"])) == (True, 6)
    assert configured_lake.catalog().load_table("db.t").metadata == table.metadata
    result = run("convert", "db.t", "--catalog", "test", "--key-id", "keyA", "--data-key-length", "32")
    assert "test.db.t" not in result.stdout
    assert "db.t is encrypted under master key keyA: 2 data files became 2" in result.stdout
    assert "6 plain files stay on storage until --remove-plain" in result.stdout
    assert "100 %" in result.stderr
    found = configured_lake.catalog().load_table("db.t")
    assert (found.properties["encryption.data-key-length"], ids(found)) == ("32", list(range(20)))


def test_the_plain_files_are_removed_by_a_call_of_its_own(table: Any, configured_lake: TestLake) -> None:
    plain = done("convert", "test.db.t", "--key-id", "keyA")["plain-files"]
    planned = done("convert", "test.db.t", "--remove-plain", "--dry-run")
    assert (sorted(planned["files"]), planned["dry-run"]) == (sorted(plain), True)
    assert all(local(path).exists() for path in plain)
    shown = run("convert", "test.db.t", "--remove-plain").stdout
    assert "6 plain files of test.db.t removed" in shown
    assert "backups" in shown
    assert not any(local(path).exists() for path in plain)
    assert ids(configured_lake.catalog().load_table("db.t")) == list(range(20))
    assert table.metadata.format_version == 2


def test_plain_files_elsewhere_are_named_until_they_are_gone(table: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside.parquet"
    pq.write_table(people(50, 3), outside)
    table.add_files([str(outside)])
    run("convert", "test.db.t", "--key-id", "keyA")
    for _ in range(2):
        shown = run("convert", "test.db.t", "--remove-plain", code=1).stdout
        assert "1 do not lie at the table: delete those that are yours alone, and run it again" in shown
        assert "are left, until those elsewhere are gone: run it again" in shown
    outside.unlink()
    run("convert", "test.db.t", "--remove-plain")
    assert "removed already" in run("convert", "test.db.t", "--remove-plain", code=2).stderr


def test_an_empty_table_has_no_plain_files(configured_lake: TestLake) -> None:
    catalog = configured_lake.catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.t", people().schema, properties={"icelock.plain": "true"})
    assert "plain files" not in run("convert", "test.db.t", "--key-id", "keyA").stdout


def test_the_history_is_kept(table: Any, configured_lake: TestLake) -> None:
    plan = done("convert", "test.db.t", "--key-id", "keyA", "--history", "keep", "--dry-run")
    assert (plan["files"], plan["snapshots"], plan["dropped-refs"]) == (2, 2, [])
    assert "2 snapshots of it are kept" in run("convert", "test.db.t", "--key-id", "keyA", "--history", "keep").stdout
    found = configured_lake.catalog().load_table("db.t")
    assert [ids(found, snapshot_id=one.snapshot_id) for one in table.snapshots()] == [list(range(10)), list(range(20))]


def test_a_copy(table: Any, configured_lake: TestLake) -> None:
    plan = done("convert", "test.db.t", "--key-id", "keyA", "--copy-to", "test.db.copy", "--dry-run")
    assert (plan["files"], plan["copied-to"], plan["snapshot-id"]) == (2, "db.copy", None)
    shown = run("convert", "db.t", "--catalog", "test", "--key-id", "keyA", "--copy-to", "db.copy").stdout
    assert "db.t is copied to db.copy, encrypted under master key keyA: 2 data files" in shown
    catalog = configured_lake.catalog()
    assert ids(catalog.load_table("db.copy")) == list(range(20))
    assert catalog.load_table("db.t").metadata == table.metadata
    assert "already exists" in run("convert", "test.db.t", "--key-id", "keyA", "--copy-to", "test.db.copy", code=2).stderr


def test_a_copy_in_another_catalog(table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "second").mkdir()
    lake = TestLake(tmp_path / "second")
    configure(lake, "second", monkeypatch)
    second = icelock.load_catalog("second", **lake.properties())
    second.create_namespace("db")
    assert done("convert", "test.db.t", "--key-id", "keyA", "--copy-to", "second.db.copy")["copied-to"] == "db.copy"
    assert ids(second.load_table("db.copy")) == list(range(20))
    assert not table.catalog.table_exists("db.copy")


def test_wrong_input(table: Any, configured_lake: TestLake) -> None:
    assert "--key-id is missing" in run("convert", "test.db.t", code=64).stderr
    assert "steps of their own" in run("convert", "test.db.t", "--key-id", "keyA", "--remove-plain", code=64).stderr
    assert "steps of their own" in run("convert", "test.db.t", "--copy-to", "test.db.u", "--undo", code=64).stderr
    for step in ("--remove-plain", "--undo"):
        assert "test.db.t is plain: it was not converted" in run("convert", "test.db.t", step, code=2).stderr
    assert "has no table db.u" in run("convert", "test.db.u", "--key-id", "keyA", code=2).stderr
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "v1").commit()
    assert "--drop-refs" in run("convert", "test.db.t", "--key-id", "keyA", code=2).stderr
    assert done("convert", "test.db.t", "--key-id", "keyA", "--drop-refs")["dropped-refs"] == ["v1"]
    assert "encrypted already" in run("convert", "test.db.t", "--key-id", "keyA", code=2).stderr
    assert ids(configured_lake.catalog().load_table("db.t")) == list(range(20))


def test_the_way_back(table: Any, configured_lake: TestLake) -> None:
    run("convert", "test.db.t", "--key-id", "keyA")
    made = configured_lake.catalog().load_table("db.t")
    made.append(people(50, 1))
    assert "--drop-commits" in run("convert", "test.db.t", "--undo", code=2).stderr
    assert "goes with --undo" in run("convert", "test.db.t", "--drop-commits", code=64).stderr
    plan = done("convert", "test.db.t", "--undo", "--drop-commits", "--dry-run")
    assert plan["lost-snapshots"] == [made.metadata.current_snapshot_id]
    assert configured_lake.catalog().load_table("db.t").metadata == made.metadata
    assert "test.db.t is the plain table that it was" in run("convert", "test.db.t", "--undo", "--drop-commits").stdout
    back = configured_lake.catalog().load_table("db.t")
    assert (back.metadata.format_version, back.metadata.snapshots) == (2, table.metadata.snapshots)
    assert ids(back) == list(range(20))


def test_a_call_that_failed_is_gone_on_with(table: Any, configured_lake: TestLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second data file that is planned cannot be read at first."""
    monkeypatch.setattr("icelock.table.maintenance.conversion.convert_files._AT_ONCE", 1)
    last = local([task.file.file_path for task in table.scan().plan_files()][-1])
    whole, place = last.read_bytes(), str(tmp_path / "progress")
    last.write_bytes(whole[:-9])
    shown = run("convert", "test.db.t", "--key-id", "keyA", "--progress-file", place, code=2).stderr
    assert "1 finished files stay for the next call with progress file" in shown
    last.write_bytes(whole)
    assert "steps of their own" in run("convert", "test.db.t", "--progress-file", place, "--undo", code=64).stderr
    assert "is of something else: key-id" in run("convert", "test.db.t", "--key-id", "keyB", "--progress-file", place, code=2).stderr
    assert done("convert", "test.db.t", "--key-id", "keyA", "--progress-file", place, "--dry-run")["reused"] == 0
    again = run("convert", "test.db.t", "--key-id", "keyA", "--progress-file", place).stdout
    assert "2 data files became 2" in again
    assert "1 of the data files were finished by an earlier call" in again
    assert not Path(place).exists()
    assert ids(configured_lake.catalog().load_table("db.t")) == list(range(20))


NOT_TOGETHER = [
    (("--history", "keep", "--drop-refs"), "drop_refs (--drop-refs) lets them go: leave one of the two out"),
    (("--history", "refs", "--copy-to", "test.db.u"), "a copy (copy_to, --copy-to) has no history"),
    (("--copy-to", "test.secure.u"), "catalog test has no namespace secure for the copy secure.u: create it first"),
    (("--copy-to", "test.secure.u", "--dry-run"), "catalog test has no namespace secure for the copy secure.u: create it first"),
    (("--copy-to", "test.db.t"), "table db.t already exists in catalog test: give the copy another name, or drop it"),
]


@pytest.mark.parametrize(("options", "said"), NOT_TOGETHER, ids=[" ".join(options) for options, _ in NOT_TOGETHER])
def test_options_that_do_not_go_are_named_with_the_way(table: Any, configured_lake: TestLake, options: tuple[str, ...], said: str) -> None:
    result = run("convert", "test.db.t", "--key-id", "keyA", *options, code=2)
    assert said in result.stderr
    assert configured_lake.catalog().load_table("db.t").metadata == table.metadata


def test_what_is_no_table_is_refused_with_the_way_to_one(table: Any) -> None:
    for call in (convert, remove_plain, undo_conversion):
        given: Any = partial(call, key_id="keyA") if call is convert else call
        with pytest.raises(icelock.PolicyError, match=r"expected a table, got a str: catalog.load_table.'db.t'. loads one"):
            given("db.t")
    for step in (remove_plain, undo_conversion):
        with pytest.raises(icelock.PolicyError, match=r"table db.t is plain: it was not converted, or that was undone"):
            step(table)
    with pytest.raises(icelock.PolicyError, match="the audit takes a catalog and the name of a table, got a PlainTable"):
        audit(table)


def test_what_is_piped_has_paths_in_one_piece_and_whole_lines(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not 80 characters wide, where rich folds a path over lines and cuts what a tree says at its end."""
    done("convert", "test.db.t", "--key-id", "keyA")
    for columns in ("40", "80", None):  # a tree is whole in a narrow terminal, too
        monkeypatch.setenv("COLUMNS", columns) if columns else monkeypatch.delenv("COLUMNS")
        lost = [line for line in run("audit", "test.db.t").stdout.splitlines() if "master key keyA" in line]
        assert len(lost) == 1
        assert lost[0].endswith("are lost")
    alone = Path(table.metadata_location.removeprefix("file://")).parent / "00009-alone.metadata.json"
    alone.write_text("{}")
    assert any(str(alone) in line for line in run("leftovers", "test.db.t").stdout.splitlines())
