"""A plain table becomes an encrypted one in each kind of catalog, with what that keeps of encrypted tables set by the same commit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from icelock.errors import IcelockError, IntegrityError, PolicyError
from icelock.maintenance import audit, convert, leftovers, remove_plain, undo_conversion
from tests.catalogs.conftest import KINDS
from tests.helpers.tables import ids, local
from tests.lakes.catalogs import QUICK, CatalogLake, MemoryLake
from tests.lakes.mixed import ALLOW, keyed_metadata
from tests.lakes.sqlite import people

pytestmark = pytest.mark.turns(3)
PLAIN = {"icelock.plain": "true"}
CONVERTING = pytest.mark.parametrize("lake", [kind for kind in KINDS if kind != "rest"], indirect=True)
# A server is trusted with metadata, and nobody else sees a catalog in memory.
KEEPING = pytest.mark.parametrize("lake", [kind for kind in KINDS if kind not in ("rest", "in-memory")], indirect=True)


def make_plain(lake: CatalogLake, version: str = "2") -> Any:
    """A table of two data files, from which one row was deleted."""
    made = lake.catalog().create_table(lake.name(), people().schema, properties={**PLAIN, **QUICK, "format-version": version})
    made.append(people(0, 10))
    made.append(people(10, 5))
    made.delete("id = 3")
    return made


@CONVERTING
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_plain_table_becomes_encrypted(lake: CatalogLake, version: str) -> None:
    made = make_plain(lake, version)
    plain, there = made.metadata, set(lake.files())
    done = convert(lake.load(), key_id="keyA")
    assert (done.files, done.added_files, done.rounds, done.dropped_refs) == (2, 2, 1, ())
    table = lake.load()
    assert ids(table) == [number for number in range(15) if number != 3]
    metadata = table.metadata
    assert metadata.format_version == 3
    assert metadata.table_uuid == plain.table_uuid
    assert (metadata.location, metadata.schemas, metadata.partition_specs) == (plain.location, plain.schemas, plain.partition_specs)
    digest = hashlib.sha256(local(made.metadata_location).read_bytes()).hexdigest()
    own = {"encryption.key-id": "keyA", "icelock.converted-from": f"{made.metadata_location} sha256:{digest}"}
    assert metadata.properties == {**plain.properties, **own}
    assert [snapshot.snapshot_id for snapshot in metadata.snapshots] == [done.snapshot_id]
    assert {name: ref.snapshot_id for name, ref in metadata.refs.items()} == {"main": done.snapshot_id}
    # nothing plain is reached, and what the catalog keeps agrees
    (report,) = audit(lake.catalog(), lake.name(), depth=["bytes", "foreign"]).tables
    assert set(report.counts) == {"plain-object-of-conversion"}
    assert report.objects["plain, reached"].files == 0
    assert "differs" not in report.statements.values()
    # all of the plain table is still there, and is not left over
    assert there <= set(lake.files())
    assert leftovers(table).files == ()
    # it goes on as an encrypted one
    table.append(people(100, 2))
    assert ids(lake.load())[-2:] == [100, 101]


@KEEPING
def test_what_the_catalog_keeps_refuses_the_plain_version_afterwards(lake: CatalogLake) -> None:
    """C-15: nobody gets the table back to plain by the pointer or by the file."""
    made = make_plain(lake)
    before = made.metadata_location
    convert(lake.load(), key_id="keyA")
    lake.point_at(before)
    fresh = lake.catalog()
    with pytest.raises(IntegrityError, match=r"encryption\.key-id|no longer encrypted"):
        fresh.load_table(lake.name())


@CONVERTING
def test_a_call_that_failed_is_gone_on_with(lake: CatalogLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two data files cannot be read at first; what the catalog keeps is as after a conversion in one call."""
    monkeypatch.setattr("icelock.table.maintenance.conversion.convert_files._AT_ONCE", 1)
    made, place = make_plain(lake), tmp_path / "progress"
    last = local([task.file.file_path for task in made.scan().plan_files()][-1])
    whole = last.read_bytes()
    last.write_bytes(whole[:-9])
    with pytest.raises(IcelockError):
        convert(lake.load(), key_id="keyA", progress_file=place)
    last.write_bytes(whole)
    assert ids(lake.load()) == [number for number in range(15) if number != 3]
    done = convert(lake.load(), key_id="keyA", progress_file=place)
    assert (done.files, done.added_files, done.reused, place.exists()) == (2, 2, 1, False)
    table = lake.load()
    assert ids(table) == [number for number in range(15) if number != 3]
    (report,) = audit(lake.catalog(), lake.name(), depth=["bytes", "foreign"]).tables
    assert set(report.counts) == {"plain-object-of-conversion"}
    assert leftovers(table).files == ()


