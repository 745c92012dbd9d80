"""A conversion that did not end is gone on with: what the second call writes, what it uses again, and when it must not."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DATA_FILE_TYPE
from pyiceberg.transforms import TruncateTransform

from icelock.errors import IcelockError, IntegrityError, PolicyError
from icelock.maintenance import audit, convert, leftovers, undo_conversion
from icelock.table.maintenance.conversion import convert_files
from tests.helpers.tables import encrypted_files, ids, load, local
from tests.lakes.mixed import ALLOW, mixed_table
from tests.lakes.sqlite import TestLake, people
from tests.unit.table.test_convert import commit_deletes, equality, meanwhile, plain_catalog, plain_table, positions

FILES = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress"


@pytest.fixture(autouse=True)
def _in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """One file after the other, so that it is known which are finished."""
    monkeypatch.setattr(convert_files, "_AT_ONCE", 1)


def finished(path: Path) -> int:
    """How many data files a progress file has: one a line, after the first line."""
    return path.read_bytes().count(b"\n") - 1


def planned(table: Any) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


def stopped(lake: TestLake, path: Path, *, empty: int = 0, **arguments: Any) -> int:
    """Convert until the last data file that is planned, which was cut; return how many were finished. The file is mended then.

    So many of them are ``empty``: nothing is written for them. With all history the oldest snapshot is the first.
    """
    last = local(planned(plain_catalog(lake).load_table("db.t"))[0 if arguments.get("history") == "keep" else -1])
    whole = last.read_bytes()
    last.write_bytes(whole[:-9])
    before = encrypted_files(lake)
    with pytest.raises(IcelockError) as raised:
        convert(load(lake), progress_file=path, **{"key_id": "keyA", **arguments})
    last.write_bytes(whole)
    number = finished(path)
    assert len(encrypted_files(lake) - before) == number - empty
    assert f"{number - empty} finished files stay for the next call with progress file {path}" in raised.value.__notes__
    return number


def checked(lake: TestLake) -> Any:
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
    return load(lake)


@pytest.mark.parametrize("history", ["drop", "refs", "keep"])
def test_finished_files_are_not_written_again(lake: TestLake, path: Path, history: str) -> None:
    table = plain_table(lake, rows=10 * FILES)
    number = stopped(lake, path, history=history)
    assert FILES - 3 <= number < FILES
    first = encrypted_files(lake)
    assert plain_catalog(lake).load_table("db.t").metadata == table.metadata
    done = convert(load(lake), key_id="keyA", history=history, progress_file=path)
    assert (done.files, done.added_files, done.reused) == (FILES, FILES, number)
    assert len(encrypted_files(lake) - first) == FILES - number
    assert ids(checked(lake)) == list(range(10 * FILES))
    assert leftovers(load(lake), older_than=timedelta(0)).files == ()
    assert not [one for one in path.parent.iterdir() if "progress" in one.name]


def test_nothing_in_it_can_be_read(lake: TestLake, path: Path) -> None:
    plain_table(lake, rows=10 * FILES)
    stopped(lake, path)
    data = path.read_bytes()
    for secret in (b"canary", b".parquet", b"town"):
        assert secret not in data, secret


def test_deletes_are_part_of_what_a_copy_is_of(lake: TestLake, path: Path) -> None:
    """A row that was deleted between the calls is not brought back by a copy that has it."""
    table = plain_table(lake, rows=10 * FILES)
    number = stopped(lake, path)
    table.append(people(1000, 5))
    done_before = set(planned(table))
    (first,) = [task.file.file_path for task in table.scan(row_filter="id = 3").plan_files()]
    commit_deletes(table, equality(table, 1002), positions(table, first, 3))
    table.refresh()
    written = encrypted_files(lake)
    done = convert(load(lake), key_id="keyA", progress_file=path)
    # An equality delete without a partition is for all files of its snapshot and before: each is another source now.
    assert (done.reused, len(encrypted_files(lake) - written), len(done_before)) == (0, FILES + 1, FILES + 1)
    assert ids(checked(lake)) == sorted({*range(10 * FILES), *range(1000, 1005)} - {3, 1002})
    left = leftovers(load(lake), older_than=timedelta(0)).files
    assert len([one for one in left if "/data/" in one.path]) == number


def test_only_the_file_with_a_delete_is_written_again(lake: TestLake, path: Path) -> None:
    table = plain_table(lake, rows=10 * FILES)
    number = stopped(lake, path)
    deletes = positions(table, planned(table)[0], 3)
    bounds = {2147483546: planned(table)[0].encode()}
    deletes._data[[field.name for field in DATA_FILE_TYPE[2].fields].index("lower_bounds")] = bounds
    deletes._data[[field.name for field in DATA_FILE_TYPE[2].fields].index("upper_bounds")] = bounds
    commit_deletes(table, deletes)
    rows = ids(load(lake))
    assert len(rows) == 10 * FILES - 1
    done = convert(load(lake), key_id="keyA", progress_file=path)
    assert done.reused == number - 1
    assert ids(checked(lake)) == rows


def test_what_others_did_between_the_calls(lake: TestLake, path: Path) -> None:
    table = plain_table(lake, rows=10 * FILES)
    number = stopped(lake, path)
    table.append(people(1000, 5))
    done = convert(load(lake), key_id="keyA", progress_file=path)
    assert (done.files, done.reused) == (FILES + 1, number)
    assert ids(checked(lake)) == [*range(10 * FILES), *range(1000, 1005)]


def test_a_copy_of_an_earlier_call_is_not_deleted(lake: TestLake, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was used by the first round, and its file lost a row before the switch: now it is left over."""
    table = plain_table(lake, rows=10 * FILES)
    stopped(lake, path)
    first = encrypted_files(lake)
    meanwhile(monkeypatch, lambda: table.delete("id = 53"))
    done = convert(load(lake), key_id="keyA", progress_file=path)
    assert done.reused == len(first) - 1
    found = checked(lake)
    assert ids(found) == sorted({*range(10 * FILES)} - {53})
    assert first <= encrypted_files(lake)
    left = [one.path for one in leftovers(found, older_than=timedelta(0)).files]
    assert len([one for one in left if pq_is_encrypted(one)]) == 1


