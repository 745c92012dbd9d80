"""Planted faults: each is found, by its code and place, and nothing else is."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow.parquet.encryption import create_encryption_properties

from icelock.audit.report import TableReport
from icelock.audit.storage import StoredBytes
from icelock.errors import KmsError, KmsErrorKind
from icelock.format import aes_gcm
from icelock.format.key_metadata import KeyMetadata
from icelock.kms.keyring import KeyFileProtection, Keyring
from icelock.kms.keyring_file import create_keyring
from icelock.kms.local import LocalKms
from icelock.kms.unlock import KeyFileUnlocker, make_key_file
from icelock.secret import SecretBytes
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.audit.conftest import look
from tests.unit.audit.surgery import Patient, open_stream, path_of, seal_stream

DAY_MS = 86_400_000


def data_file(patient: Patient, index: int = 0) -> Path:
    return path_of(patient.files()[index]["file_path"])


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def plain_parquet(path: Path) -> None:
    pq.write_table(people(), path)


def pad(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))


# ---- what the metadata file says of keys -----------------------------------------------------------------------------------------------


def statistics(patient: Patient) -> str:
    patient.metadata["statistics"] = [
        {
            "snapshot-id": patient.snapshot["snapshot-id"],
            "statistics-path": "/x/a.stats",
            "file-size-in-bytes": 9,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
    ]
    return "/x/a.stats"


def statistics_that_claim_a_key(patient: Patient) -> str:
    """A plain file of anybody's below the location would be called encrypted statistics otherwise."""
    location = statistics(patient)
    patient.metadata["statistics"][0]["key-metadata"] = "AAAA"
    return location


def partition_statistics(patient: Patient) -> str:
    patient.metadata["partition-statistics"] = [{"snapshot-id": 1, "statistics-path": "/x/p.parquet", "file-size-in-bytes": 9}]
    return "/x/p.parquet"


def damaged_entry(patient: Patient) -> str:
    patient.metadata["encryption-keys"].append({"key-id": "k", "encrypted-by-id": "keyA", "encrypted-key-metadata": "not base64"})
    return f"encryption-keys[{len(patient.metadata['encryption-keys']) - 1}]"


def id_twice(patient: Patient) -> str:
    patient.metadata["encryption-keys"].append({**patient.list_entry, "encrypted-key-metadata": "AAAA"})
    return str(patient.list_entry["key-id"])


def kek_of_another_master_key(patient: Patient) -> str:
    kek = aes_gcm.encrypt(b"1123456789012345", os.urandom(12), b"k" * 16)
    patient.metadata["encryption-keys"].append(
        {
            "key-id": "foreign",
            "encrypted-by-id": "keyB",
            "encrypted-key-metadata": base64.b64encode(kek).decode(),
            "properties": {"KEY_TIMESTAMP": "1"},
        }
    )
    return "foreign"


def foreign_entry(patient: Patient) -> str:
    """An entry of another table, whose KEK is not this one."""
    sealed = aes_gcm.encrypt(b"another table's!", os.urandom(12), patient.list_key().encode(), b"1")
    patient.list_entry["encrypted-key-metadata"] = base64.b64encode(sealed).decode()
    return str(patient.list_entry["key-id"])


def unneeded_entry(patient: Patient) -> str:
    patient.metadata["encryption-keys"].append({**patient.list_entry, "key-id": "nobody's"})
    return "nobody's"


def entry_without_kek(patient: Patient) -> str:
    patient.metadata["encryption-keys"].append({**patient.list_entry, "key-id": "deep", "encrypted-by-id": patient.list_entry["key-id"]})
    return "deep"


def changed_kek(patient: Patient) -> str:
    blob = bytearray(base64.b64decode(patient.kek_entry["encrypted-key-metadata"]))
    blob[-1] ^= 1
    patient.kek_entry["encrypted-key-metadata"] = base64.b64encode(blob).decode()
    return str(patient.kek_entry["key-id"])


def older_timestamp(patient: Patient) -> str:
    """An old KEK that is made to look new: its timestamp is in the AAD of all that it opens."""
    patient.kek_entry["properties"]["KEY_TIMESTAMP"] = str(int(patient.kek_entry["properties"]["KEY_TIMESTAMP"]) + 1)
    return str(patient.list_entry["key-id"])


def snapshot_key_missing(patient: Patient) -> str:
    patient.metadata["snapshots"][0]["key-id"] = "lost"
    return "lost"


