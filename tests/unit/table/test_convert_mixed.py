"""Mixed tables: the key id was set on a table with plain files. Who reads them, what the audit counts, what a conversion makes of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icelock.errors import FormatError, IntegrityError, PolicyError
from icelock.maintenance import audit, convert, leftovers, remove_plain, undo_conversion
from icelock.metadata.manifest import ManifestFile as EncryptedManifest
from icelock.table.maintenance.conversion.mixed import is_mixed
from tests.helpers.counting_kms import KEYS
from tests.helpers.tables import ids, local
from tests.lakes.mixed import ALLOW, mixed_table, set_key_id
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.audit.surgery import Patient
from tests.unit.table.test_convert import plain_table, rows_of

IDS = [*(number for number in range(20) if number != 5), *range(100, 105)]


@pytest.fixture
def mixed(lake: TestLake) -> Any:
    """Two plain files, one of which lost row 5, two older snapshots with plain files, and one encrypted file."""
    plain = plain_table(lake)
    plain.delete("id = 5")
    return mixed_table(lake, plain)


def of(lake: TestLake, **settings: str) -> Any:
    return lake.catalog(**settings).load_table("db.t")


def test_it_is_read_by_policy_only(lake: TestLake, mixed: Any) -> None:
    assert sorted(ids(mixed)) == IDS
    with pytest.raises(PolicyError, match=r"from before the table's key id was set.*allow-unkeyed.*icelock convert"):
        of(lake).scan().to_arrow()


def test_the_policy_is_not_the_tables(lake: TestLake) -> None:
    """Properties of a table lie on storage, where an attacker may write."""
    set_key_id(lake, plain_table(lake), **ALLOW)
    with pytest.raises(PolicyError, match="allow-unkeyed"):
        of(lake).scan().to_arrow()


def test_the_audit_counts_what_is_plain(lake: TestLake, mixed: Any) -> None:
    """Three snapshots of PyIceberg's with a list each; the last one wrote a file of the nine rows that the delete left."""
    plain = plain_files_by_kind(lake)
    assert {kind: len(sizes) for kind, sizes in plain.items()} == {"data": 3, "manifest": 4, "list": 3}
    (report,) = audit(lake.catalog(), "db.t").tables
    assert {code: report.counts[code] for code in ("mixed-table", "plain-file", "plain-manifest", "plain-manifest-list")} == {
        "mixed-table": 1,
        "plain-file": 3,
        "plain-manifest": 4,
        "plain-manifest-list": 3,
    }
    (found,) = (finding for finding in report.findings if finding.code == "mixed-table")
    assert f"plain 3 data files of {sum(plain['data'])} bytes" in found.sentence
    assert f"4 manifests of {sum(plain['manifest'])} bytes" in found.sentence
    assert f"3 manifest lists of {sum(plain['list'])} bytes" in found.sentence
    assert "icelock convert test.db.t" in found.remedy, "as it can be typed"
    convert(mixed, key_id="keyA")
    (report,) = audit(lake.catalog(), "db.t").tables
    assert report.counts == {}


def plain_files_by_kind(lake: TestLake) -> dict[str, list[int]]:
    """Sizes of plain files, by what their names say."""
    found: dict[str, list[int]] = {"data": [], "manifest": [], "list": []}
    for path in plain_on_storage(lake):
        kind = "data" if "/data/" in path else "list" if "/snap-" in path else "manifest"
        found[kind].append(len(lake.files()[path]))
    return found


def test_an_encrypted_file_is_not_exchanged_for_a_plain_one(lake: TestLake, mixed: Any) -> None:
    """By who writes to storage: its entry has a key, so the policy for files without one does not let it through."""
    (path,) = [Path(local(task.file.file_path)) for task in mixed.scan(row_filter="id = 100").plan_files()]
    pq.write_table(people(900, 5), path)
    before = lake.files()
    for act in (lambda: of(lake, **ALLOW).scan().to_arrow(), lambda: convert(of(lake, **ALLOW), key_id="keyA")):
        with pytest.raises(IntegrityError, match=path.name):
            act()
    assert lake.files() == before


def test_an_encrypted_manifest_is_not_exchanged_for_a_plain_one(lake: TestLake, mixed: Any) -> None:
    """Nor one of the plain snapshots for that of the encrypted one: the list, which is authenticated, has its key."""
    manifests = mixed.current_snapshot().manifests(mixed.io)
    (keyed,) = [Path(local(one.manifest_path)) for one in manifests if one.key_metadata]
    plain = [Path(local(one.manifest_path)) for one in manifests if not one.key_metadata]
    keyed.write_bytes(plain[0].read_bytes())
    for act in (lambda: of(lake, **ALLOW).scan().to_arrow(), lambda: convert(of(lake, **ALLOW), key_id="keyA")):
        with pytest.raises(IntegrityError, match=keyed.name):
            act()


