"""The keys of the tables that Java Iceberg 1.12.0 wrote open, and open the manifest lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import KmsError, KmsErrorKind
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.kek import KekCache
from icelock.keys.manager import EncryptionManager
from tests.unit.keys.fakes import CountingKms

DATA = Path(__file__).parents[2] / "golden" / "data"
TABLES = ("avro_data", "cow_update", "ctas", "evolve", "key32", "maint", "mor_dv", "part_parquet", "refs", "stats", "types_parquet")


@pytest.fixture(params=TABLES)
def table(request):
    return json.loads((DATA / request.param / "table.json").read_text(encoding="utf-8"))


def manager_of(table, kms):
    properties = table["properties"]
    return EncryptionManager(
        table=table["table"],
        master_key_id=properties["encryption.key-id"],
        data_key_length=int(properties.get("encryption.data-key-length", "16")),
        keys=[EncryptedKey.from_json(key) for key in table["encryption_keys"]],
        kms=kms,
        cache=KekCache(),
    )


def kms_of(table):
    kms = CountingKms()
    kms.keys = {name: text.encode() for name, text in table["kms_keys_utf8"].items()}
    return kms


def test_every_snapshots_key_opens_its_manifest_list(table):
    kms = kms_of(table)
    manager = manager_of(table, kms)
    assert table["snapshots"]
    for snapshot in table["snapshots"]:
        key = manager.open_manifest_list_key(snapshot["key-id"])
        stored = DATA / table["table"].removeprefix("golden.") / "table" / snapshot["manifest-list"].removeprefix(table["location"] + "/")
        data = stored.read_bytes()
        assert key.encrypted_length == len(data)
        assert len(key.dek) == manager.data_key_length
        block = data[8 : 8 + 1048576 + 28]
        plain = AESGCM(key.dek.reveal()).decrypt(block[:12], block[12:], key.aad_prefix + bytes(4))
        assert plain.startswith(b"Obj\x01")
    assert kms.calls["unwrap"] == len({key["encrypted-by-id"] for key in table["encryption_keys"]} & manager_keks(table))


def manager_keks(table):
    return {key["key-id"] for key in table["encryption_keys"] if key.get("properties")}


def test_javas_kek_is_used_for_the_next_snapshot_and_rotated_when_it_is_old(table):
    manager = manager_of(table, kms_of(table))
    newest = max(int(key["properties"]["KEY_TIMESTAMP"]) for key in table["encryption_keys"] if key.get("properties"))
    metadata = manager.mint_file_key().closed(100)
    for age, entries in ((0, 1), (730 * 86_400_000 - 1, 1), (730 * 86_400_000, 2)):
        kms = kms_of(table)
        aged = EncryptionManager(
            table=manager.table, master_key_id=manager.master_key_id, data_key_length=manager.data_key_length, keys=manager.keys, kms=kms,
            cache=KekCache(), clock=lambda now=newest + age: now,
        )  # fmt: skip
        assert len(aged.seal_manifest_list_key(metadata).new_entries) == entries


def test_the_wrong_master_key_is_refused(table):
    class Foreign(CountingKms):
        def unwrap_key(self, _wrapped_key, wrapping_key_id):
            msg = "not ours"
            raise KmsError(msg, kind=KmsErrorKind.FOREIGN, key_id=wrapping_key_id)

    with pytest.raises(KmsError, match=r"table golden\.") as caught:
        manager_of(table, Foreign()).open_manifest_list_key(table["snapshots"][0]["key-id"])
    assert caught.value.kind is KmsErrorKind.FOREIGN
