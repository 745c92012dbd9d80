"""What is left over: exactly what nothing reaches, and nothing is deleted on a guess."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.update import RemoveSnapshotsUpdate

import icelock
from icelock.errors import IntegrityError, KmsError, PolicyError
from icelock.maintenance import Content, Kind, leftovers, remove_leftovers
from tests.helpers.table_model import verified
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, TestLake, people

NOTHING = timedelta(0)
MODULE = sys.modules[leftovers.__module__]


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    made.append(people())
    made.append(people(10))
    made.delete("id = 3")
    made.overwrite(people(30, 2), "id >= 10")
    return made


def put(table: Any, name: str, *, hours_old: float = 0, data: bytes = b"AGS1 and more") -> str:
    path = Path(table.location()) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    when = datetime.now(UTC).timestamp() - 3600 * hours_old
    os.utime(path, (when, when))
    return str(path)


def test_a_table_in_order_has_none(lake: TestLake, table: Any) -> None:
    before = lake.files()
    found = leftovers(table)
    assert (found.files, found.keys, found.failed) == ((), (), ())
    assert remove_leftovers(table, older_than=NOTHING).files == ()
    assert lake.files() == before


def test_a_folder_that_the_disk_lists_in_other_letters_is_the_tables(lake: TestLake) -> None:
    """As macOS does where a partition "Oslo" was there before "oslo": there is one folder, with the first one's name."""
    table = lake.catalog().create_table("db.cities", people().schema, properties=KEYED)
    with table.update_spec() as update:
        update.add_identity("name")
    table.append(people())
    folders = sorted(Path(table.location(), "data").glob("name=*"))
    assert folders
    for folder in folders:
        folder.rename(folder.with_name(folder.name.upper()))
    assert leftovers(table).files == ()
    assert remove_leftovers(table, older_than=NOTHING).files == ()
    assert len(list(Path(table.location(), "data").rglob("*.parquet"))) >= len(folders)


def test_each_file_comes_with_its_size_age_and_kind(table: Any) -> None:
    names = {
        "data/00000-0-x-00001.parquet": Kind.DATA,
        "data/city=a/00000-0-x-00001.avro": Kind.DATA,
        "data/x-deletes.puffin": Kind.DELETE,
        "data/00000-0-x-00001-deletes.parquet": Kind.DELETE,
        "metadata/x-m0.avro": Kind.MANIFEST,
        "metadata/snap-12-1-x.avro": Kind.MANIFEST_LIST,
        "metadata/00009-x.metadata.json": Kind.METADATA,
        "metadata/00009-x.gz.metadata.json": Kind.METADATA,
        "metadata/x.stats": Kind.OTHER,
        "notes.txt": Kind.OTHER,
    }
    paths = {put(table, name, hours_old=5, data=b"x" * number): (number, kind) for number, (name, kind) in enumerate(names.items())}
    found = leftovers(table).files
    assert {file.path: (file.size, file.kind) for file in found} == paths
    now = datetime.now(UTC).timestamp() * 1000
    assert all(abs(now - file.modified_ms - 5 * 3_600_000) < 60_000 for file in found)