def test_what_is_plain_is_believed(lake: TestLake, mixed: Any) -> None:
    """As the threat model says: who writes to storage decides what is in plain files, and so what a conversion makes of them."""
    (path,) = [Path(local(task.file.file_path)) for task in mixed.scan(row_filter="id = 12").plan_files()]
    forged = pq.read_table(path)
    pq.write_table(forged.set_column(1, forged.schema.field(1), pa.array(["forged"] * len(forged), forged.schema.field(1).type)), path)
    convert(of(lake, **ALLOW), key_id="keyA")
    assert of(lake).scan(row_filter="name = 'forged'").count() == 10


@pytest.mark.parametrize("history", ["drop", "refs", "keep"])
def test_one_switch_encrypts_it(lake: TestLake, mixed: Any, history: Any) -> None:
    before = rows_of(mixed)
    assert [row["id"] for row in before] == IDS
    kept = {} if history == "drop" else {one.snapshot_id: rows_of_snapshot(mixed, one.snapshot_id) for one in mixed.snapshots()}
    assert [len(rows) for rows in kept.values()] == ([] if history == "drop" else [10, 20, 19, 24])
    uuid, log = mixed.metadata.table_uuid, len(mixed.metadata.metadata_log)
    done = convert(mixed, key_id="keyA", history=history)
    assert len(done.plain_files) == len(plain_on_storage(lake))
    table = of(lake)
    assert rows_of(table) == before
    kept = kept if history == "keep" else {key: kept[key] for key in list(kept)[-1:]}
    assert {number: rows_of_snapshot(table, number) for number in kept} == kept
    assert table.metadata.table_uuid == uuid
    assert len(table.metadata.metadata_log) == log + 1
    (report,) = audit(lake.catalog(), "db.t", depth=["bytes", "foreign"]).tables
    assert set(report.counts) == {"plain-object-of-conversion"}
    assert sorted(remove_plain(table).files) == sorted(done.plain_files)
    assert plain_on_storage(lake) == set()
    (report,) = audit(lake.catalog(), "db.t", depth=["bytes", "foreign"]).tables
    assert report.counts == {}
    assert rows_of(of(lake)) == before


def rows_of_snapshot(table: Any, number: int) -> Any:
    return sorted(table.scan(snapshot_id=number).to_arrow().to_pylist(), key=lambda row: row["id"])


def plain_on_storage(lake: TestLake) -> set[str]:
    return {path for path, data in lake.files().items() if data[:4] in (b"PAR1", b"Obj\x01")}


def test_row_ids_stay(lake: TestLake, mixed: Any) -> None:
    """Those of encrypted rows; plain ones of version 2 have none, and get some."""
    numbers = "id", "_row_id"
    encrypted = [row for row in mixed.scan(selected_fields=numbers).to_arrow().to_pylist() if row["id"] >= 100]
    assert all(row["_row_id"] is not None for row in encrypted)
    convert(mixed, key_id="keyA")
    found = {row["id"]: row["_row_id"] for row in of(lake).scan(selected_fields=numbers).to_arrow().to_pylist()}
    assert [found[row["id"]] for row in encrypted] == [row["_row_id"] for row in encrypted]
    assert None not in found.values()
    assert len(set(found.values())) == len(IDS)


def test_a_writer_that_began_before_goes_on(lake: TestLake, mixed: Any) -> None:
    """Its KEK is still the table's: the append is made again on the converted table."""
    convert(of(lake, **ALLOW), key_id="keyA")
    mixed.append(people(200, 1))
    assert sorted(ids(of(lake))) == [*IDS, 200]
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert report.counts == {}


def test_a_dry_run_writes_nothing(lake: TestLake, mixed: Any) -> None:
    before = lake.files()
    planned = convert(mixed, key_id="keyA", dry_run=True)
    assert (planned.files, planned.dry_run) == (3, True)
    assert {Path(local(path)).read_bytes()[:4] for path in planned.plain_files} == {b"PAR1", b"Obj\x01"}
    assert lake.files() == before