def snapshot_key_is_kek(patient: Patient) -> str:
    kek = str(patient.kek_entry["key-id"])
    patient.metadata["snapshots"][0]["key-id"] = kek
    return kek


def short_key_length(patient: Patient) -> str:
    patient.metadata["properties"]["encryption.data-key-length"] = "17"
    return str(patient.file)


def stripped(patient: Patient) -> str:
    del patient.metadata["properties"]["encryption.key-id"]
    return str(patient.file)


def downgraded(patient: Patient) -> str:
    patient.metadata["format-version"] = 2
    return str(patient.file)


def plain_table(patient: Patient) -> str:
    del patient.metadata["properties"]["encryption.key-id"], patient.metadata["encryption-keys"]
    patient.metadata["snapshots"] = []
    return str(patient.file)


def old_kek_in_use(patient: Patient) -> str:
    patient.metadata["snapshots"][0]["timestamp-ms"] += 731 * DAY_MS
    return str(patient.kek_entry["key-id"])


def snapshot_of_version_1(patient: Patient) -> str:
    """A snapshot that names its manifests itself, as those of version 1 may: Java reads them at any version."""
    old = {"snapshot-id": 77, "timestamp-ms": patient.snapshot["timestamp-ms"], "manifests": ["file:///x/m.avro"], "schema-id": 0}
    patient.metadata["snapshots"].append(old)
    return "snapshot 77"


def current_snapshot_lost(patient: Patient) -> str:
    """All rows gone, by one who has no key: the snapshot that has them is not the current one any more."""
    patient.metadata["current-snapshot-id"] = patient.metadata["refs"]["main"]["snapshot-id"] = 5
    return str(patient.file)


def current_snapshot_is_not_mains(patient: Patient) -> str:
    patient.metadata["current-snapshot-id"] = -1
    return str(patient.file)


def tag_of_no_snapshot(patient: Patient) -> str:
    patient.metadata["refs"]["gone"] = {"snapshot-id": 5, "type": "tag"}
    return str(patient.file)


def snapshot_twice(patient: Patient) -> str:
    patient.metadata["snapshots"].append(dict(patient.snapshot))
    return str(patient.file)


Fault = Callable[[Patient], str]
METADATA: list[tuple[str, Fault, set[str]]] = [
    ("statistics-in-the-clear", statistics, set()),
    ("statistics-in-the-clear", statistics_that_claim_a_key, set()),
    ("statistics-in-the-clear", partition_statistics, set()),
    ("key-entry-damaged", damaged_entry, set()),
    ("key-id-twice", id_twice, set()),
    ("kek-of-another-master-key", kek_of_another_master_key, {"key-entry-unneeded", "kek-past-its-time", "master-key-missing"}),
    ("key-entry-does-not-open", foreign_entry, set()),
    ("key-entry-unneeded", unneeded_entry, set()),
    ("key-entry-without-kek", entry_without_kek, {"key-entry-unneeded"}),
    ("kek-does-not-open", changed_kek, set()),
    ("key-entry-does-not-open", older_timestamp, set()),
    ("snapshot-key-missing", snapshot_key_missing, {"key-entry-unneeded"}),
    ("snapshot-key-is-kek", snapshot_key_is_kek, {"key-entry-unneeded"}),
    ("key-length-invalid", short_key_length, set()),
    ("key-id-removed", stripped, set()),
    ("key-id-removed", downgraded, set()),
    ("plain-table", plain_table, {"metadata-incoherent"}),
    ("metadata-incoherent", current_snapshot_lost, set()),
    ("metadata-incoherent", current_snapshot_is_not_mains, set()),
    ("metadata-incoherent", tag_of_no_snapshot, set()),
    ("metadata-incoherent", snapshot_twice, set()),
    ("plain-manifest-list", snapshot_of_version_1, set()),
    ("snapshot-under-old-kek", old_kek_in_use, set()),
]


@pytest.mark.parametrize(("code", "plant", "beside"), METADATA, ids=lambda value: getattr(value, "__name__", ""))
def test_faults_of_the_metadata_file(patient: Patient, code: str, plant: Fault, beside: set[str]) -> None:
    what = plant(patient)
    patient.save()
    report = look(patient.file)
    assert set(report.counts) == {code, *beside}
    assert what in {finding.what for finding in report.findings if finding.code == code}