def test_another_form_has_all_written_again(lake: TestLake, path: Path) -> None:
    table = plain_table(lake, rows=10 * FILES)
    stopped(lake, path)
    with table.update_schema() as change:
        change.delete_column("name")
    assert convert(load(lake), key_id="keyA", progress_file=path).reused == 0
    assert load(lake).schema().column_names == ["id", "city"]
    assert ids(checked(lake)) == list(range(10 * FILES))


@pytest.mark.parametrize("history", ["drop", "keep"])
def test_ids_of_a_restored_catalog_mean_other_columns(lake: TestLake, path: Path, history: str) -> None:
    """The catalog went back to before a spec was made between the calls, and another spec has its id now.

    A copy of the first call would have "town" as the partition of names that begin with "canary": a filter by name would find no row of it.
    """
    table = plain_table(lake, rows=10 * FILES)
    before = table.metadata_location
    with table.update_spec() as change:
        change.add_field("city", TruncateTransform(4), "part")
    assert stopped(lake, path, history=history) > 0
    again = plain_catalog(lake)
    again.drop_table("db.t")
    table = again.register_table("db.t", before)
    with table.update_spec() as change:
        change.add_field("name", TruncateTransform(6), "part")
    assert table.spec().spec_id == 1
    done = convert(load(lake), key_id="keyA", history=history, progress_file=path)
    assert done.reused == 0
    found = checked(lake)
    assert ids(found) == list(range(10 * FILES))
    assert [row["id"] for row in found.scan(row_filter="name == 'canary-00011'").to_arrow().to_pylist()] == [11]