@pytest.mark.parametrize(
    ("settings", "arguments", "why"),
    [
        ({}, {}, "before its key id was set.*icelock.plaintext-files=allow-unkeyed"),
        (ALLOW, {"key_id": "keyB"}, "encryption.key-id is 'keyA', not 'keyB'.*rotate it afterwards"),
        (ALLOW, {"data_key_length": 32}, "encryption.data-key-length is None, not '32'"),
        (ALLOW, {"copy_to": "db.other"}, "is encrypted.*under its own name"),
    ],
)
@pytest.mark.usefixtures("mixed")
def test_refused(lake: TestLake, settings: dict[str, str], arguments: dict[str, Any], why: str) -> None:
    before = lake.files()
    with pytest.raises(PolicyError, match=why):
        convert(of(lake, **settings), **{"key_id": "keyA", **arguments})
    assert lake.files() == before


def test_a_table_that_is_encrypted_as_a_whole_is_not_converted(lake: TestLake, mixed: Any) -> None:
    """Also one whose plain snapshots are gone, and one that has a plain file under encrypted lists only."""
    convert(mixed, key_id="keyA")
    with pytest.raises(PolicyError, match="encrypted already"):
        convert(of(lake, **ALLOW), key_id="keyA")


def test_plain_manifests_in_encrypted_lists_make_a_table_mixed(lake: TestLake, mixed: Any) -> None:
    """The plain snapshots were expired: only the list of the encrypted one names plain manifests."""
    mixed.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in mixed.snapshots()[:-1]]).commit()
    table = of(lake, **ALLOW)
    assert all(one.key_id for one in table.snapshots())
    convert(table, key_id="keyA")
    assert sorted(ids(of(lake))) == IDS
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert report.counts == {}


def test_there_is_no_way_back(lake: TestLake, mixed: Any) -> None:
    convert(mixed, key_id="keyA")
    with pytest.raises(PolicyError, match=r"encrypted before its conversion.*no way back"):
        undo_conversion(of(lake))


def test_its_plain_files_are_not_left_over(lake: TestLake, mixed: Any) -> None:
    """Nor are the encrypted lists that lead to them, until they were removed."""
    convert(mixed, key_id="keyA")
    assert {file.kind.value for file in leftovers(of(lake)).files} == {"metadata.json"}
    remove_plain(of(lake))
    left = leftovers(of(lake)).files
    assert {file.kind.value for file in left if file.content.value == "encrypted"} == {"data", "manifest", "manifest list"}
    assert {file.kind.value for file in left if file.content.value != "encrypted"} == {"metadata.json"}


def test_the_plain_files_are_told_by_the_keys_of_before(lake: TestLake, mixed: Any) -> None:
    """Lists of the mixed table are sealed under its KEKs, as the master key of then wraps them; a rotation changes that afterwards."""
    done = convert(mixed, key_id="keyA")
    of(lake).maintenance.rotate("wrap", to_key="keyB")
    only_b = {"encryption.kms-impl": "icelock.kms.memory.MemoryKms", "kms.memory.keys.keyB": KEYS["keyB"].hex()}
    without = lake.catalog(**only_b).load_table("db.t")
    assert ids(without) == IDS
    before = plain_on_storage(lake)
    with pytest.raises(FormatError, match=r"it takes the KEKs of then, under master key 'keyA'.*remove_properties"):
        remove_plain(without)
    assert plain_on_storage(lake) == before
    assert sorted(remove_plain(of(lake)).files) == sorted(done.plain_files)
    assert plain_on_storage(lake) == set()


@pytest.mark.parametrize("by_column", [True, False])
def test_one_entry_without_a_key_makes_a_table_mixed(lake: TestLake, monkeypatch: pytest.MonkeyPatch, by_column: bool) -> None:  # noqa: FBT001
    """As Java's add_files leaves it: list and manifest have keys. By columns, as of many files, and by rows."""
    monkeypatch.setattr("icelock.table.maintenance.removal.deletable._MANY_ENTRIES", 0 if by_column else 10_000)
    if not by_column:
        monkeypatch.delitem(sys.modules, "polars", raising=False)
    by_row: list[str] = []
    read = EncryptedManifest.fetch_manifest_entry

    def noted(self: Any, *more: Any, **named: Any) -> Any:
        by_row.append(self.manifest_path)
        return read(self, *more, **named)

    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(pa.concat_tables([people(), people(10)]))
    patient = Patient(Path(local(table.metadata_location)))
    with monkeypatch.context() as patch:
        patch.setattr(EncryptedManifest, "fetch_manifest_entry", noted)
        assert not is_mixed(lake.catalog().load_table("db.t"))
    assert bool(by_row) == (not by_column)
    patient.change_file(lambda file: file.update(key_metadata=None))
    patient.file = patient.file.with_name("00009-6f1b1c1c-7d38-4a4c-9d9e-0c6d5f6f7a10.metadata.json")
    patient.save()
    assert is_mixed(lake.catalog().register_table("db.mixed", str(patient.file)))