def test_a_sound_table_has_none(patient: Patient) -> None:
    patient.save()
    report = look(patient.file, "bytes", "foreign")
    assert (report.counts, report.unseen_count, report.verdict.value) == ({}, 0, "sound")
    assert {kind: encrypted.files for kind, (encrypted, _) in report.files.items()} == {
        "manifest lists": 1,
        "manifests": 2,
        "data files": 3,
        "delete files": 1,
        "statistics": 0,
    }
    assert [(one.encrypted, one.plain, one.refs, one.current) for one in report.snapshots] == [(4, 0, ("main",), True)]
    assert [(one.opens, one.refs, one.reached, one.lost) for one in report.keks] == [
        (True, ("main",), report.master_keys[0].lost, report.master_keys[0].lost)
    ]
    assert report.master_keys[0].lost.files == 1 + 2 + 3 + 1
    stored = sum(path.stat().st_size for path in patient.file.parent.parent.rglob("*") if path.is_file() and path.suffix != ".json")
    assert report.master_keys[0].lost.bytes == stored


def test_a_kek_without_a_timestamp_and_one_of_a_clock_that_was_ahead(patient: Patient) -> None:
    times = patient.kek_entry["properties"]
    now = int(times["KEY_TIMESTAMP"])
    assert set(look(patient.file, now_ms=now - DAY_MS).counts) == {"kek-from-the-future"}
    assert set(look(patient.file, now_ms=now + 730 * DAY_MS).counts) == {"kek-past-its-time"}
    assert look(patient.file, now_ms=now + 730 * DAY_MS).verdict.value == "sound"
    assert look(patient.file, now_ms=now + 730 * DAY_MS - 1).counts == {}
    for text in ("", "soon", "-5"):
        times["KEY_TIMESTAMP"] = text
        patient.save()
        assert set(look(patient.file).counts) == {"kek-timestamp-wrong", "key-entry-does-not-open"}


@pytest.mark.parametrize(
    ("kind", "code"), [(KmsErrorKind.MISSING, "master-key-missing"), (KmsErrorKind.DISABLED, "master-key-disabled")], ids=str
)
def test_a_master_key_that_is_gone_is_a_finding(patient: Patient, kind: KmsErrorKind, code: str) -> None:
    class Gone:
        def unwrap_key(self, _blob: bytes, key_id: str) -> bytes:
            msg = "no"
            raise KmsError(msg, kind=kind, key_id=key_id)

    report = look(patient.file, kms=Gone())
    assert (report.counts, report.verdict.value) == ({code: 1}, "findings")
    assert [kek.opens for kek in report.keks] == [False]


@pytest.mark.parametrize("kind", [KmsErrorKind.DENIED, KmsErrorKind.UNAVAILABLE], ids=str)
def test_a_kms_that_does_not_answer_is_none(patient: Patient, kind: KmsErrorKind) -> None:
    class Away:
        def unwrap_key(self, _blob: bytes, key_id: str) -> bytes:
            msg = "no"
            raise KmsError(msg, kind=kind, key_id=key_id)

    report = look(patient.file, "open", kms=Away())
    assert (report.counts, report.verdict.value, report.unseen_count) == ({}, "could not look", 1)


@pytest.mark.parametrize("setting", ["kms.local.path", "kms.local.key-file"])
def test_a_keyring_that_is_not_there_says_nothing_of_its_keys(patient: Patient, tmp_path: Path, setting: str) -> None:
    """Exit code 2 of docs/how-to/audit.md: no KMS."""
    files = {"kms.local.path": tmp_path / "keyring.json", "kms.local.key-file": tmp_path / "key"}
    make_key_file(files["kms.local.key-file"])
    create_keyring(files["kms.local.path"], KeyFileUnlocker(path=files["kms.local.key-file"]), Keyring(protection=KeyFileProtection()))
    settings = {name: str(path) for name, path in files.items()}
    assert look(patient.file, kms=LocalKms(settings)).counts == {"master-key-missing": 1}
    kms = LocalKms(settings)
    files[setting].unlink()
    report = look(patient.file, kms=kms)
    assert (report.counts, report.verdict.value, report.unseen_count) == ({}, "could not look", 1)
    assert str(files[setting]) in str(report.unseen)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b"\x1f\x8b12345678", b'{"format-version": 3}', b'{"format-version": {}, "location": 1}']
)
def test_a_metadata_file_that_is_none(patient: Patient, data: bytes) -> None:
    patient.file.write_bytes(data)
    assert look(patient.file).counts == {"metadata-damaged": 1}