def test_each_file_is_marked_encrypted_or_plain_by_its_first_bytes(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """AGS1: RFC, "AES GCM Stream"; PARE and PAR1: Parquet, "Encrypted Footer Mode" and plain; Obj1: Avro."""
    begins = {
        "data/a.parquet": (b"PAREx", Content.ENCRYPTED), "data/b.avro": (b"AGS1x", Content.ENCRYPTED),
        "data/c.parquet": (b"PAR1x", Content.PLAIN), "metadata/d-m0.avro": (b"Obj\x01x", Content.PLAIN),
        "data/e.parquet": (b"", Content.EMPTY), "data/f.parquet": (b"PAR", Content.PLAIN),
        "metadata/9.metadata.json": (b"{}", Content.PLAIN), "data/g.parquet": (b"xPARE", Content.PLAIN),
    }  # fmt: skip
    paths = {put(table, name, data=data): content for name, (data, content) in begins.items()}
    assert {file.path: file.content for file in leftovers(table).files} == paths
    first = min(paths)
    opened = type(table.storage).new_input

    def gone(io: Any, location: str) -> Any:
        if location == first:
            raise FileNotFoundError(location)
        return opened(io, location)

    monkeypatch.setattr(type(table.storage), "new_input", gone)
    assert {file.path: file.content for file in leftovers(table).files} == {**paths, first: Content.UNREADABLE}


def test_what_pyiceberg_without_icelock_leaves_behind_is_marked_plain(lake: TestLake, table: Any) -> None:
    """Its append writes the rows before the commit of the snapshot is refused."""
    plain = lake.catalog(**{"icelock.require-encryption": "false"}).create_table("db.plain", people().schema)
    [file] = write_plain(plain, table)
    [found] = leftovers(table).files
    assert (found.path, found.kind, found.content) == (file, Kind.DATA, Content.PLAIN)


def write_plain(plain: Any, table: Any) -> list[str]:
    """Write a data file as PyIceberg does, into the folder of an encrypted table."""
    location = table.location().removeprefix("file://")
    with plain.transaction() as tx:
        tx.set_properties({"write.data.path": f"{location}/data"})
    plain.append(people())
    return [task.file.file_path for task in plain.scan().plan_files()]


def test_only_old_files_of_the_tables_kinds_are_removed(lake: TestLake, table: Any) -> None:
    before = lake.files()
    old = put(table, "data/old.parquet", hours_old=73)
    put(table, "data/young.parquet", hours_old=71)
    put(table, "notes.txt", hours_old=1000)
    assert [file.path for file in remove_leftovers(table).files] == [old]
    assert set(lake.files()) - set(before) == {"db/t/data/young.parquet", "db/t/notes.txt"}
    assert [Path(file.path).name for file in leftovers(table, older_than=timedelta(hours=72)).files] == ["notes.txt"]
    limit = datetime.now(UTC) - timedelta(hours=70)
    assert {Path(file.path).name for file in leftovers(table, older_than=limit).files} == {"young.parquet", "notes.txt"}
    assert {name: data for name, data in lake.files().items() if name in before} == before
    verified_without_text(table)


def verified_without_text(table: Any) -> None:
    (Path(table.location()) / "notes.txt").unlink()
    (Path(table.location()) / "data" / "young.parquet").unlink()
    verified(table)


def test_files_that_go_with_others_belong(table: Any) -> None:
    """Hadoop's checksums and the version hint; a checksum of a file that is left over is left over too."""
    put(table, "metadata/version-hint.text")
    data = Path(table.inspect.files().column("file_path")[0].as_py())
    put(table, f"data/.{data.name}.crc")
    assert leftovers(table).files == ()
    put(table, "data/.gone.parquet.crc")
    assert [(Path(file.path).name, file.kind) for file in leftovers(table).files] == [(".gone.parquet.crc", Kind.DATA)]


def test_what_another_writer_commits_meanwhile_belongs(lake: TestLake, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = MODULE.list_files

    def slow(*arguments: Any) -> Any:
        load(lake).append(people(900, 1))
        yield from listing(*arguments)

    monkeypatch.setattr(MODULE, "list_files", slow)
    assert leftovers(table).files == ()
    assert remove_leftovers(table, older_than=NOTHING).files == ()
    assert 900 in load(lake).scan().to_arrow().column("id").to_pylist()


@pytest.mark.parametrize("pattern", ["snap-*.avro", "*-m0.avro"], ids=["manifest list", "manifest"])
def test_a_file_that_cannot_be_decrypted_stops_it(lake: TestLake, table: Any, pattern: str) -> None:
    put(table, "data/left.parquet", hours_old=1000)
    path = min(lake.warehouse.rglob(pattern))
    path.write_bytes(path.read_bytes()[:-1])
    before = lake.files()
    for look in (leftovers, lambda table: remove_leftovers(table, older_than=NOTHING)):
        with pytest.raises(IntegrityError, match=path.name):
            look(load(lake))
    assert lake.files() == before


def test_a_kms_that_fails_stops_it(lake: TestLake, table: Any) -> None:
    """C-50: also in the middle, when lists under one KEK were read and another KEK cannot be had."""
    catalog = lake.catalog()
    start = catalog.encryption.clock()
    catalog.encryption.clock = lambda: start + 731 * 86_400_000
    catalog.load_table("db.t").append(people(50))
    put(table, "data/left.parquet", hours_old=1000)
    before = lake.files()
    fresh = load(lake)
    kms = fresh.catalog.encryption.kms()
    unwrap, calls = kms.unwrap_key, []

    def once(*arguments: Any) -> bytes:
        calls.append(arguments)
        if len(calls) > 1:
            lake.calls.deny("unwrap")
        return unwrap(*arguments)

    kms.unwrap_key = once
    with pytest.raises(KmsError, match=r"table db\.t"):
        remove_leftovers(fresh, older_than=NOTHING)
    assert len(set(calls)) == 2, "threads that wait for one KEK may each ask for it"
    assert lake.files() == before


def test_no_age_is_not_any_age(lake: TestLake, table: Any) -> None:
    """Files of a writer that is at work look left over; ``leftovers`` may list them."""
    fresh = put(table, "data/fresh.parquet")
    before = lake.files()
    with pytest.raises(PolicyError, match="older_than is None"):
        remove_leftovers(table, older_than=None)  # type: ignore[arg-type]  # what an outsider may give
    assert lake.files() == before
    assert fresh in {file.path for file in leftovers(table, older_than=None).files}


def test_a_storage_that_names_files_otherwise_is_noticed(lake: TestLake, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every file of the table would be left over."""
    listing = MODULE.list_files

    def renamed(*arguments: Any) -> Any:
        for file in listing(*arguments):
            yield type(file)(location=file.location.upper(), size=file.size, modified_ms=file.modified_ms)

    monkeypatch.setattr(MODULE, "list_files", renamed)
    before = lake.files()
    with pytest.raises(IntegrityError, match="does not list"):
        remove_leftovers(table, older_than=NOTHING)
    assert lake.files() == before


def test_another_table_below_this_one_is_left_alone(lake: TestLake, table: Any) -> None:
    catalog = lake.catalog()
    inner = catalog.create_table("db.inner", people().schema, location=f"{table.location()}/inner", properties=KEYED)
    inner.append(people())
    before = lake.files()
    assert any(file.path.startswith(inner.location()) for file in leftovers(table).files)
    with pytest.raises(PolicyError, match="another table"):
        remove_leftovers(table, older_than=NOTHING)
    assert lake.files() == before


def test_key_entries_that_nothing_needs_are_listed_and_go_with_the_next_expiry(table: Any) -> None:
    """As after an expiry by Java: the snapshots go, their keys do not (J-03)."""
    gone = table.snapshots()[:2]
    with table.transaction() as change:
        change._stage((RemoveSnapshotsUpdate(snapshot_ids=[snapshot.snapshot_id for snapshot in gone]),))
    found = leftovers(table)
    assert set(found.keys) == {snapshot.key_id for snapshot in gone}
    assert {file.kind for file in found.files} >= {Kind.MANIFEST_LIST}
    assert set(table.maintenance.expire_snapshots().commit().keys) == set(found.keys)
    assert leftovers(table).keys == ()


def stuck(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Let the storage refuse to delete one file."""
    delete = PyArrowFileIO.delete

    def refuse(self: Any, location: Any) -> None:
        if location == path:
            raise PermissionError(location)
        delete(self, location)

    monkeypatch.setattr(PyArrowFileIO, "delete", refuse)


def test_files_that_cannot_be_deleted_are_told(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [put(table, f"data/{name}.parquet", hours_old=100) for name in ("one", "two")]
    stuck(monkeypatch, paths[0])
    done = remove_leftovers(table)
    assert [file.path for file in done.files] == [paths[1]]
    assert [file.path for file in done.failed] == [paths[0]]


class Blind(FileIO):
    """A FileIO that cannot list."""

    def __init__(self, inner: FileIO) -> None:
        super().__init__({})
        self._inner = inner

    def new_input(self, location: str) -> Any:
        return self._inner.new_input(location)

    def new_output(self, location: str) -> Any:
        return self._inner.new_output(location)

    def delete(self, location: Any) -> None:
        self._inner.delete(location)


@pytest.mark.usefixtures("table")
def test_where_it_does_not_work_it_says_so(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lake.files()
    catalog = lake.catalog()
    open_storage = catalog._load_file_io
    monkeypatch.setattr(catalog, "_load_file_io", lambda *arguments, **named: Blind(open_storage(*arguments, **named)))
    with pytest.raises(PolicyError, match="Blind cannot list"):
        leftovers(catalog.load_table("db.t"))
    with load(lake).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    with pytest.raises(PolicyError, match=r"gc\.enabled"):
        remove_leftovers(load(lake), older_than=NOTHING)
    static = icelock.StaticTable.from_metadata(load(lake).metadata_location, lake.properties())
    with pytest.raises(PolicyError, match="static"):
        leftovers(static)
    assert before.items() <= lake.files().items()


def test_purge_deletes_everything_with_the_tables_keys(lake: TestLake, table: Any) -> None:
    """C-11: three kinds of listings, then the folder is empty."""
    assert table.inspect.all_manifests().num_rows > 3
    assert table.inspect.entries().num_rows > 1
    lake.catalog().purge_table("db.t")
    assert lake.files() == {}
    assert not lake.catalog().table_exists("db.t")


@pytest.mark.usefixtures("table")
def test_purge_without_the_kms_drops_nothing(lake: TestLake) -> None:
    before = lake.files()
    lake.calls.deny("unwrap")
    with pytest.raises(KmsError, match=r"table db\.t"):
        lake.catalog().purge_table("db.t")
    assert lake.files() == before
    assert lake.catalog().table_exists("db.t")


def test_purge_goes_on_after_errors_and_names_what_is_left(lake: TestLake, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table.current_snapshot().manifest_list
    stuck(monkeypatch, path)
    with pytest.raises(OSError, match=Path(path).name):
        lake.catalog().purge_table("db.t")
    assert [Path(name).name for name in lake.files()] == [Path(path).name]
    assert not lake.catalog().table_exists("db.t")


def test_a_table_that_has_the_folder_of_one_that_was_renamed_is_told(lake: TestLake, table: Any) -> None:
    """The new table of the old name gets the same folder: the files of the renamed one look left over."""
    catalog = lake.catalog()
    catalog.rename_table("db.t", "db.renamed")
    again = catalog.create_table("db.t", people().schema, location=table.location(), properties=KEYED)
    again.append(people(50))
    before = lake.files()
    for one in (again, catalog.load_table("db.renamed")):
        with pytest.raises(PolicyError, match="another table's: nothing was deleted"):
            remove_leftovers(one, older_than=NOTHING)
    assert lake.files() == before
    assert catalog.load_table("db.renamed").scan().count() == 11


def test_files_of_a_dropped_table_are_left_over_once_its_metadata_is_gone(lake: TestLake, table: Any) -> None:
    """Dropped without purge, or another catalog's: that cannot be told, so somebody has to say it."""
    catalog = lake.catalog()
    catalog.drop_table("db.t")
    old = set(lake.files())
    again = catalog.create_table("db.t", people().schema, location=table.location(), properties=KEYED)
    again.append(people(50))
    before = lake.files()
    with pytest.raises(PolicyError, match="If that table was dropped, delete its metadata files"):
        remove_leftovers(again, older_than=NOTHING)
    assert lake.files() == before
    gone = {name for name in old if name.endswith(".metadata.json")}
    for name in gone:
        (lake.warehouse / name).unlink()
    removed = {file.path.partition("/warehouse/")[2] for file in remove_leftovers(again, older_than=NOTHING).files}
    assert removed == old - gone
    assert again.scan().count() == 10


def test_a_catalog_of_another_name_in_the_same_database(lake: TestLake) -> None:
    """Its new table, of one version, is at the same place."""
    with lake.catalog().create_table_transaction("db.t", people().schema, properties=KEYED) as creation:
        creation.append(people())
    other = icelock.load_catalog("other", **lake.properties(**{"unique-table-location": "false"}))
    other.create_namespace("db")
    mine = other.create_table("db.t", people().schema, properties=KEYED)
    before = lake.files()
    assert mine.location() == lake.catalog().load_table("db.t").location()
    with pytest.raises(PolicyError, match="two catalogs may share a warehouse"):
        remove_leftovers(mine, older_than=NOTHING)
    assert lake.files() == before


def test_files_stay_while_a_table_of_the_catalog_cannot_be_loaded(lake: TestLake, table: Any) -> None:
    """It may be the one whose files they are."""
    catalog = lake.catalog()
    catalog.rename_table("db.t", "db.renamed")
    again = catalog.create_table("db.t", people().schema, location=table.location(), properties=KEYED)
    kept = Path(table.metadata_location)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:100])
    before = lake.files()
    put(again, "metadata/00000-6f9b.metadata.json", data=whole)
    with pytest.raises(PolicyError, match="another table's: nothing was deleted"):
        remove_leftovers(again, older_than=NOTHING)
    assert set(lake.files()) >= set(before)


def test_files_that_others_may_use_since_just_now_stay(lake: TestLake, table: Any) -> None:
    """``gc.enabled=false`` was set after this object was loaded."""
    put(table, "data/00000-0-x-00001.parquet")
    with lake.catalog().load_table("db.t").transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    before = lake.files()
    for use in (
        lambda: remove_leftovers(table, older_than=NOTHING),
        table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(1)).commit,
    ):
        with pytest.raises(PolicyError, match=r"gc\.enabled"):
            use()
    assert lake.files() == before