@CONVERTING
def test_a_writer_that_began_on_the_plain_table_is_refused(lake: CatalogLake) -> None:
    writer = make_plain(lake)
    begun = writer.transaction()
    begun.append(people(50, 1))
    other = lake.catalog(**{"icelock.require-encryption": "false"}).load_table(lake.name()).transaction()
    other.append(people(60, 1))
    convert(lake.load(), key_id="keyA")
    for late in (begun, other):
        with pytest.raises((CommitFailedException, PolicyError, IntegrityError)):
            late.commit_transaction()
    assert ids(lake.load()) == [number for number in range(15) if number != 3]
    (report,) = audit(lake.catalog(), lake.name(), depth="bytes").tables
    assert report.counts == {}


@CONVERTING
def test_the_plain_files_go_by_a_second_step(lake: CatalogLake) -> None:
    make_plain(lake)
    done = convert(lake.load(), key_id="keyA")
    table = lake.load()
    planned = remove_plain(table, dry_run=True)
    assert set(planned.files) == set(done.plain_files)
    # three data files, one of which was deleted from; a manifest and a list a snapshot, and one that the delete wrote
    assert len(planned.files) == 3 + sum(path.endswith(".avro") for path in planned.files)
    removed = remove_plain(table)
    assert (set(removed.files), removed.left) == (set(done.plain_files), ())
    for path, data in lake.files().items():
        assert b"canary-" not in data, path
        assert path.endswith(".metadata.json") or data[:4] in {b"PARE", b"AGS1"}, path
    assert ids(lake.load()) == [number for number in range(15) if number != 3]
    assert "icelock.converted-from" not in lake.load().properties
    (report,) = audit(lake.catalog(), lake.name(), depth=["bytes", "foreign"]).tables
    assert report.counts == {}
    with pytest.raises(PolicyError, match="removed already"):
        remove_plain(lake.load())


@CONVERTING
def test_the_way_back(lake: CatalogLake) -> None:
    """The plain table is there again for every client, and takes part in a second conversion."""
    made = make_plain(lake)
    convert(lake.load(), key_id="keyA")
    done = undo_conversion(lake.load())
    assert (done.snapshot_id, done.lost_snapshots) == (made.metadata.current_snapshot_id, ())
    back = lake.load().metadata
    assert (back.format_version, back.snapshots, back.refs) == (2, made.metadata.snapshots, made.metadata.refs)
    assert back.properties == made.metadata.properties
    assert ids(lake.load()) == [number for number in range(15) if number != 3]
    if not lake.shared:
        assert ids(lake.without_kms().load_table(lake.name())) == ids(lake.load())
    open_catalog = lake.catalog(**{"icelock.plain-tables": "*"})
    if not isinstance(lake, MemoryLake):
        open_catalog.load_table(lake.name()).append(people(20, 1))
    convert(lake.load(), key_id="keyB")
    assert lake.load().properties["encryption.key-id"] == "keyB"
    (report,) = audit(lake.catalog(), lake.name(), depth="bytes").tables
    assert report.counts == {}
    assert "differs" not in report.statements.values()


@CONVERTING
def test_the_way_back_is_closed_by_commits_and_without_the_files(lake: CatalogLake) -> None:
    made = make_plain(lake)
    done = convert(lake.load(), key_id="keyA")
    table = lake.load()
    table.append(people(100, 1))
    with pytest.raises(PolicyError, match="committed to since its conversion"):
        undo_conversion(table)
    late = table.metadata.current_snapshot_id
    assert undo_conversion(table, drop_commits=True, dry_run=True).lost_snapshots == (late,)
    (path, *_) = [path for path in done.plain_files if path.endswith(".parquet")]
    kept = local(path).rename(local(path).with_suffix(".gone"))
    with pytest.raises(PolicyError, match="1 of its plain files are gone"):
        undo_conversion(table, drop_commits=True)
    assert lake.load().metadata == table.metadata
    kept.rename(local(path))
    undo_conversion(table, drop_commits=True)
    assert lake.load().metadata.snapshots == made.metadata.snapshots


@pytest.mark.parametrize("lake", ["rest"], indirect=True)
def test_a_server_that_cannot_is_not_asked(lake: CatalogLake) -> None:
    made = make_plain(lake)
    files = lake.files()
    for dry_run in (True, False):
        with pytest.raises(PolicyError, match="REST"):
            convert(lake.load(), key_id="keyA", dry_run=dry_run)
    assert lake.files() == files
    assert json.loads(Path(made.metadata_location.removeprefix("file:")).read_text())["format-version"] == 2