@pytest.mark.parametrize("damage", ["gone", "cut", "longer", "another footer", "plain", "another copy"])
def test_a_copy_that_is_not_what_was_written_is_written_again(lake: TestLake, path: Path, damage: str) -> None:
    plain_table(lake, rows=10 * FILES)
    number = stopped(lake, path)
    copies = sorted(encrypted_files(lake))
    at, other = (lake.warehouse / name for name in copies[:2])
    data = at.read_bytes()
    if damage == "gone":
        at.unlink()
    else:
        made = {
            "cut": data[:-1],
            "longer": data + b"\0",
            "another footer": data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
            "plain": b"PAR1" + data[4:-4] + b"PAR1",
            "another copy": other.read_bytes(),
        }[damage]
        at.write_bytes(made)
    done = convert(load(lake), key_id="keyA", progress_file=path)
    assert done.reused == number - 1
    found = checked(lake)
    assert ids(found) == list(range(10 * FILES))
    assert at.name not in {Path(one).name for one in planned(found)}


def test_avro_files_too(lake: TestLake, path: Path) -> None:
    table = plain_table(lake, rows=10 * FILES)
    table.transaction().set_properties({"write.format.default": "avro"}).commit_transaction()
    number = stopped(lake, path)
    copies = sorted(encrypted_files(lake))
    assert {Path(name).suffix for name in copies} == {".avro"}
    (lake.warehouse / copies[0]).write_bytes((lake.warehouse / copies[1]).read_bytes())
    assert convert(load(lake), key_id="keyA", progress_file=path).reused == number - 1
    assert ids(checked(lake)) == list(range(10 * FILES))


def test_it_is_for_one_table_key_and_history(lake: TestLake, path: Path) -> None:
    """Also for one key length; nothing is written, and the file stays for the call that it is for."""
    table = plain_table(lake, rows=10 * FILES)
    number = stopped(lake, path)
    before, kept = lake.files(), path.read_bytes()
    for other in ({"key_id": "keyB"}, {"history": "keep"}, {"data_key_length": 32}):
        with pytest.raises(PolicyError, match="is of something else"):
            convert(load(lake), progress_file=path, **{"key_id": "keyA", **other})
    with pytest.raises(PolicyError, match="a copy that was interrupted begins anew"):
        convert(load(lake), key_id="keyA", copy_to="db.copy", progress_file=path)
    assert (lake.files(), path.read_bytes()) == (before, kept)
    assert convert(load(lake), key_id="keyA", progress_file=path, dry_run=True).reused == 0
    assert path.read_bytes() == kept
    assert plain_catalog(lake).load_table("db.t").metadata == table.metadata
    assert convert(load(lake), key_id="keyA", progress_file=path).reused == number


def test_a_table_that_was_made_again_is_another_one(lake: TestLake, path: Path) -> None:
    table = plain_table(lake, rows=10 * FILES)
    stopped(lake, path)
    table.catalog.drop_table("db.t")
    plain_table(lake, rows=10)
    before = lake.files()
    with pytest.raises(PolicyError, match="is of something else: table-uuid"):
        convert(load(lake), key_id="keyA", progress_file=path)
    assert lake.files() == before
    path.unlink()
    assert convert(load(lake), key_id="keyA", progress_file=path).reused == 0
    assert ids(checked(lake)) == list(range(10))


def test_a_refused_table_makes_no_file(lake: TestLake, path: Path) -> None:
    table = plain_table(lake)
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "v1").commit()
    with pytest.raises(PolicyError, match="v1"):
        convert(load(lake), key_id="keyA", progress_file=path)
    assert not [one for one in path.parent.iterdir() if "progress" in one.name]


def test_a_damaged_file_stops_before_anything_is_written(lake: TestLake, path: Path) -> None:
    plain_table(lake, rows=10 * FILES)
    stopped(lake, path)
    head, one, two, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([head, two, one, *rest]))
    before = lake.files()
    with pytest.raises(IntegrityError, match="remove it"):
        convert(load(lake), key_id="keyA", progress_file=path)
    assert lake.files() == before
    first = encrypted_files(lake)
    path.unlink()
    assert convert(load(lake), key_id="keyA", progress_file=path).reused == 0
    left = {Path(one.path).name for one in leftovers(checked(lake), older_than=timedelta(0)).files}
    assert {Path(name).name for name in first} <= left


