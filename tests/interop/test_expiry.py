"""Expiry by icelock on tables that Java shares: Java reads what stays, goes on writing, and finds no file or key missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.typedef import Record

from icelock.maintenance import leftovers, remove_leftovers
from tests.helpers.tables import local
from tests.interop.features_rows import LINEAGE, MERGE_ON_READ
from tests.interop.independent import verify_chain
from tests.interop.model import arrow
from tests.interop.our_side import plain_files
from tests.interop.views import View
from tests.unit.table.test_older_deletes import commit, positions

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]

_JAVA_ONLY = ("spark", "app-", "engine-", "iceberg-")
SOON = datetime.now(UTC) + timedelta(days=1)


def rows(*ids: int) -> Any:
    return arrow([(number, f"row {number}") for number in ids])


def numbers(rows: Any) -> list[int]:
    return sorted(row["id"] for row in rows.to_pylist())


def test_java_reads_and_writes_a_table_whose_snapshots_we_expired(engines, new_table):
    """Java's and our snapshots, a deletion vector, a tag; Java's own expiry before ours leaves its keys behind (J-03)."""
    ours, java, name = engines.ours, engines.java, new_table("expiry")
    ours.create(name, arrow([]).schema, properties=MERGE_ON_READ)
    for first in (0, 10, 20):
        ours.table(name).append(rows(*range(first, first + 5)))
        java.insert(name, rows(*range(first + 5, first + 10)))
    tagged = ours.table(name).snapshots()[2].snapshot_id
    ours.table(name).manage_snapshots().create_tag(tagged, "kept").commit()
    java.sql("DELETE FROM {t} WHERE id IN (1, 26)", t=name)
    ours.table(name).overwrite(rows(100), "id < 10")
    # Java expires one snapshot; its key stays in the metadata.
    oldest = ours.table(name).snapshots()[0].snapshot_id
    java.call("expire_snapshots", name, f"snapshot_ids => array({oldest}L)")
    assert len(ours.table(name).metadata.encryption_keys) == 1 + 8
    table = ours.table(name)
    assert len(leftovers(table).keys) == 1
    done = table.maintenance.expire_snapshots().older_than(SOON).commit()
    ours.landed(name)
    assert (len(done.snapshots), len(done.keys), done.left) == (5, 6, ())
    fresh = ours.table(name)
    assert len(fresh.metadata.encryption_keys) == 1 + 2
    expected = sorted({*range(10, 30), 100} - {26})
    assert numbers(java.read(name)) == numbers(ours.read(name)) == expected
    assert numbers(java.read(name, View(ref="kept"))) == list(range(15))
    java.insert(name, rows(200))
    java.sql("DELETE FROM {t} WHERE id = 11", t=name)
    assert numbers(java.read(name)) == numbers(ours.read(name)) == sorted({*expected, 200} - {11})
    assert plain_files(ours.table(name).location()) == []
    verify_chain(ours, name)
    only_checksums_are_left(ours, name)
    assert numbers(java.read(name)) == sorted({*expected, 200} - {11})


def only_checksums_are_left(ours: Any, name: str) -> None:
    """Hadoop's local files have checksums beside them, which stay when another program deletes the file."""
    assert [file.path for file in leftovers(ours.table(name)).files if not file.path.endswith(".crc")] == []
    remove_leftovers(ours.table(name), older_than=timedelta(0))
    assert leftovers(ours.table(name)).files == ()


def test_our_expiry_of_a_table_that_java_wrote_alone(engines, new_table):
    ours, java, name = engines.ours, engines.java, new_table("expiry")
    java.create(name, arrow([]).schema, by="bucket(2, id)", properties=MERGE_ON_READ)
    for first in (0, 10, 20):
        java.insert(name, rows(*range(first, first + 10)))
    java.sql("DELETE FROM {t} WHERE id % 3 = 0", t=name)
    java.call("rewrite_data_files", name, "options => map('rewrite-all', 'true')")
    before = len(ours.table(name).snapshots())
    done = ours.table(name).maintenance.expire_snapshots().older_than(SOON).commit()
    ours.landed(name)
    assert len(done.snapshots) == before - 1
    assert done.left == ()
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [n for n in range(30) if n % 3]
    assert len(ours.table(name).metadata.encryption_keys) == 2
    only_checksums_are_left(ours, name)
    assert numbers(java.read(name)) == [n for n in range(30) if n % 3]
    verify_chain(ours, name)


