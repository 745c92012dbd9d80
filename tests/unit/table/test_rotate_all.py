"""Level ``all``: files of all snapshots under new keys; each reads as before, and nothing that is left was ever under an old key."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg.manifest import DataFileContent

from icelock.errors import FormatError, IntegrityError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.parquet_reencrypt import reencrypt_parquet
from icelock.maintenance import audit, leftovers, remove_leftovers
from icelock.plan.planner import Planner
from icelock.table.maintenance.rotation import rotate_lists as module
from icelock.table.maintenance.rotation.copied_files import DATA_NAME
from icelock.table.maintenance.rotation.list_moves import ListMoves
from icelock.table.maintenance.rotation.rotate_data import RotatedData
from tests.helpers.table_model import ARROW, arrow, row, rows_of
from tests.lakes.sqlite import KEYED, TestLake
from tests.unit.table.test_compact import BY_N, MOR, make
from tests.unit.table.test_older_deletes import PATH_ID, SCOPES, commit, equality, paths, positions
from tests.unit.table.test_rotate import keks
from tests.unit.table.test_rotate_data import MARK, lake_of, loaded, sealed, verified
from tests.unit.table.test_rotate_lists import Killed, beside, every_row, expire_all_keys, place, without_place


def with_history(lake: TestLake) -> Any:
    """Appends, vectors, equality deletes and a copy-on-write, a branch with rows of its own, a tag."""
    table = make(lake, 3, **MOR)
    table.delete("id in (4, 13)")
    commit(table, equality(table, "e1", [12]))
    table.delete("id = 21 or id = 5")
    with table.manage_snapshots() as change:
        change.create_branch(table.snapshots()[1].snapshot_id, "side").create_tag(table.snapshots()[3].snapshot_id, "then")
    table.append(arrow([row(60)]), branch="side")
    table.overwrite(arrow([row(3), row(61)]), overwrite_filter="id = 3")
    return table


def reached(table: Any, *, live: bool) -> Counter[str]:
    """Every file that the metadata leads to, data and delete files by how many entries name them."""
    found: Counter[str] = Counter()
    for snapshot in table.snapshots():
        found[snapshot.manifest_list] += 1
        for manifest in snapshot.manifests(table.io):
            found[manifest.manifest_path] += 1
            found.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=live))
    return found


def statistics(table: Any, snapshot_id: int) -> list[Any]:
    """What the entries of a snapshot say, but for places and keys."""
    found = []
    for manifest in table.metadata.snapshot_by_id(snapshot_id).manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            bounds = [
                sorted((value or {}).items()) for value in (file.lower_bounds, file.upper_bounds, file.value_counts, file.column_sizes)
            ]
            numbers = (entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, file.first_row_id)
            place = (file.content, file.record_count, file.content_offset, file.content_size_in_bytes, file.split_offsets)
            found.append(repr((numbers, place, bounds, file.partition._data, file.sort_order_id, file.equality_ids)))
    return sorted(found)


@pytest.mark.parametrize("to_key", ["keyA", "keyB"])
def test_every_snapshot_is_as_before_and_nothing_of_before_is_left(lake: TestLake, to_key: str) -> None:
    table = with_history(lake)
    rows, (old,), was = every_row(table), keks(table), reached(table, live=True)
    snapshots, refs = table.metadata.snapshots, table.metadata.refs
    numbers = {one.snapshot_id: statistics(table, one.snapshot_id) for one in snapshots}
    before = lake.files()
    plan = loaded(lake).maintenance.rotate("all", to_key=to_key, dry_run=True)
    assert lake.files() == before
    done = loaded(lake).maintenance.rotate("all", to_key=to_key)
    table = table.refresh()
    assert (done.left_files, MARK in table.metadata.properties) == (0, False)
    now = every_row(table)
    assert {number: found for number, found in now.items() if number in rows} == rows
    for branch in ("main", "side"):
        head, new = refs[branch].snapshot_id, table.metadata.refs[branch].snapshot_id
        assert (new != head, now[new]) == (True, rows[head]), "row ids, and when each row was changed"
    assert {number: statistics(table, number) for number in numbers} == numbers, "and statistics, positions, numbers, row ids"
    kept = [one for one in table.metadata.snapshots if one.snapshot_id in rows]
    assert [without_place(one) for one in kept] == [without_place(one) for one in snapshots]
    assert table.metadata.refs["then"] == refs["then"]
    assert set(sealed(table)) == {done.kek}
    assert not set(reached(table, live=True)) & set(was), "no file of before is reached, whatever snapshot is read"
    data = {entry for entry in was if "/data/" in entry}
    copies = {path for path in reached(table, live=True) if "/data/" in path and DATA_NAME.fullmatch(path.rpartition("/")[2])}
    assert len(copies) == len(data), "each file once, however many snapshots have it"
    assert plan.rewritten_files == done.rewritten_files
    if to_key == "keyB":
        assert expire_all_keys(table) == (old.key_id,)
    assert [kek.key_id for kek in keks(table)] == [done.kek]
    assert audit(lake.catalog(), "db.t", depth=["bytes"]).verdict.value == "sound"
    after = lake.files()
    assert {name: after[name] for name in before} == before, "readers of older metadata go on"
    remove_leftovers(table, older_than=timedelta(0))
    assert not {Path(place(path)) for path in was if Path(place(path)).exists()}
    only = lake_of(lake, to_key)
    assert {number: found for number, found in every_row(only).items() if number in rows} == rows
    verified(table, to_key)


@pytest.mark.parametrize(("committed", "left", "copied"), [(0, 5, 1), (1, 3, 0)])
def test_killed_it_is_gone_on_with_and_no_data_file_is_written_twice(
    lake: TestLake, monkeypatch: pytest.MonkeyPatch, committed: int, left: int, copied: int
) -> None:
    """Five snapshots, four files, one with a vector: three are copied and committed for the branch, that one for the first snapshots."""
    table = make(lake, 3, **MOR)
    table.delete("id = 4")
    table.append(arrow([row(70)]))
    rows = every_row(table)
    monkeypatch.setattr(module, "_LEAST_SNAPSHOTS", 2)
    commits, right = [], ListMoves.commit

    def killed(self: Any) -> Any:
        if len(commits) == committed:
            self.certain = False  # nobody is left to delete anything
            raise Killed
        commits.append(self)
        return right(self)

    monkeypatch.setattr(ListMoves, "commit", killed)
    with pytest.raises(Killed):
        loaded(lake).maintenance.rotate("all")
    monkeypatch.setattr(ListMoves, "commit", right)
    table = loaded(lake)
    assert {number: found for number, found in every_row(table).items() if number in rows} == rows, "a table is whole in between"
    for level in ("data", "lists"):
        with pytest.raises(PolicyError, match="level 'all' was not finished"):
            loaded(lake).maintenance.rotate(level)
    first = {path for one in table.snapshots()[:2] for path in paths_of(table, one.snapshot_id)}
    done = table.maintenance.rotate("all")
    assert (done.resumed, done.left_files, done.rotated_snapshots) == (True, 0, left)
    assert {number: found for number, found in every_row(table).items() if number in rows} == rows
    last = paths_of(table, table.snapshots()[4].snapshot_id)
    assert len(first) == 2
    assert (first < last) == bool(committed), "data files that the first call committed are named again"
    assert done.rewritten_files == copied, "that with the vector, which the killed call may have written and not committed"
    assert len(paths_of(table) & last) == 3, "a file that lost no row is one for the branch and its history"
    assert MARK not in table.metadata.properties
    remove_leftovers(table, older_than=timedelta(0))
    verified(table, "keyA")


def paths_of(table: Any, snapshot_id: int | None = None) -> set[str]:
    return set(table.inspect.data_files(snapshot_id)["file_path"].to_pylist())


def test_beside_writers_and_an_expiry(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that holds the table from before deletes and appends; a snapshot expires whose copies later lists have."""
    table = make(lake, 4, **MOR)
    rows, first = every_row(table), table.snapshots()[0].snapshot_id
    held = loaded(lake)
    monkeypatch.setattr(module, "_LEAST_SNAPSHOTS", 1)

    def others() -> None:
        held.delete("id in (3, 14)")
        held.append(arrow([row(50)]))

    beside(monkeypatch, others, lambda: loaded(lake).maintenance.expire_snapshots().by_ids([first]).commit() and None)
    done = table.maintenance.rotate("all")
    assert done.left_files == 0
    table = loaded(lake)
    assert rows_of(table) == sorted([*(row(number) for number in range(40) if number not in {3, 14}), row(50)])
    found = every_row(table)
    assert {number: found[number] for number in rows if number != first} == {number: rows[number] for number in rows if number != first}
    assert first not in found
    remove_leftovers(table, older_than=timedelta(0))
    assert every_row(loaded(lake)) == found
    verified(table, "keyA")


