"""Every AGS1 file of the golden tables, as Java 1.12.0 wrote it, through this layer alone.

The way down is walked by hand: master key, KEK, manifest-list key, manifest list, manifests, Avro and Puffin files.
"""

from __future__ import annotations

import fastavro
import pytest

from icelock.errors import IntegrityError
from icelock.format import aes_gcm
from icelock.format.encrypted_key import KEY_TIMESTAMP, EncryptedKey
from icelock.format.key_metadata import KeyMetadata
from icelock.io.files import EncryptedInputFile
from tests.golden.relocate import RelocatingFileIO, table_info

TABLES = ["avro_data", "cow_update", "ctas", "evolve", "key32", "maint", "mor_dv", "part_parquet", "refs", "stats", "types_parquet"]
FILES = RelocatingFileIO()


def manifest_lists(table):
    """Location and key metadata bytes of each snapshot's manifest list."""
    info = table_info(table)
    keys = {key.key_id: key for key in map(EncryptedKey.from_json, info["encryption_keys"])}
    for snapshot in info["snapshots"]:
        list_key = keys[snapshot["key-id"]]
        kek = keys[list_key.encrypted_by_id]
        raw_kek = aes_gcm.decrypt(info["kms_keys_utf8"][kek.encrypted_by_id].encode(), kek.encrypted_key_metadata)
        timestamp = kek.properties[KEY_TIMESTAMP].encode()
        yield snapshot["manifest-list"], aes_gcm.decrypt(raw_kek, list_key.encrypted_key_metadata, timestamp)


def opened(location, key_metadata):
    return EncryptedInputFile(FILES.new_input(location), KeyMetadata.decode(key_metadata)).open()


def rows(location, key_metadata):
    with opened(location, key_metadata) as stream:
        return list(fastavro.reader(stream))


def manifests(table):
    return {row["manifest_path"]: row for location, key in manifest_lists(table) for row in rows(location, key)}


def data_files(table):
    entries = (entry for path, row in manifests(table).items() for entry in rows(path, row["key_metadata"]))
    return {entry["data_file"]["file_path"]: entry["data_file"] for entry in entries}


@pytest.mark.parametrize("table", TABLES)
def test_javas_key_metadata_encodes_to_the_same_bytes_at_every_level(table):
    """C-04."""
    keys = [key for _, key in manifest_lists(table)]
    keys += [row["key_metadata"] for row in manifests(table).values()]
    keys += [file["key_metadata"] for file in data_files(table).values()]
    assert len(keys) >= 3
    for key in keys:
        decoded = KeyMetadata.decode(key)
        assert decoded.encode() == key
        assert len(decoded.dek) == (32 if table == "key32" else 16)
        assert len(decoded.aad_prefix) == 16


@pytest.mark.parametrize("table", TABLES)
def test_javas_lengths_are_those_on_storage(table):
    """C-01: key metadata of lists, manifests and data files, and manifest_length (field 501)."""
    for location, key in manifest_lists(table):
        assert KeyMetadata.decode(key).encrypted_length == FILES.local_path(location).stat().st_size
    for path, row in manifests(table).items():
        assert KeyMetadata.decode(row["key_metadata"]).encrypted_length == row["manifest_length"] == FILES.local_path(path).stat().st_size
    for path, file in data_files(table).items():
        stored = FILES.local_path(path)
        if stored.exists():
            assert KeyMetadata.decode(file["key_metadata"]).encrypted_length == file["file_size_in_bytes"] == stored.stat().st_size


def test_javas_avro_data_files_are_read():
    files = data_files("avro_data")
    assert files
    for path, file in files.items():
        assert file["file_format"] == "AVRO"
        assert len(rows(path, file["key_metadata"])) == file["record_count"]


def test_javas_deletion_vectors_are_read_at_their_place():
    deletes = [file for file in data_files("mor_dv").values() if file["file_format"] == "PUFFIN"]
    assert deletes
    for file in deletes:
        with opened(file["file_path"], file["key_metadata"]) as stream:
            assert stream.read(4) == b"PFA1"
            stream.seek(file["content_offset"] + 4)
            assert stream.read(4) == bytes.fromhex("d1d33964")
            stream.seek(-4, 2)
            assert stream.read() == b"PFA1"


def test_each_java_file_is_refused_with_another_files_key():
    """C-62."""
    first, second = list(manifests("mor_dv").values())[:2]
    swapped = KeyMetadata.decode(second["key_metadata"])
    metadata = KeyMetadata(dek=swapped.dek, aad_prefix=swapped.aad_prefix, encrypted_length=first["manifest_length"])
    with pytest.raises(IntegrityError, match="does not authenticate") as caught:
        EncryptedInputFile(FILES.new_input(first["manifest_path"]), metadata).open()
    assert first["manifest_path"] in str(caught.value)


def test_a_java_file_with_the_key_metadata_of_a_longer_one_is_refused():
    """C-03, C-62."""
    files = sorted(manifests("part_parquet").values(), key=lambda row: row["manifest_length"])
    with pytest.raises(IntegrityError, match="bytes are missing"):
        opened(files[0]["manifest_path"], files[-1]["key_metadata"])
