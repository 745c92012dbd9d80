"""The plain files of a converted table: who may remove them, what may come between, and what forged plain manifests can name."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.typedef import Record

from icelock.errors import FormatError, IntegrityError, PolicyError
from icelock.maintenance import convert, leftovers, remove_leftovers, remove_plain, undo_conversion
from icelock.table.maintenance.removal import plain_files
from tests.helpers.tables import ids, local
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.table.test_convert import SCHEMA, plain_catalog, plain_metadata_of, plain_table

REMOVAL = sys.modules["icelock.maintenance.plain_removal"]
PROPERTIES = ("icelock.converted-from", "icelock.removing-plain")


def converted(lake: TestLake) -> tuple[Any, tuple[str, ...]]:
    """A table of 20 rows that was plain, and the plain files that it has left."""
    plain_table(lake)
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA")
    return lake.catalog().load_table("db.t"), done.plain_files


def there(paths: Iterable[str]) -> bool:
    return all(local(path).exists() for path in paths)


# --- what may come between


def before_deletion(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let another client do something once, right before the first deletion."""
    delete, left = REMOVAL.delete_files, [act]

    def deleting(*arguments: Any, **options: Any) -> list[str]:
        while left:
            left.pop()()
        return list(delete(*arguments, **options))

    monkeypatch.setattr(REMOVAL, "delete_files", deleting)


def begun(monkeypatch: pytest.MonkeyPatch, table: Any) -> None:
    """Begin a removal that cannot delete anything."""
    with monkeypatch.context() as patch:
        patch.setattr(REMOVAL, "delete_files", lambda _io, paths, **_options: list(paths))
        assert remove_plain(table).files == ()


def test_nobody_goes_back_once_the_removal_has_begun(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the plain files of what is the plain table again would be deleted."""
    table, plain = converted(lake)
    tried = []

    def undo() -> None:
        with pytest.raises(PolicyError, match="are being removed"):
            undo_conversion(lake.catalog().load_table("db.t"))
        tried.append(True)

    before_deletion(monkeypatch, undo)
    assert (set(remove_plain(table).files), tried) == (set(plain), [True])
    found = lake.catalog().load_table("db.t")
    assert ids(found) == list(range(20))
    assert not set(PROPERTIES) & set(found.properties)


@pytest.mark.parametrize("again", [False, True])
def test_nothing_is_removed_of_a_table_that_went_back_after_the_audit(
    lake: TestLake, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    """Also if it was converted a second time."""
    table, plain = converted(lake)
    check = REMOVAL._check_sound

    def audited(*arguments: Any) -> None:
        check(*arguments)
        undo_conversion(lake.catalog().load_table("db.t"))
        table.catalog.pins.forget(table.name())  # else this client refuses the table that it has seen encrypted
        if again:
            convert(lake.catalog().load_table("db.t"), key_id="keyA")

    monkeypatch.setattr(REMOVAL, "_check_sound", audited)
    with pytest.raises((PolicyError, IntegrityError), match="changed by another client" if again else r"encryption\.key-id changed"):
        remove_plain(table)
    assert there(plain)
    assert ids(lake.catalog().load_table("db.t")) == list(range(20))


def test_a_removal_that_was_interrupted_is_gone_on_with(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile nothing else deletes what is left, and the files that lead to it."""
    table, plain = converted(lake)
    before = table.properties[PROPERTIES[0]]
    begun(monkeypatch, table)
    table = lake.catalog().load_table("db.t")
    assert {name: table.properties[name] for name in PROPERTIES if name in table.properties} == {PROPERTIES[1]: before}
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"})
    for number in range(3):
        table.append(people(100 + number, 1))
    table.maintenance.expire_snapshots().retain_last(1).commit()
    remove_leftovers(table, older_than=timedelta(seconds=-60))
    assert there((*plain, before.partition(" sha256:")[0]))
    with pytest.raises(PolicyError, match="are being removed"):
        undo_conversion(table, drop_commits=True)
    data = [path for path in plain if path.endswith(".parquet")]
    lists = [path for path in plain if "/snap-" in path]
    for path in (*data, lists[0]):  # as a removal does that was killed
        local(path).unlink()
    assert not set(remove_plain(table).files) & {*data, lists[0]}
    assert not [path for path in plain if local(path).exists() and path.endswith(".parquet")]
    assert not set(PROPERTIES) & set(lake.catalog().load_table("db.t").properties)
    assert ids(table) == [*range(20), 100, 101, 102]


def test_plain_files_are_purged_after_a_removal_has_begun(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, plain = converted(lake)
    begun(monkeypatch, table)
    lake.catalog().purge_table("db.t")
    assert not [path for path in plain if local(path).exists()]


def test_what_a_plain_table_says_of_its_origin_does_not_count(lake: TestLake) -> None:
    """PyIceberg's own catalog lets anybody set these."""
    plain_table(lake, properties=dict.fromkeys(PROPERTIES, "file:///x"))
    convert(lake.catalog().load_table("db.t"), key_id="keyA")
    table = lake.catalog().load_table("db.t")
    assert plain_metadata_of(table)
    assert PROPERTIES[1] not in table.properties
    undo_conversion(table, dry_run=True)
    assert remove_plain(table).left == ()
    assert not set(PROPERTIES) & set(table.properties)


# --- what others write


def forge(table: Any, paths: Iterable[str]) -> None:
    """Let the newest plain manifest list name a manifest that names these paths, as anybody can who writes to storage."""
    document = json.loads(local(plain_metadata_of(table)).read_text())
    snapshot = document["snapshots"][-1]
    number, io = snapshot["snapshot-id"], table.storage
    with write_manifest(
        2, UNPARTITIONED_PARTITION_SPEC, SCHEMA, io.new_output(f"{table.location()}/metadata/forged-m0.avro"), number, "null"
    ) as written:
        for path in paths:
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=path,
                file_format=FileFormat.PARQUET,
                partition=Record(),
                record_count=1,
                file_size_in_bytes=10,
            )
            entry = {"snapshot_id": number, "sequence_number": 1, "file_sequence_number": 1}
            written.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file, **entry))
    local(snapshot["manifest-list"]).unlink()
    with write_manifest_list(2, io.new_output(snapshot["manifest-list"]), number, None, 1, "null") as listed:
        listed.add_manifests([written.to_manifest_file()])


