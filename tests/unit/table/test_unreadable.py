"""Snapshots that cannot be read any more: they go when told so, what only they name is left, and what is kept is never touched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from icelock.errors import IntegrityError, KeyUnavailableError
from icelock.maintenance import leftovers, remove_leftovers
from tests.helpers.table_model import verified
from tests.helpers.tables import ids, load, local
from tests.lakes.sqlite import TestLake, people
from tests.unit.table.test_deletable import forge, untouched, victims  # noqa: F401 - a fixture
from tests.unit.table.test_expire import QUIET, SOON

OPTION = r"drop_unreadable\(\)"


def make(lake: TestLake) -> Any:
    """Three snapshots, each of which replaced all rows of the one before."""
    table = lake.catalog().create_table("db.t", people().schema, properties=QUIET)
    table.append(people(0, 2))
    table.overwrite(people(10, 2))
    table.overwrite(people(20, 2))
    old, *_, head = table.snapshots()
    assert old.snapshot_id != head.snapshot_id
    return table


def middle(table: Any) -> Any:
    """A snapshot that alone names the file of rows 10 and 11 as live."""
    return next(s for s in table.snapshots()[1:] if 10 in ids_of(table, s))


def ids_of(table: Any, snapshot: Any) -> list[int]:
    return sorted(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist())


def damage(location: str) -> None:
    path = local(location)
    path.write_bytes(path.read_bytes()[:-1])


def remove(location: str) -> None:
    local(location).unlink()


def expiry(table: Any) -> Any:
    return table.maintenance.expire_snapshots().older_than(SOON)


@pytest.mark.parametrize("harm", [damage, remove])
def test_a_list_that_is_lost(lake: TestLake, harm: Callable[[str], None]) -> None:
    table = make(lake)
    victim = middle(table)
    (data,) = (task.file.file_path for task in table.scan(snapshot_id=victim.snapshot_id).plan_files())
    harm(victim.manifest_list)
    before = lake.files()
    with pytest.raises((IntegrityError, FileNotFoundError)) as caught:
        expiry(table).commit()
    said = "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "drop_unreadable()" in said
    assert "--drop-unreadable of icelock expire" in said
    assert lake.files() == before, "nothing was changed"
    count = len(table.snapshots())
    done = expiry(table).drop_unreadable().commit()
    assert done.unreadable == (victim.manifest_list,)
    assert (len(done.snapshots), len(done.keys)) == (count - 1, count - 1)
    assert not local(victim.manifest_list).exists()
    assert local(data).exists(), "nobody could tell"
    fresh = load(lake)
    assert ids(fresh) == [20, 21]
    assert data in {file.path for file in leftovers(fresh).files}
    remove_leftovers(fresh, older_than=timedelta(seconds=-60))
    assert not local(data).exists()
    assert ids(load(lake)) == [20, 21]
    verified(load(lake))


def test_a_manifest_that_is_lost(lake: TestLake) -> None:
    table = make(lake)
    victim = middle(table)
    (data,) = (task.file.file_path for task in table.scan(snapshot_id=victim.snapshot_id).plan_files())
    head = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}
    (manifest,) = (m for m in victim.manifests(table.io) if m.has_added_files() and m.manifest_path not in head)
    damage(manifest.manifest_path)
    done = expiry(table).drop_unreadable().commit()
    assert done.unreadable == (manifest.manifest_path,)
    assert not local(manifest.manifest_path).exists()
    assert {file.path for file in leftovers(load(lake)).files} == {data}
    assert ids(load(lake)) == [20, 21]


def test_a_snapshot_that_stays_and_cannot_be_read_keeps_its_files(lake: TestLake) -> None:
    """By expiry nothing is deleted that it might name; leftovers stops as before."""
    table = make(lake)
    first, *_ = table.snapshots()
    victim = middle(table)
    table.manage_snapshots().create_tag(victim.snapshot_id, "kept").commit()
    (data,) = (task.file.file_path for task in table.scan(snapshot_id=victim.snapshot_id).plan_files())
    damage(victim.manifest_list)
    before = set(lake.files())
    done = expiry(table).drop_unreadable().commit()
    assert first.snapshot_id in done.snapshots
    assert victim.snapshot_id not in done.snapshots
    assert done.unreadable == (victim.manifest_list,)
    gone = before - set(lake.files())
    assert gone
    assert all("/snap-" in name for name in gone), "only the lists of expired snapshots"
    assert local(data).exists()
    with pytest.raises(IntegrityError, match="snap-"):
        leftovers(load(lake))
    with pytest.raises(IntegrityError, match="snap-"):
        remove_leftovers(load(lake), older_than=timedelta(seconds=-60))
    assert local(data).exists()


def test_a_manifest_of_a_snapshot_that_stays_keeps_the_data(lake: TestLake) -> None:
    table = make(lake)
    victim = middle(table)
    table.manage_snapshots().create_tag(victim.snapshot_id, "kept").commit()
    paths = {task.file.file_path for s in table.snapshots() for task in table.scan(snapshot_id=s.snapshot_id).plan_files()}
    head = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}
    (manifest,) = (m.manifest_path for m in victim.manifests(table.io) if m.has_added_files() and m.manifest_path not in head)
    damage(manifest)
    done = expiry(table).drop_unreadable().commit()
    assert done.unreadable == (manifest,)
    assert all(local(path).exists() for path in paths)


def test_without_the_kms_nothing_is_lost(lake: TestLake) -> None:
    """It is away for a while: the snapshots go all the same when told so, and leftovers find their files later."""
    make(lake)
    table = load(lake)
    lake.calls.deny("unwrap")
    with pytest.raises(KeyUnavailableError, match=OPTION):
        expiry(table).commit()
    done = expiry(table).drop_unreadable().commit()
    assert len(done.unreadable) == len(done.snapshots) + 1, "the one that stays too"
    assert not any(path.endswith((".parquet", "-m0.avro")) for path in done.files)
    lake.calls.deny("nothing")
    fresh = load(lake)
    assert ids(fresh) == [20, 21]
    remove_leftovers(fresh, older_than=timedelta(seconds=-60))
    assert ids(load(lake)) == [20, 21]
    verified(load(lake))


def test_purge_goes_on_when_told_so(lake: TestLake, caplog: Any) -> None:
    table = make(lake)
    victim = middle(table)
    (data,) = (task.file.file_path for task in table.scan(snapshot_id=victim.snapshot_id).plan_files())
    (live,) = (task.file.file_path for task in table.scan().plan_files())
    damage(victim.manifest_list)
    with pytest.raises(IntegrityError) as caught:
        lake.catalog().purge_table("db.t")
    assert "drop_unreadable=True" in caught.value.__notes__[-1]
    assert ids(load(lake)) == [20, 21]
    with caplog.at_level(logging.WARNING):
        lake.catalog().purge_table("db.t", drop_unreadable=True)
    with pytest.raises(NoSuchTableError):
        load(lake)
    assert not local(live).exists()
    assert not local(victim.manifest_list).exists()
    # Removed entries of the next snapshot name the file too, and all entries count when a table goes.
    assert not local(data).exists()
    assert victim.manifest_list in caplog.text


@pytest.mark.parametrize("purge", [True, False])
def test_unreadable_lists_elsewhere_are_not_deleted(lake: TestLake, victims: dict[str, str], purge: bool) -> None:  # noqa: F811, FBT001
    """Whoever can write metadata.json can name any file as a manifest list."""

    def change(document: dict[str, Any]) -> None:
        (own,) = document["snapshots"]
        document["snapshots"] = [
            *(own | {"manifest-list": place, "snapshot-id": number} for number, place in enumerate(victims, 1)),
            own,
        ]

    catalog = forge(lake, change)
    if purge:
        catalog.purge_table("db.t", drop_unreadable=True)
    else:
        table = catalog.load_table("db.t")
        done = table.maintenance.expire_snapshots().by_ids(range(1, 1 + len(victims))).drop_unreadable().commit()
        assert len(done.unreadable) == len(victims)
    assert untouched(victims)