def test_java_goes_on_with_deletes_and_manifests_that_we_rewrote(engines, new_table):
    """Its equality deletes and vectors become our vectors, its manifests ours; the summary has what Java's own rewriting says."""
    ours, java, name = engines.ours, engines.java, new_table("upkeep")
    java.create(name, arrow([]).schema, by="bucket(2, id)", properties={**MERGE_ON_READ, "commit.manifest-merge.enabled": "false"})
    for first in (0, 10, 20):
        java.insert(name, rows(*range(first, first + 10)))
    java.sql("DELETE FROM {t} WHERE id IN (3, 4, 24)", t=name)
    changes = java.jvm.RowChanges
    changes.equalityDelete(java.table(name), "parquet", java.listing(["id"]), java.rows({"id": 5}, {"id": 15}, {"id": 999}))
    expected = sorted({*range(30)} - {3, 4, 24, 5, 15})
    done = ours.table(name).maintenance.rewrite_deletes()
    assert done.snapshots
    assert numbers(java.read(name)) == numbers(ours.read(name)) == expected
    assert not [file for file in ours.table(name).inspect.delete_files().to_pylist() if file["content"] == 2]
    made = ours.table(name).maintenance.rewrite_manifests()
    assert made.created == 2  # data and deletes
    assert numbers(java.read(name)) == expected
    java.insert(name, rows(100))
    java.insert(name, rows(101))
    java.sql("DELETE FROM {t} WHERE id = 11", t=name)
    java.call("rewrite_manifests", name)
    summaries = [snapshot.summary.additional_properties for snapshot in ours.table(name).snapshots()]
    here, there = ({key for key in found if not key.startswith(_JAVA_ONLY)} for found in summaries if "entries-processed" in found)
    assert here == there
    expected = sorted({*expected, 100, 101} - {11})
    assert numbers(java.read(name)) == numbers(ours.read(name)) == expected
    data = ours.table(name).maintenance.rewrite_deletes(into="data")
    assert data.added_files
    assert numbers(java.read(name)) == numbers(ours.read(name)) == expected
    java.sql("DELETE FROM {t} WHERE id = 12", t=name)
    ours.table(name).maintenance.expire_snapshots().older_than(SOON).commit()
    assert numbers(java.read(name)) == numbers(ours.read(name)) == sorted({*expected} - {12})
    verify_chain(ours, name)


def test_java_goes_on_under_another_master_key(engines, new_table):
    """Java's own snapshots too are opened by it, and Java's next snapshot is under our new KEK."""
    ours, java, name = engines.ours, engines.java, new_table("rotation")
    ours.create(name, arrow([]).schema, properties=MERGE_ON_READ)
    ours.table(name).append(rows(1, 2, 3))
    java.insert(name, rows(4, 5))
    java.sql("DELETE FROM {t} WHERE id = 2", t=name)
    done = ours.table(name).maintenance.rotate("wrap", to_key="keyB")
    ours.landed(name)
    assert (done.from_key, done.to_key, len(done.wrapped)) == ("keyA", "keyB", 1)
    (made,) = ours.table(name).maintenance.rotate("kek").made
    ours.landed(name)
    assert numbers(java.read(name)) == [1, 3, 4, 5]
    java.insert(name, rows(6))
    java.sql("DELETE FROM {t} WHERE id = 1", t=name)
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [3, 4, 5, 6]
    metadata = ours.table(name).metadata
    sealed_by = {key.key_id: key.encrypted_by_id for key in metadata.encryption_keys}
    assert [sealed_by[snapshot.key_id] == made for snapshot in metadata.snapshots] == [False] * 3 + [True] * 2
    assert {sealed_by[kek] for kek in {made, *done.wrapped}} == {"keyB"}
    verify_chain(ours, name)


def test_java_goes_on_when_all_files_are_under_a_new_kek(engines, new_table):
    """Java's files and vectors of before are written again by us, and gone after the expiry; Java's next are under the new KEK."""
    ours, java, name = engines.ours, engines.java, new_table("rotateddata")
    ours.create(name, arrow([]).schema, properties=MERGE_ON_READ)
    ours.table(name).append(rows(1, 2, 3))
    java.insert(name, rows(4, 5, 6))
    java.sql("DELETE FROM {t} WHERE id IN (2, 5)", t=name)
    java.sql("ALTER TABLE {t} CREATE BRANCH side", t=name)
    before = set(ours.table(name).inspect.all_files()["file_path"].to_pylist())
    done = ours.table(name).maintenance.rotate("data", to_key="keyB")
    ours.landed(name)
    assert (done.rewritten_files, done.added_files, done.left_files) == (4, 2, 0), "two of each branch"
    assert numbers(java.read(name)) == numbers(java.read(name, View(ref="side"))) == [1, 3, 4, 6]
    java.insert(name, rows(7))
    java.sql("DELETE FROM {t} WHERE id = 1", t=name)
    ours.table(name).maintenance.expire_snapshots().older_than(SOON).commit()
    ours.landed(name)
    table = ours.table(name)
    assert {key.encrypted_by_id for key in table.metadata.encryption_keys} == {"keyB", done.kek}
    assert not before & set(table.inspect.all_files()["file_path"].to_pylist())
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [3, 4, 6, 7]
    assert numbers(java.read(name, View(ref="side"))) == [1, 3, 4, 6]
    java.sql("DELETE FROM {t} WHERE id = 6", t=name)
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [3, 4, 7]
    verify_chain(ours, name)