def encrypted_files(root: Any) -> list[str]:
    found = [path for path in root.rglob("*") if path.is_file() and path.read_bytes()[:4] in {b"AGS1", b"PARE"}]
    assert found
    return [str(path) for path in found]


def test_a_forged_manifest_names_the_tables_own_files(lake: TestLake) -> None:
    """By their own names, and by others that a link in the folder gives them."""
    table, _ = converted(lake)
    root = local(table.location())
    own = encrypted_files(root)
    (root / "data" / "link").symlink_to(root / "metadata")
    (root / "metadata" / "link").symlink_to(root / "data")
    linked = [path.replace(f"{root}/data/", f"{root}/metadata/link/") for path in own]
    linked += [path.replace(f"{root}/metadata/", f"{root}/data/link/") for path in (*own, local(table.metadata_location).as_posix())]
    older = root / "metadata" / "00000-older.metadata.json"  # in no log any more
    older.write_bytes(local(table.metadata_location).read_bytes())
    forge(table, [*own, *linked, table.metadata_location, str(older)])
    removed = remove_plain(table)
    assert not {*own, *linked, table.metadata_location} & set(removed.files)
    assert there([*own, table.metadata_location, str(older)])
    assert ids(lake.catalog().load_table("db.t")) == list(range(20))


@pytest.mark.parametrize("how", ["remove", "purge"])
def test_a_forged_manifest_names_encrypted_files_of_another_table(lake: TestLake, how: str) -> None:
    """That one has its metadata elsewhere, so only the files themselves tell."""
    table, _ = converted(lake)
    folder = f"{table.location()}/data"
    other = lake.catalog().create_table("db.other", people().schema, properties={**KEYED, "write.data.path": folder})
    other.append(people(0, 3))
    theirs = [task.path for task in other.scan().scan_tasks()]
    assert all(path.startswith(folder) for path in theirs)
    forge(table, theirs)
    remove_plain(table) if how == "remove" else lake.catalog().purge_table("db.t")
    assert ids(lake.catalog().load_table("db.other")) == [0, 1, 2]