def test_a_metadata_file_that_is_gone(patient: Patient) -> None:
    patient.file.unlink()
    assert look(patient.file).counts == {"metadata-missing": 1}


# ---- files as storage has them ---------------------------------------------------------------------------------------------------------


def list_gone(patient: Patient) -> Path:
    patient.list_path.unlink()
    return patient.list_path


def manifest_gone(patient: Patient) -> Path:
    path = path_of(patient.list_rows()[0]["manifest_path"])
    path.unlink()
    return path


def data_gone(patient: Patient) -> Path:
    data_file(patient).unlink()
    return data_file(patient)


def list_cut(patient: Patient) -> Path:
    pad(patient.list_path, patient.list_path.stat().st_size - 1)
    return patient.list_path


def data_longer(patient: Patient) -> Path:
    path = data_file(patient)
    pad(path, path.stat().st_size + 1)
    return path


def vector_cut(patient: Patient) -> Path:
    path = path_of(patient.files(1)[0]["file_path"])
    pad(path, path.stat().st_size - 1)
    return path


def list_changed(patient: Patient) -> Path:
    flip(patient.list_path, 100)
    return patient.list_path


def manifest_changed(patient: Patient) -> Path:
    path = path_of(patient.list_rows()[0]["manifest_path"])
    flip(path, -1)
    return path


def vector_changed(patient: Patient) -> Path:
    path = path_of(patient.files(1)[0]["file_path"])
    flip(path, 30)
    return path


def footer_changed(patient: Patient) -> Path:
    flip(data_file(patient), -20)
    return data_file(patient)


def unique_changed(patient: Patient) -> Path:
    """aad_file_unique, which no tag protects but that of the footer."""
    path = data_file(patient)
    data = path.read_bytes()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    flip(path, start + 4)
    return path


def algorithm_changed(patient: Patient) -> Path:
    """AES_GCM_V1 to AES_GCM_CTR_V1: pages would be read without a tag."""
    path = data_file(patient)
    data = bytearray(path.read_bytes())
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    assert data[start : start + 3] == b"\x1c\x1c\x28"
    data[start + 1] = 0x2C
    path.write_bytes(bytes(data))
    return path


def replaced_by_plain(patient: Patient) -> Path:
    path = data_file(patient)
    size = path.stat().st_size
    plain_parquet(path)
    data = path.read_bytes()
    path.write_bytes((data[:4] + b"\0" * max(0, size - len(data)) + data[4:])[: size - 4] + b"PAR1")
    return path


def replaced_by_noise(patient: Patient) -> Path:
    path = data_file(patient)
    path.write_bytes(b"x" * path.stat().st_size)
    return path


def list_replaced_by_noise(patient: Patient) -> Path:
    patient.list_path.write_bytes(b"x" * patient.list_path.stat().st_size)
    return patient.list_path


def files_exchanged(patient: Patient) -> Path:
    """Two files of one length: only their keys tell them apart."""
    paths = {path_of(one["file_path"]): path_of(one["file_path"]).stat().st_size for one in patient.files()}
    one, two = next((a, b) for a in paths for b in paths if a != b and paths[a] == paths[b])
    shutil.copyfile(one, two)
    return two


STORAGE: list[tuple[str, Callable[[Patient], Path]]] = [
    ("file-missing", list_gone),
    ("file-missing", manifest_gone),
    ("file-missing", data_gone),
    ("file-length-differs", list_cut),
    ("file-length-differs", data_longer),
    ("file-length-differs", vector_cut),
    ("block-does-not-authenticate", list_changed),
    ("block-does-not-authenticate", manifest_changed),
    ("block-does-not-authenticate", vector_changed),
    ("footer-does-not-authenticate", footer_changed),
    ("footer-does-not-authenticate", unique_changed),
    ("footer-does-not-authenticate", files_exchanged),
    ("algorithm-without-authentication", algorithm_changed),
    ("file-not-encrypted", replaced_by_plain),
    ("file-not-encrypted", replaced_by_noise),
    ("file-not-encrypted", list_replaced_by_noise),
]