def with_history(engines, name):
    """A table of both engines with appends, vectors, a tag and a branch; returns the ids of each snapshot, as Java reads it."""
    ours, java = engines.ours, engines.java
    ours.create(name, arrow([]).schema, properties=MERGE_ON_READ)
    ours.table(name).append(rows(1, 2, 3))
    java.insert(name, rows(4, 5, 6))
    java.sql("ALTER TABLE {t} CREATE TAG then", t=name)
    java.sql("DELETE FROM {t} WHERE id IN (2, 5)", t=name)
    java.sql("ALTER TABLE {t} CREATE BRANCH side", t=name)
    java.insert(name, rows(7))
    ours.landed(name)
    return by_snapshot(java, name, [snapshot.snapshot_id for snapshot in ours.table(name).snapshots()])


def by_snapshot(java, name, snapshots):
    return {number: numbers(java.read(name, View(snapshot_id=number))) for number in snapshots}


def test_java_goes_on_when_lists_of_all_snapshots_are_under_a_new_kek(engines, new_table):
    """Java's manifests and lists of before are written again by us: it reads each snapshot, branch and tag, goes on, and expires."""
    ours, java, name = engines.ours, engines.java, new_table("rotatedlists")
    seen = with_history(engines, name)
    done = ours.table(name).maintenance.rotate("lists")
    ours.landed(name)
    assert (done.rotated_snapshots, done.left_files) == (len(seen), 0)
    assert {key.encrypted_by_id for key in ours.table(name).metadata.encryption_keys} == {"keyA", done.kek}
    assert by_snapshot(java, name, seen) == seen
    assert numbers(java.read(name, View(ref="then"))) == [1, 2, 3, 4, 5, 6]
    assert numbers(java.read(name, View(ref="side"))) == [1, 3, 4, 6]
    java.insert(name, rows(8))
    java.sql("DELETE FROM {t} WHERE id = 1", t=name)
    java.call("rewrite_manifests", name)
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [3, 4, 6, 7, 8]
    ours.table(name).maintenance.expire_snapshots().older_than(SOON).commit()
    ours.landed(name)
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [3, 4, 6, 7, 8]
    assert numbers(java.read(name, View(ref="then"))) == [1, 2, 3, 4, 5, 6]
    verify_chain(ours, name)


def test_java_goes_on_when_files_of_all_snapshots_are_under_a_new_kek(engines, new_table):
    """Java's data files and vectors are copied by us, module by module: it reads each snapshot, branch and tag, goes on, and expires."""
    ours, java, name = engines.ours, engines.java, new_table("rotatedall")
    seen = with_history(engines, name)
    before = {file for number in seen for file in ours.table(name).inspect.files(number)["file_path"].to_pylist()}
    changed = java.read(name, LINEAGE).sort_by("id")
    done = ours.table(name).maintenance.rotate("all")
    ours.landed(name)
    assert java.read(name, LINEAGE).sort_by("id") == changed == ours.read(name, LINEAGE).sort_by("id"), "a copy says which rows it has"
    assert (done.rotated_snapshots, done.left_files) == (len(seen), 0)
    assert {key.encrypted_by_id for key in ours.table(name).metadata.encryption_keys} == {"keyA", done.kek}
    now = {file for number in seen for file in ours.table(name).inspect.files(number)["file_path"].to_pylist()}
    assert (len(now), now & before) == (len(before), set())
    for path in before:
        local(path).unlink()
    assert by_snapshot(java, name, seen) == seen
    assert numbers(java.read(name, View(ref="then"))) == [1, 2, 3, 4, 5, 6]
    assert numbers(java.read(name, View(ref="side"))) == [1, 3, 4, 6]
    java.insert(name, rows(8))
    java.sql("DELETE FROM {t} WHERE id = 1", t=name)
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [3, 4, 6, 7, 8]
    ours.table(name).maintenance.expire_snapshots().older_than(SOON).commit()
    ours.landed(name)
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [3, 4, 6, 7, 8]
    assert numbers(java.read(name, View(ref="then"))) == [1, 2, 3, 4, 5, 6]
    verify_chain(ours, name)


def test_java_reads_files_of_positions_that_name_copied_data_files(engines, new_table):
    """A file of positions of two data files and one of one, as tables that were of version 2 have them, after a rotation of all files."""
    ours, java, name = engines.ours, engines.java, new_table("rotatedpositions")
    table = ours.create(name, arrow([]).schema)
    for first in (0, 3):
        ours.table(name).append(rows(*range(first, first + 3)))
    table = ours.table(name)
    first, second = (task.file.file_path for task in sorted(table.scan().plan_files(), key=lambda task: task.file.first_row_id))
    commit(table, positions(table, "both", {first: [0], second: [2]}, partition=Record()))
    commit(table, positions(table, "one", {second: [0]}, partition=Record(), referenced_data_file=second))
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "then").commit()
    ours.landed(name)
    assert numbers(java.read(name, View(ref="then"))) == [1, 2, 4]
    before = {file for one in table.snapshots() for file in table.inspect.files(one.snapshot_id)["file_path"].to_pylist()}
    ours.table(name).maintenance.rotate("all")
    ours.landed(name)
    for path in before:
        local(path).unlink()
    assert numbers(java.read(name)) == numbers(ours.read(name)) == [1, 2, 4]
    assert numbers(java.read(name, View(ref="then"))) == [1, 2, 4]