@pytest.mark.parametrize("place", ["", "/data/inner"])
def test_another_table_at_the_location_keeps_all_files(lake: TestLake, place: str) -> None:
    """The other one is plain, so its files look like those to remove."""
    table, plain = converted(lake)
    other = plain_catalog(lake).create_table("db.other", SCHEMA, location=f"{table.location()}{place}")
    other.append(people(0, 3))
    forge(table, [task.file.file_path for task in other.scan().plan_files()])
    kept = [path for path in plain if local(path).exists()]
    for use in (remove_plain, lambda _table: lake.catalog().purge_table("db.t")):
        with pytest.raises(PolicyError, match="another table's"):
            use(table)
    assert there(kept)
    lake.catalog().purge_table("db.t", drop_unreadable=True)
    assert ids(plain_catalog(lake).load_table("db.other")) == [0, 1, 2]
    assert there(kept)


def test_rows_of_who_writes_to_storage_do_not_come_back(lake: TestLake) -> None:
    """The file that leads back is the one that was converted, to the byte."""
    table, _ = converted(lake)
    location, _, digest = table.properties["icelock.converted-from"].partition(" sha256:")
    assert digest == hashlib.sha256(local(location).read_bytes()).hexdigest()
    document = json.loads(local(location).read_text())
    document["snapshots"][0]["timestamp-ms"] += 1
    local(location).write_text(json.dumps(document))
    for dry_run in (True, False):
        with pytest.raises(IntegrityError, match="not this table as it was"):
            undo_conversion(table, dry_run=dry_run)
    assert ids(lake.catalog().load_table("db.t")) == list(range(20))


# --- what is gone


def test_a_missing_list_is_not_taken_for_a_removal(lake: TestLake) -> None:
    """Its files would be forgotten; the way out that the message names is there."""
    table, plain = converted(lake)
    gone, *_ = [path for path in plain if "/snap-" in path]
    local(gone).unlink()
    left = set(plain) - {gone}
    for use in (remove_plain, leftovers, undo_conversion):
        with pytest.raises(FormatError, match=r"is gone.*restore that file; or.*take the property out.*icelock leftovers"):
            use(table)
    assert there(left)
    with table.transaction() as change:
        change.remove_properties("icelock.converted-from")
    assert {local(path) for path in left} == {local(file.path) for file in leftovers(table).files}


def test_a_plain_metadata_file_that_is_gone(lake: TestLake) -> None:
    table, _ = converted(lake)
    local(plain_metadata_of(table)).unlink()
    for use in (remove_plain, leftovers, undo_conversion):
        with pytest.raises(IntegrityError, match=r"icelock\.converted-from names .* which is gone.*take the property out"):
            use(table)


@pytest.mark.parametrize("name", PROPERTIES)
def test_users_do_not_set_where_a_table_comes_from(lake: TestLake, name: str) -> None:
    table, _ = converted(lake)
    for one in (table, lake.catalog().create_table("db.other", people().schema, properties=KEYED)):
        with pytest.raises(PolicyError, match="set by icelock convert alone"), one.transaction() as change:
            change.set_properties({name: "file:///x"})
    with pytest.raises(PolicyError, match="set by icelock convert alone"):
        lake.catalog().create_table("db.third", people().schema, properties={**KEYED, name: "file:///x"})


@pytest.mark.parametrize("act", [undo_conversion, remove_plain])
def test_plain_files_are_told_once(lake: TestLake, monkeypatch: pytest.MonkeyPatch, act: Callable[[Any], object]) -> None:
    """Each plain manifest is read once, and so is the metadata file."""
    found, _ = converted(lake)
    read: list[str] = []
    in_order, version = plain_files._in_order, plain_files._bytes_of
    monkeypatch.setattr(plain_files, "_in_order", lambda *given, **more: (read.append("manifests"), in_order(*given, **more))[1])
    monkeypatch.setattr(plain_files, "_bytes_of", lambda *given: (read.append("metadata"), version(*given))[1])
    act(found)
    assert sorted(read) == ["manifests", "metadata"]