def test_an_older_file_that_was_put_back(lake: TestLake, path: Path) -> None:
    """After an undo the plain table is what the copies are of. They are used again, or not; rows are right."""
    plain_table(lake, rows=10 * FILES)
    number = stopped(lake, path)
    kept = path.with_name("backup")
    shutil.copy(path, kept)
    convert(load(lake), key_id="keyA", progress_file=path)
    undo_conversion(load(lake))
    theirs = plain_catalog(lake).load_table("db.t")
    theirs.delete("id < 10")
    shutil.copy(kept, path)
    done = convert(load(lake), key_id="keyA", progress_file=path)
    assert number - 1 <= done.reused <= number
    assert ids(checked(lake)) == list(range(10, 10 * FILES))


def test_a_switch_that_is_refused_keeps_what_is_finished(lake: TestLake, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_table(lake, rows=10 * FILES, properties={"commit.retry.num-retries": "0"})
    catalog = lake.catalog()

    def refused(*_: Any) -> Any:
        raise CommitFailedException("another one was faster")

    monkeypatch.setattr(type(catalog), "commit_conversion", refused)
    with pytest.raises(CommitFailedException):
        convert(catalog.load_table("db.t"), key_id="keyA", progress_file=path)
    monkeypatch.undo()
    monkeypatch.setattr(convert_files, "_AT_ONCE", 1)
    assert (finished(path), len(encrypted_files(lake))) == (FILES, FILES)
    assert convert(load(lake), key_id="keyA", progress_file=path).reused == FILES
    assert len(encrypted_files(lake)) == FILES
    assert ids(checked(lake)) == list(range(10 * FILES))


def test_a_disk_that_is_full(lake: TestLake, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be kept is deleted, and what was is used by the next call."""
    from icelock.table.maintenance.conversion import progress_file as module  # noqa: PLC0415

    plain_table(lake, rows=10 * FILES)
    write, room = module.os.write, [2]

    def limited(descriptor: int, data: bytes) -> int:
        if room[0]:
            room[0] -= 1
            return write(descriptor, data)
        write(descriptor, data[:11])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "write", limited)
    with pytest.raises(PolicyError, match="No space left on device"):
        convert(load(lake), key_id="keyA", progress_file=path)
    monkeypatch.setattr(module.os, "write", write)
    assert (finished(path), len(encrypted_files(lake))) == (2, 2)
    assert convert(load(lake), key_id="keyA", progress_file=path).reused == 2
    assert ids(checked(lake)) == list(range(10 * FILES))
    assert leftovers(load(lake), older_than=timedelta(0)).files == ()


def test_a_mixed_table(lake: TestLake, path: Path) -> None:
    wanted = ids(mixed_table(lake, plain_table(lake, rows=10 * FILES)))
    table = lake.catalog(**ALLOW).load_table("db.t")
    last = local(next(one for one in reversed(planned(table)) if pq_is_plain(one)))
    whole = last.read_bytes()
    last.write_bytes(whole[:-9])
    with pytest.raises(IcelockError):
        convert(table, key_id="keyA", progress_file=path)
    last.write_bytes(whole)
    number = finished(path)
    assert number > 0
    assert convert(table, key_id="keyA", progress_file=path).reused == number
    assert ids(checked(lake)) == wanted


def pq_is_plain(location: str) -> bool:
    return local(location).read_bytes()[:4] == b"PAR1"


def pq_is_encrypted(location: str) -> bool:
    return local(location).read_bytes()[:4] == b"PARE"


def test_a_file_without_rows_that_are_left(lake: TestLake, path: Path) -> None:
    """Nothing was written for it, and that is kept, too."""
    table = plain_table(lake, rows=10 * FILES)
    first = planned(table)[0]
    start = min(pq.read_table(local(first))["id"].to_pylist())
    commit_deletes(table, positions(table, first, *range(10)))
    number = stopped(lake, path, empty=1)
    assert convert(load(lake), key_id="keyA", progress_file=path).reused == number
    assert ids(checked(lake)) == [one for one in range(10 * FILES) if not start <= one < start + 10]