def test_a_copy_leaves_the_plain_table_alone(lake: CatalogLake) -> None:
    """Every catalog makes it: also a server, which cannot convert a table under its own name."""
    made = make_plain(lake)
    plain, name = made.metadata, f"{lake.name()}_copy"
    done = convert(lake.load(), key_id="keyA", copy_to=name)
    copy = lake.catalog().load_table(name)
    assert ids(copy) == [number for number in range(15) if number != 3]
    assert (done.files, done.snapshot_id) == (2, copy.metadata.current_snapshot_id)
    assert (copy.metadata.format_version, copy.properties["encryption.key-id"]) == (3, "keyA")
    assert lake.load().metadata == plain
    (report,) = audit(lake.catalog(), name, depth=["bytes", "foreign"]).tables
    assert (report.counts, report.objects["plain, reached"].files) == ({}, 0)
    assert "differs" not in report.statements.values()
    copy.append(people(100, 2))
    assert ids(lake.catalog().load_table(name))[-2:] == [100, 101]


def make_mixed(lake: CatalogLake) -> Any:
    """The same, with a key id since, and an encrypted file; in a catalog that lets its plain files be read."""
    lake.point_at(keyed_metadata(make_plain(lake)))
    lake.load(**ALLOW).append(people(100, 2))
    return lake.load(**ALLOW)


MIXED = [*(number for number in range(15) if number != 3), 100, 101]
# The one object of the catalog in memory has its policy from the beginning.
OF_SEVERAL = pytest.mark.parametrize("lake", [kind for kind in KINDS if kind not in ("rest", "in-memory")], indirect=True)


@OF_SEVERAL
@pytest.mark.parametrize("history", ["drop", "keep"])
def test_a_mixed_table_becomes_encrypted(lake: CatalogLake, history: Any) -> None:
    """Whoever may change the catalog's row can set a key id on a plain table; what the catalog keeps is then of that table."""
    mixed = make_mixed(lake)
    with pytest.raises(PolicyError, match="allow-unkeyed"):
        lake.load().scan().to_arrow()
    assert ids(mixed) == MIXED
    before = {one.snapshot_id: ids(mixed, snapshot_id=one.snapshot_id) for one in mixed.snapshots()}
    assert audit(lake.catalog(), lake.name()).tables[0].counts["mixed-table"] == 1
    done = convert(mixed, key_id="keyA", history=history)
    table = lake.load()
    assert ids(table) == MIXED
    assert history == "drop" or {one: ids(table, snapshot_id=one) for one in before} == before
    (report,) = audit(lake.catalog(), lake.name(), depth=["bytes", "foreign"]).tables
    assert set(report.counts) == {"plain-object-of-conversion"}
    assert "differs" not in report.statements.values()
    table.append(people(200, 1))
    assert set(remove_plain(lake.load()).files) == set(done.plain_files)
    (report,) = audit(lake.catalog(), lake.name(), depth=["bytes", "foreign"]).tables
    assert (set(report.counts) <= {"left-over-object"}, report.objects["plain, reached"].files) == (True, 0)
    assert ids(lake.load()) == [*MIXED, 200]


@CONVERTING
def test_the_history_is_kept(lake: CatalogLake) -> None:
    """Each snapshot is there under its id, and the catalog keeps what it keeps of encrypted tables."""
    made = make_plain(lake)
    before = {snapshot.snapshot_id: ids(made, snapshot_id=snapshot.snapshot_id) for snapshot in made.metadata.snapshots}
    done = convert(lake.load(), key_id="keyA", history="keep")
    table = lake.load()
    assert (done.snapshots, done.snapshot_id) == (len(before), table.metadata.current_snapshot_id)
    assert {one: ids(table, snapshot_id=one) for one in before} == before
    (report,) = audit(lake.catalog(), lake.name(), depth=["bytes", "foreign"]).tables
    assert set(report.counts) == {"plain-object-of-conversion"}
    assert "differs" not in report.statements.values()
    table.append(people(100, 2))
    remove_plain(lake.load())
    assert {one: ids(lake.load(), snapshot_id=one) for one in before} == before


@pytest.mark.parametrize("lake", ["rest"], indirect=True)
def test_a_server_keeps_no_history_either(lake: CatalogLake) -> None:
    make_plain(lake)
    files = lake.files()
    with pytest.raises(PolicyError, match="REST"):
        convert(lake.load(), key_id="keyA", history="keep")
    assert lake.files() == files