def test_a_delete_that_was_planned_before_is_not_lost(lake: TestLake) -> None:
    """Its vector is of a data file that no branch has any more: it is worked out again."""
    table, other = make(lake, 2, **MOR), loaded(lake)
    with table.transaction() as change:
        change.delete("id = 5")
        other.maintenance.rotate("all")
    assert rows_of(loaded(lake)) == [row(number) for number in range(20) if number != 5]


def test_snapshots_that_it_makes_on_its_way_have_nothing_of_before(lake: TestLake) -> None:
    """Level data commits a partition at a time: the first of its snapshots still has the files of the others."""
    table = make(lake, 3, spec=BY_N)
    was = reached(table, live=True)
    done = table.maintenance.rotate("all")
    assert (done.left_files, len(done.snapshots) > 1) == (0, True)
    assert reached(table.refresh(), live=True).keys() & was.keys() == set()


@pytest.mark.parametrize("level", ["kek", "lists", "data", "all"])
def test_no_kek_is_made_beside_one_of_a_clock_that_was_ahead(lake: TestLake, level: str) -> None:
    """It would seem the older one: nothing that is under that KEK would be done, and the rotation would say that all is."""
    catalog = lake.catalog()
    make(lake, 1)
    clock = catalog.encryption.clock
    table = catalog.load_table("db.t")
    object.__setattr__(catalog.encryption, "clock", lambda: clock() - 3_600_000)
    before = table.metadata_location
    with pytest.raises(PolicyError, match="60 minutes ahead of this one"):
        table.maintenance.rotate(level)
    assert table.refresh().metadata_location == before
    assert table.maintenance.rotate("wrap").wrapped == tuple(kek.key_id for kek in keks(table))