@pytest.mark.parametrize(("code", "plant"), STORAGE, ids=lambda value: getattr(value, "__name__", ""))
def test_faults_of_storage(
    patient: Patient, look_both_ways: Callable[..., TableReport], code: str, plant: Callable[[Patient], Path]
) -> None:
    path = plant(patient)
    report = look_both_ways(patient.file, "open")
    assert [(finding.code, path_of(finding.what)) for finding in report.findings] == [(code, path)]
    assert look(patient.file, "metadata").counts == {}


def test_every_byte_of_every_page_is_read_at_depth_bytes(patient: Patient, look_both_ways: Callable[..., TableReport]) -> None:
    """A flip anywhere before the footer: at depth ``open`` most pass, at depth ``bytes`` none does."""
    path = data_file(patient)
    sound = path.read_bytes()
    end = len(sound) - 8 - struct.unpack("<I", sound[-8:-4])[0]
    for at in (*range(4, end, 61), end - 1):
        flip(path, at)
        assert look(patient.file, "open").counts == {}
        assert look_both_ways(patient.file, "bytes").counts == {"page-does-not-authenticate": 1}, at
        path.write_bytes(sound)
    flip(path, 0)
    assert look(patient.file, "open").counts == {"file-not-encrypted": 1}


# ---- what was written wrongly, with the right keys -------------------------------------------------------------------------------------


def plain_file(patient: Patient) -> str:
    plain_parquet(data_file(patient))
    size = data_file(patient).stat().st_size
    patient.change_file(lambda file: file.update(key_metadata=None, file_size_in_bytes=size))
    return str(patient.files()[0]["file_path"])


def plain_manifest(patient: Patient) -> str:
    def strip(rows: list[Any]) -> None:
        path, key = path_of(rows[0]["manifest_path"]), KeyMetadata.decode(rows[0]["key_metadata"])
        path.write_bytes(open_stream(path.read_bytes(), key))
        rows[0].update(key_metadata=None, manifest_length=path.stat().st_size)

    patient.change_list(strip)
    return str(patient.list_rows()[0]["manifest_path"])


def plain_list(patient: Patient) -> str:
    path, key = patient.list_path, patient.list_key()
    path.write_bytes(open_stream(path.read_bytes(), key))
    gone = patient.snapshot["key-id"]
    del patient.metadata["snapshots"][0]["key-id"]
    patient.metadata["encryption-keys"] = [one for one in patient.metadata["encryption-keys"] if one["key-id"] != gone]
    return str(patient.snapshot["manifest-list"])