def test_partitions(lake: TestLake) -> None:
    table = make(lake, 2, BY_N)
    rows = every_row(table)
    assert table.maintenance.rotate("all").left_files == 0
    assert {number: found for number, found in every_row(table).items() if number in rows} == rows
    remove_leftovers(table, older_than=timedelta(0))
    verified(table, "keyA")


def test_a_dry_run_plans_each_branch_once(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """And counts a file that branch and history share once."""
    with_history(lake)
    table = loaded(lake)
    planned: list[int] = []
    plan = Planner.plan_files
    monkeypatch.setattr(Planner, "plan_files", lambda self, *more: (planned.append(1), plan(self, *more))[1])
    result = table.maintenance.rotate("all", dry_run=True)
    assert len(planned) == 2, "main and side"
    monkeypatch.undo()
    done = loaded(lake).maintenance.rotate("all")
    assert (done.rewritten_files, done.rewritten_bytes) == (result.rewritten_files, result.rewritten_bytes)
    assert result.rotated_snapshots == 8 < done.rotated_snapshots, "those that there are; it makes some on its way"
    assert result.rewritten_manifests < done.rewritten_manifests


def with_positions(lake: TestLake) -> Any:
    """Position deletes of one file and of two, by bounds and by name, one of which only history has; a tag and a branch."""
    table = make(lake, 3)
    first, second = paths(table)
    commit(table, positions(table, "p1", {first: [3]}, **SCOPES["by bounds"](first)))
    commit(table, positions(table, "p2", {first: [5, 7], second: [0]}))
    with table.manage_snapshots() as change:
        change.create_tag(table.current_snapshot().snapshot_id, "then").create_branch(table.current_snapshot().snapshot_id, "side")
    commit(table, positions(table, "p3", {second: [9]}, **SCOPES["named"](second)))
    return table


def named_by(table: Any) -> dict[str, set[str]]:
    """The data files that each file of positions names in its rows, by Arrow's reader; and what its entry says of them."""
    found: dict[str, set[str]] = {}
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file = entry.data_file
                if file.content == DataFileContent.POSITION_DELETES:
                    key = KeyMetadata.decode(file.key_metadata)
                    decryption = pe.create_decryption_properties(footer_key=key.dek.reveal(), aad_prefix=key.aad_prefix)
                    rows = pq.read_table(place(file.file_path), decryption_properties=decryption)
                    named = set(rows["file_path"].to_pylist())
                    assert (file.lower_bounds[PATH_ID].decode(), file.upper_bounds[PATH_ID].decode()) == (min(named), max(named))
                    assert rows.num_rows == file.record_count
                    assert rows.sort_by([("file_path", "ascending"), ("pos", "ascending")]) == rows, "the order of the specification"
                    assert file.referenced_data_file in (None, *named)
                    found[file.file_path] = named
    return found


def test_files_of_positions_name_the_new_data_files(lake: TestLake) -> None:
    table = with_positions(lake)
    rows, was = every_row(table), reached(table, live=True)
    plan = loaded(lake).maintenance.rotate("all", dry_run=True)
    done = loaded(lake).maintenance.rotate("all")
    assert (done.left_files, plan.rewritten_files) == (0, 9), "three data files for each branch, and for the history"
    table = table.refresh()
    now = every_row(table)
    assert {number: found for number, found in now.items() if number in rows} == rows
    files = named_by(table)
    assert len(files) == 3, "each once, however many snapshots have it"
    assert not {path for named in files.values() for path in named} & set(was)
    assert not set(reached(table, live=True)) & set(was)
    remove_leftovers(table, older_than=timedelta(0))
    assert {number: found for number, found in every_row(loaded(lake)).items() if number in rows} == rows
    verified(table, "keyA")


def test_what_is_refused(lake: TestLake) -> None:
    table = make(lake, 2)
    before = lake.files()
    with pytest.raises(PolicyError, match="use level 'wrap' with it"):
        table.maintenance.rotate("all", kms=table.encryption.kms())
    assert lake.files() == before


def test_a_data_file_that_cannot_be_read_leaves_the_history_as_it_was(lake: TestLake) -> None:
    table = make(lake, 2)
    table.delete("id < 10")
    gone = Path(place(paths_of(table, table.snapshots()[0].snapshot_id).pop()))
    sound = gone.read_bytes()
    gone.write_bytes(sound[:40] + bytes(20) + sound[60:])
    with pytest.raises(IntegrityError, match="does not authenticate"):
        loaded(lake).maintenance.rotate("all")
    assert rows_of(loaded(lake)) == [row(number) for number in range(10, 20)]
    left = {file.path for file in leftovers(loaded(lake), older_than=timedelta(0)).files}
    assert not [path for path in left if DATA_NAME.fullmatch(path.rpartition("/")[2])], "its copies are deleted"
    gone.write_bytes(sound)
    done = loaded(lake).maintenance.rotate("all")
    assert (done.resumed, done.left_files) == (True, 0)


@pytest.mark.parametrize("codec", ["zstd", "uncompressed"])
def test_a_copy_is_read_by_arrow_with_the_new_key_alone(lake: TestLake, codec: str) -> None:
    """Byte by byte other ciphertext of the same length, the same pages; the old key opens nothing, and a changed byte is noticed."""
    properties = {**KEYED, "write.parquet.compression-codec": codec, "write.parquet.row-group-limit": "100"}
    table = lake.catalog().create_table("db.t", arrow([]).schema, properties=properties)
    table.append(arrow([row(number) for number in range(250)]))
    (file,) = [task.file for task in table.scan().plan_files()]
    key, location = KeyMetadata.decode(file.key_metadata), f"{file.file_path}.copy"
    storage, made = table.storage, table.io.manager.mint_file_key()
    new = reencrypt_parquet(storage.new_input(file.file_path), key, storage.new_output(location), made, table.encryption.entropy)
    old_bytes, new_bytes = (Path(place(path)).read_bytes() for path in (file.file_path, location))
    assert (len(new_bytes), new.encrypted_length) == (len(old_bytes), len(old_bytes))
    assert sum(a == b for a, b in zip(old_bytes, new_bytes, strict=True)) < len(old_bytes) / 20
    assert read_by_arrow(location, new) == read_by_arrow(file.file_path, key)
    with pytest.raises(OSError, match=r"(?i)decrypt|authenticat|aad|tag"):
        read_by_arrow(location, key)
    for at in (4, 8, len(old_bytes) // 2, len(old_bytes) - 20):
        Path(place(file.file_path)).write_bytes(old_bytes[:at] + bytes([old_bytes[at] ^ 1]) + old_bytes[at + 1 :])
        again = storage.new_output(f"{location}{at}")
        with pytest.raises((IntegrityError, FormatError)):
            reencrypt_parquet(storage.new_input(file.file_path), key, again, table.io.manager.mint_file_key(), table.encryption.entropy)


def read_by_arrow(path: str, key: KeyMetadata) -> Any:
    import pyarrow.parquet.encryption as pe  # noqa: PLC0415 - of this alone

    properties = pe.create_decryption_properties(footer_key=key.dek.reveal(), aad_prefix=key.aad_prefix)
    return pq.ParquetFile(place(path), decryption_properties=properties).read()


def test_a_branch_that_is_made_of_an_older_snapshot_meanwhile_is_done_by_the_next_call(
    lake: TestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may be writing on it, so its snapshot is not changed in place."""
    table = make(lake, 2)
    first, run = table.snapshots()[0], RotatedData.run

    def then_branch(self: Any) -> Any:
        done = run(self)
        loaded(lake).manage_snapshots().create_branch(first.snapshot_id, "late").commit()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(RotatedData, "run", then_branch)
        done = table.maintenance.rotate("all")
    assert (done.left_files, done.rotated_snapshots) == (1, 1)
    assert loaded(lake).metadata.snapshot_by_id(first.snapshot_id).manifest_list == first.manifest_list
    again = loaded(lake).maintenance.rotate("all")
    assert (again.resumed, again.left_files, again.rotated_snapshots) == (True, 0, 1)
    assert set(sealed(loaded(lake))) == {done.kek}
    assert rows_of(loaded(lake), snapshot_id=first.snapshot_id) == [row(number) for number in range(10)]


@pytest.mark.parametrize("level", ["lists", "all"])
def test_a_purge_takes_along_what_rotations_left_behind(lake: TestLake, level: Any) -> None:
    """Also what an expiry after them took out of the metadata, and of two rotations."""
    with_history(lake)
    for _ in range(2):
        loaded(lake).maintenance.rotate(level)
    expire_all_keys(loaded(lake))
    loaded(lake).append(arrow([row(70)]))
    root = Path(place(loaded(lake).location()))
    assert leftovers(loaded(lake)).files
    lake.catalog().purge_table("db.t")
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_a_purge_leaves_lists_of_before_that_the_keys_do_not_open(lake: TestLake) -> None:
    """Older metadata files are plain: somebody may have let one name a list of another table that lies below this one."""
    table = make(lake, 2)
    other = lake.catalog().create_table("db.inner", ARROW, location=f"{table.location()}/data/inner", properties=KEYED)
    other.append(arrow([row(1)]))
    theirs = {place(path) for path in reached(other, live=True)}
    older = Path(place(table.metadata.metadata_log[-1].metadata_file))
    forged = json.loads(older.read_text())
    forged["snapshots"][0]["manifest-list"] = other.current_snapshot().manifest_list
    older.write_text(json.dumps(forged))
    table.maintenance.rotate("lists")
    lake.catalog().purge_table("db.t")
    assert not older.exists()
    assert all(Path(path).exists() for path in theirs)
    assert rows_of(lake.catalog().load_table("db.inner")) == [row(1)]