def test_a_plain_list_is_opened_once(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plain_list(patient)
    patient.save()
    opened: list[str] = []
    made = StoredBytes.__init__
    monkeypatch.setattr(StoredBytes, "__init__", lambda self, io, location: (opened.append(location), made(self, io, location))[1])
    _, plain = look(patient.file, "open").files["manifest lists"]
    assert opened.count(path) == 1
    assert (plain.files, plain.bytes) == (1, patient.list_path.stat().st_size)


def key_used_twice(patient: Patient) -> str:
    """A writer that gave one key to a manifest list and a manifest."""
    first = KeyMetadata.decode(patient.list_rows()[0]["key_metadata"])
    path = patient.list_path
    data, sealed = seal_stream(open_stream(path.read_bytes(), patient.list_key()), first)
    path.write_bytes(data)
    patient.set_list_key(sealed)
    return str(patient.list_rows()[0]["manifest_path"])


def two_keys_for_one_file(patient: Patient) -> str:
    def other(rows: list[Any]) -> None:
        file = rows[0]["data_file"]
        again = {**file, "key_metadata": changed_key(file["key_metadata"], dek=SecretBytes(b"k" * 16))}
        rows.append({**rows[0], "data_file": again})

    patient.change_manifest(other)
    return str(patient.files()[0]["file_path"])


def two_keys_for_one_manifest(patient: Patient) -> str:
    def other(rows: list[Any]) -> None:
        rows.append({**rows[0], "key_metadata": changed_key(rows[0]["key_metadata"], dek=SecretBytes(b"k" * 16))})

    patient.change_list(other)
    return str(patient.list_rows()[0]["manifest_path"])


def changed_key(blob: bytes, **change: Any) -> bytes:
    key = KeyMetadata.decode(blob)
    values = {"dek": key.dek, "aad_prefix": key.aad_prefix, "encrypted_length": key.encrypted_length, **change}
    return KeyMetadata(**values).encode()


def set_key(patient: Patient, **change: Any) -> str:
    patient.change_file(lambda file: file.update(key_metadata=changed_key(file["key_metadata"], **change)))
    return str(patient.files()[0]["file_path"])


def without_length(patient: Patient) -> str:
    return set_key(patient, encrypted_length=None)


def promised_length(patient: Patient) -> str:
    patient.change_file(lambda file: file.update(file_size_in_bytes=file["file_size_in_bytes"] + 1))
    return str(patient.files()[0]["file_path"])


def manifest_length(patient: Patient) -> str:
    patient.change_list(lambda rows: rows[0].update(manifest_length=rows[0]["manifest_length"] + 1))
    return str(patient.list_rows()[0]["manifest_path"])


def record_count(patient: Patient) -> str:
    patient.change_file(lambda file: file.update(record_count=file["record_count"] + 1))
    return str(patient.files()[0]["file_path"])


def orc(patient: Patient) -> str:
    patient.change_file(lambda file: file.update(file_format="ORC"))
    return str(patient.files()[0]["file_path"])


def key_metadata_of_another_version(patient: Patient) -> str:
    patient.change_file(lambda file: file.update(key_metadata=b"\x02" + file["key_metadata"][1:]))
    return str(patient.files()[0]["file_path"])


def longer_keys_promised(patient: Patient) -> str:
    patient.metadata["properties"]["encryption.data-key-length"] = "32"
    return str(patient.files()[0]["file_path"])


def in_the_clear_at_its_end(patient: Patient, algorithm: str = "AES_GCM_V1") -> str:
    """A writer that encrypts pages only: names and bounds of columns are in the footer."""
    path, key = data_file(patient), KeyMetadata.decode(patient.files()[0]["key_metadata"])
    keys = create_encryption_properties(
        footer_key=key.dek.reveal(),
        aad_prefix=key.aad_prefix,
        store_aad_prefix=False,
        plaintext_footer=True,
        encryption_algorithm=algorithm,
    )
    pq.write_table(people(), path, encryption_properties=keys)
    size = path.stat().st_size
    patient.change_file(
        lambda file: file.update(key_metadata=changed_key(file["key_metadata"], encrypted_length=size), file_size_in_bytes=size)
    )
    return str(patient.files()[0]["file_path"])


def in_the_clear_and_without_tags(patient: Patient) -> str:
    return in_the_clear_at_its_end(patient, "AES_GCM_CTR_V1")


def no_manifest(patient: Patient) -> str:
    data, sealed = seal_stream(b"Obj\x01 and then nothing of Avro", patient.list_key())
    patient.list_path.write_bytes(data)
    patient.set_list_key(sealed)
    return str(patient.snapshot["manifest-list"])


WRITTEN: list[tuple[str, Fault, set[str]]] = [
    ("plain-file", plain_file, {"mixed-table"}),
    ("plain-manifest", plain_manifest, {"mixed-table"}),
    ("plain-manifest-list", plain_list, {"mixed-table"}),
    ("key-used-twice", key_used_twice, set()),
    ("two-keys-for-one-file", two_keys_for_one_file, set()),
    ("two-keys-for-one-file", two_keys_for_one_manifest, set()),
    ("key-metadata-without-length", without_length, set()),
    ("promised-length-differs", promised_length, set()),
    ("promised-length-differs", manifest_length, set()),
    ("record-count-differs", record_count, set()),
    ("footer-in-the-clear", in_the_clear_at_its_end, set()),
    ("algorithm-without-authentication", in_the_clear_and_without_tags, set()),
    ("format-not-encryptable", orc, set()),
    ("key-metadata-damaged", key_metadata_of_another_version, set()),
    ("dek-too-short", longer_keys_promised, set()),
    ("manifest-damaged", no_manifest, set()),
]


@pytest.mark.parametrize(("code", "plant", "beside"), WRITTEN, ids=lambda value: getattr(value, "__name__", ""))
def test_faults_of_writers_that_have_the_keys(
    patient: Patient, look_both_ways: Callable[..., TableReport], code: str, plant: Fault, beside: set[str]
) -> None:
    what = plant(patient)
    patient.save()
    report = look_both_ways(patient.file, "open")
    assert set(report.counts) == {code, *beside}
    assert what in {finding.what for finding in report.findings if finding.code == code}


def test_a_stream_whose_key_metadata_has_no_aad_prefix(patient: Patient) -> None:
    key = patient.list_key()
    plain = open_stream(patient.list_path.read_bytes(), key)
    data, sealed = seal_stream(plain, KeyMetadata(dek=key.dek, aad_prefix=None, encrypted_length=None))
    patient.list_path.write_bytes(data)
    patient.set_list_key(sealed)
    patient.save()
    assert look(patient.file, "open").counts == {"key-metadata-without-aad-prefix": 1}


# ---- objects that nobody needs ---------------------------------------------------------------------------------------------------------


def test_every_object_below_the_location_is_looked_at(patient: Patient) -> None:
    data = patient.file.parent.parent / "data"
    plain_parquet(data / "forgotten.parquet")
    (data / "notes.csv").write_text("card,4000")
    shutil.copyfile(data_file(patient), data / "left.parquet")
    shutil.copyfile(patient.list_path, patient.file.parent / "snap-left.avro")
    (data / "_SUCCESS").touch()
    (data / ".x.crc").write_bytes(b"crc\0 and some")
    plain_parquet(data / "x.metadata.json")
    (patient.file.parent / "1.gz.metadata.json").write_bytes(gzip.compress(b"card,4000"))
    (patient.file.parent / "version-hint.text").write_text("card,4000")
    (data / "version-hint.text").write_text("12\n")
    report = look(patient.file, "foreign")
    assert report.counts == {"plain-object": 5}
    assert {path_of(finding.what).name for finding in report.findings} == {
        "forgotten.parquet",
        "notes.csv",
        "x.metadata.json",
        "1.gz.metadata.json",
        "version-hint.text",
    }
    assert "4000" not in json.dumps(report.to_json())
    assert {kind: found.files for kind, found in report.objects.items()} == {
        "encrypted, reached": 7,
        "encrypted, left over": 2,
        "plain, reached": 0,
        "plain, left over": 5,
        "metadata": len(list(patient.file.parent.glob("0*.metadata.json"))) + 1,
        "statistics": 0,
        "other": 2,
    }


def test_findings_of_a_code_are_kept_up_to_a_number_and_counted_beyond(patient: Patient) -> None:
    for number in range(25):
        (patient.file.parent / f"{number}.csv").write_text("x")
    report = look(patient.file, "foreign")
    assert (report.counts, len(report.findings), report.wrong) == ({"plain-object": 25}, 10, 25)


def test_a_list_that_was_given_to_another_snapshot(lake: TestLake) -> None:
    """Rolled back by one who has no key: the newest snapshot gets the list and the key entry of an older one, which authenticate."""
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0, 30))
    table.append(people(30, 30))
    file = path_of(table.refresh().metadata_location)
    metadata = json.loads(file.read_text(encoding="utf-8"))
    older, newer = sorted(metadata["snapshots"], key=lambda one: one["sequence-number"])
    for name in ("manifest-list", "key-id"):
        older[name], newer[name] = newer[name], older[name]
    file.write_text(json.dumps(metadata), encoding="utf-8")
    report = look(file, "open")
    assert report.counts == {"manifest-list-exchanged": 2}
    assert {finding.what for finding in report.findings} == {older["manifest-list"], newer["manifest-list"]}


def test_a_link_to_a_folder_hides_nothing_from_the_listing(patient: Patient, tmp_path: Path) -> None:
    """It is not followed, as it may lead back: what is behind it was not looked at."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "rows.csv").write_text("4000 1234 5678 0001,Ann")
    link = data_file(patient).parent / "linked"
    link.symlink_to(tmp_path / "elsewhere")
    report = look(patient.file, "foreign")
    assert (report.verdict, [path_of(one.what) for one in report.unseen]) == ("could not look", [link])
    assert "symbolic link to a folder" in report.unseen[0].why


def test_an_object_that_cannot_be_read_hides_no_other(patient: Patient) -> None:
    """Arrow cannot open a name that is not UTF-8; whoever writes to storage can make one."""
    folder = data_file(patient).parent
    for name in (b"a\xff.bin", b"b\xff.metadata.json", b"z\xff.bin"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"x")
    rows = folder / "rows.csv"
    rows.write_text("4000 1234 5678 0001,Ann")
    report = look(patient.file, "foreign")
    assert [(one.code, path_of(one.what)) for one in report.findings] == [("plain-object", rows)]
    assert report.unseen_count == 3
