"""What every catalog of encrypted tables does, run on each kind (``lakes``). Expectations come from the specification and from counting."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog as pyiceberg_load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table.update import AssertTableUUID

from icelock.errors import IcelockError, KeyUnavailableError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.maintenance import audit, optimize_tables
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from tests.helpers.tables import ids
from tests.lakes.catalogs import CatalogLake, RestLake
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.turns(3)
_FIRST = {".avro": b"AGS1", ".parquet": b"PARE", ".puffin": b"AGS1"}
WRITERS = 8


def state(lake: CatalogLake, table: str = "t") -> tuple[Any, set[str]]:
    """What the catalog says of a table, and the files that are there."""
    return lake.load(table).metadata, set(lake.files())


# --- bytes


def test_every_file_of_a_table_is_encrypted(lake: CatalogLake) -> None:
    """C-07, C-08."""
    table = lake.make(rows=10, **{"write.delete.mode": "merge-on-read"})
    table.append(people(10, 5))
    table.delete("id = 3")
    table.overwrite(people(20, 1), "id = 12")
    found = {Path(path).suffix for path in lake.files()}
    assert found == {".avro", ".json", ".parquet", ".puffin"}
    for path, data in lake.files().items():
        if path.endswith(".json"):
            assert json.loads(data)["format-version"] == 3
        else:
            assert data[:4] == _FIRST[Path(path).suffix], path
        assert b"canary-" not in data
    (report,) = audit(lake.catalog(), lake.name(), depth=["bytes", "foreign"]).tables
    assert (report.counts, report.unseen) == ({}, ())
    assert report.objects["encrypted, reached"].files == sum(not path.endswith(".json") for path in lake.files())
    assert "differs" not in report.statements.values()
    assert ids(lake.load()) == sorted([*set(range(15)) - {3, 12}, 20])


def test_without_a_kms_a_table_is_neither_read_nor_written(lake: CatalogLake) -> None:
    """C-08."""
    metadata = lake.make(rows=3).metadata
    files = lake.files()
    table = lake.without_kms().load_table(lake.name())
    uses = {
        "scan": lambda: table.scan().to_arrow(),
        "append": lambda: table.append(people(3, 1)),
        "delete": lambda: table.delete("id = 0"),
        "overwrite": lambda: table.overwrite(people(3, 1)),
        "inspect": table.inspect.files,
        "purge": lambda: table.catalog.purge_table(lake.name()),
        "create": lambda: table.catalog.create_table(lake.name("u"), people().schema, properties=KEYED),
    }
    for use in uses.values():
        with pytest.raises(KeyUnavailableError, match=r"no KMS is configured for catalog \w+: set encryption\.kms-type \("):
            use()
    assert lake.files() == files
    assert lake.load().metadata == metadata
    assert not lake.catalog().table_exists(lake.name("u"))


# --- tables and names


def test_the_life_of_a_table(lake: CatalogLake) -> None:
    catalog = lake.catalog()
    table = lake.make(rows=4)
    assert catalog.list_tables(lake.space) == [(lake.space, "t")]
    assert catalog.table_exists(lake.name())
    with pytest.raises(TableAlreadyExistsError):
        lake.make()
    renamed = catalog.rename_table(lake.name(), lake.name("u"))
    assert ids(renamed) == [0, 1, 2, 3]
    assert not catalog.table_exists(lake.name())
    renamed.append(people(4, 1))
    location = renamed.metadata_location
    files = set(lake.files())
    catalog.drop_table(lake.name("u"))
    with pytest.raises(NoSuchTableError):
        catalog.load_table(lake.name("u"))
    assert set(lake.files()) == files, "dropping deletes nothing"
    again = catalog.register_table(lake.name("v"), location)
    assert ids(again) == [0, 1, 2, 3, 4]
    assert again.metadata.table_uuid == table.metadata.table_uuid
    again.append(people(5, 1))
    assert ids(lake.load("v")) == [0, 1, 2, 3, 4, 5]
    catalog.purge_table(lake.name("v"))
    assert lake.files() == {}
    assert catalog.list_tables(lake.space) == []


def test_a_namespace_that_is_not_there(lake: CatalogLake) -> None:
    if not lake.checks_namespaces:
        return
    with pytest.raises(NoSuchNamespaceError):
        lake.catalog().create_table("nowhere.t", people().schema, properties=KEYED)
    assert lake.files() == {}


def test_register_wants_every_key(lake: CatalogLake) -> None:
    table = lake.make(rows=2)
    path = Path(table.metadata_location.removeprefix("file://").removeprefix("file:"))
    content = json.loads(path.read_bytes())
    content["encryption-keys"].pop()
    broken = path.with_name("00009-1da8f7a4-2cf8-4d41-9d7c-5d4e0fb30dd0.metadata.json")
    broken.write_text(json.dumps(content))
    with pytest.raises(KeyUnavailableError, match="is not in encryption-keys"):
        lake.catalog().register_table(lake.name("u"), f"file://{broken}")
    assert not lake.catalog().table_exists(lake.name("u"))


def test_plain_tables_are_pyicebergs(lake: CatalogLake) -> None:
    catalog = lake.catalog()
    plain = catalog.create_table(lake.name("plain"), people().schema, properties={"icelock.plain": "true"})
    plain.append(people(0, 3))
    assert ids(catalog.load_table(lake.name("plain"))) == [0, 1, 2]
    assert catalog.load_table(lake.name("plain")).format_version == 2
    with pytest.raises(PolicyError, match=r"cannot be set to 'keyA' on a table that exists; icelock convert \S+ --key-id KEY makes"):
        plain.transaction().set_properties(KEYED).commit_transaction()
    assert "encryption.key-id" not in catalog.load_table(lake.name("plain")).properties
    catalog.drop_table(lake.name("plain"))


def test_pyicebergs_own_load_catalog(lake: CatalogLake) -> None:
    if lake.shared:
        return
    lake.make(rows=2)
    properties = lake.properties()
    del properties["type"]
    impl = f"{type(lake.catalog()).__module__.removesuffix('.catalog')}.{type(lake.catalog()).__name__}"
    catalog = pyiceberg_load_catalog("test", **{"py-catalog-impl": impl, **properties})
    lake.opened.append(catalog)
    table = catalog.load_table(lake.name())
    table.append(people(2, 1))
    assert ids(lake.load()) == [0, 1, 2]


# --- commits


def test_writers_with_an_old_copy_lose_nothing(lake: CatalogLake) -> None:
    lake.make(rows=1)
    ours, theirs = lake.load(), lake.load()
    theirs.append(people(10, 1))
    ours.append(people(20, 1))
    theirs.append(people(30, 1))
    assert ids(lake.load()) == [0, 10, 20, 30]
    keys = lake.load().metadata.encryption_keys
    assert len(keys) == 5, "one KEK, and a key for each of four manifest lists"
    assert {snapshot.key_id for snapshot in lake.load().metadata.snapshots} == {k.key_id for k in keys if k.encrypted_by_id != "keyA"}


def test_a_conflict_without_retries_changes_nothing(lake: CatalogLake) -> None:
    lake.make(rows=1, **{"commit.retry.num-retries": "0"})
    ours, theirs = lake.load(), lake.load()
    theirs.append(people(10, 1))
    before = state(lake)
    with pytest.raises(CommitFailedException):
        ours.append(people(20, 1))
    assert state(lake) == before


def test_eight_writers_all_get_through(lake: CatalogLake) -> None:
    """Default settings."""
    lake.catalog().create_table(lake.name(), people().schema, properties=KEYED).append(people(0, 1))
    tables = [lake.load() for _ in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: tables[number].append(people(100 * (number + 1), 1)), range(WRITERS)))
    assert ids(lake.load()) == [0, *(100 * (number + 1) for number in range(WRITERS))]
    assert len(lake.load().metadata.encryption_keys) == WRITERS + 2


def test_a_commit_whose_answer_got_lost_counts_once(lake: CatalogLake) -> None:
    lake.make(rows=1)
    catalog = lake.catalog()
    table = catalog.load_table(lake.name())
    with lake.lost_answer(catalog):
        table.append(people(1, 1))
    assert ids(lake.load()) == [0, 1]
    assert len(lake.load().metadata.snapshots) == 2
    with lake.lost_answer(catalog):
        table.transaction().set_properties({"owner": "us"}).commit_transaction()
    assert lake.load().properties["owner"] == "us"
    table.append(people(2, 1))
    assert ids(lake.load()) == [0, 1, 2]


# --- guards


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tx: tx.set_properties({"encryption.key-id": "keyB"}), "cannot be changed to 'keyB'"),
        (lambda tx: tx.set_properties({"encryption.data-key-length": "32"}), "cannot be set to '32'"),
        (lambda tx: tx.remove_properties("encryption.key-id"), "cannot be removed"),
        (lambda tx: tx.set_properties({"encryption.keyid": "keyB"}), "unknown table property"),
        (lambda tx: tx.upgrade_table_version(2), "format version 2"),
    ],
)
def test_a_tables_encryption_is_fixed(change: Any, words: str, lake: CatalogLake) -> None:
    """C-15."""
    lake.make(rows=1)
    before = state(lake)
    with pytest.raises(PolicyError, match=words):
        change(lake.load().transaction()).commit_transaction()
    assert state(lake) == before


def _entry(key_id: str, by: str, **properties: str) -> AddEncryptionKeyUpdate:
    entry = EncryptedKey(key_id=key_id, encrypted_key_metadata=b"0123", encrypted_by_id=by, properties=properties)
    return AddEncryptionKeyUpdate(**{"encryption-key": entry})


def test_key_updates_that_break_a_rule_never_get_to_the_catalog(lake: CatalogLake) -> None:
    table = lake.make(rows=1)
    kek, list_key = table.metadata.encryption_keys
    before = state(lake)
    wrong = {
        "no snapshot": (_entry("new", kek.key_id),),
        "unknown parent": (_entry("new", "nobody"),),
        "another content": (_entry(kek.key_id, "keyA", KEY_TIMESTAMP="1"),),
        "a key in use": (RemoveEncryptionKeyUpdate(**{"key-id": list_key.key_id}),),
        "the KEK in use": (RemoveEncryptionKeyUpdate(**{"key-id": kek.key_id}),),
    }
    for updates in wrong.values():
        with pytest.raises(IcelockError):
            lake.catalog().commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), updates)
    assert state(lake) == before


def test_upkeep_by_several_commits(lake: CatalogLake) -> None:
    """Each of its steps sees what the one before committed; then nothing of a deleted row's delete is left."""
    table = lake.make(rows=10, **{"write.delete.mode": "merge-on-read", "commit.manifest-merge.enabled": "false"})
    table.append(people(10, 10))
    table.delete("id in (1, 12)")
    assert table.maintenance.rewrite_manifests().created == 1, "of data; there is one of deletes"
    done = lake.load().maintenance.rewrite_deletes(into="data")
    assert (done.rewritten_files, done.removed_delete_files, len(done.snapshots)) == (2, 2, 2)
    assert ids(lake.load()) == sorted({*range(20)} - {1, 12})


def test_all_tables_of_a_namespace_are_optimized(lake: CatalogLake) -> None:
    table = lake.make(rows=10, **{"icelock.optimize.min-input-files": "3"})
    for start in (10, 20):
        table.append(people(start, 10))
    (done,) = optimize_tables(lake.catalog(), lake.space)
    assert [step.outcome.value for step in done.steps] == ["done", *["nothing to do"] * 5]
    assert done.steps[0].result.rewritten_files == 3
    assert ids(lake.load()) == list(range(30))


def test_expiry_removes_keys(lake: CatalogLake) -> None:
    """C-10."""
    table = lake.make(rows=1)
    for number in range(1, 4):
        table.append(people(number, 1))
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots[:3]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    kept = lake.load()
    assert [snapshot.snapshot_id for snapshot in kept.metadata.snapshots] == [table.metadata.current_snapshot_id]
    assert len(kept.metadata.encryption_keys) == 2
    assert ids(kept) == [0, 1, 2, 3]


def test_a_master_key_is_changed_beside_a_writer(lake: CatalogLake) -> None:
    """In one commit with what the catalog keeps of the table; a writer that holds an older version goes on."""
    held = lake.make(rows=3)
    with held.transaction() as change:
        change.append(people(3, 3))
        lake.load().maintenance.rotate("wrap", to_key="keyB")
    held.append(people(6, 3))
    metadata = lake.load().metadata
    assert metadata.properties["encryption.key-id"] == "keyB"
    masters = {key.encrypted_by_id for key in metadata.encryption_keys} - {key.key_id for key in metadata.encryption_keys}
    assert masters == {"keyB"}
    assert ids(lake.load()) == ids(held) == list(range(9))
    lake.load().maintenance.rotate("kek")
    lake.load().append(people(9, 1))
    assert ids(lake.load()) == list(range(10))


def test_files_are_written_again_under_a_new_kek_beside_a_writer(lake: CatalogLake) -> None:
    """After an expiry nothing needs the old one; the mark of the work is in the catalog while it lasts, and not after."""
    held = lake.make(rows=3)
    lake.load().append(people(3, 3))
    seen: list[str | None] = []

    def meanwhile(_done: int, _all: int) -> None:
        seen.append(lake.load().properties.get("icelock.rotation-kek"))
        if len(seen) == 1:
            held.append(people(6, 3))

    done = lake.load().maintenance.rotate("data", progress=meanwhile)
    assert (done.rewritten_files, done.left_files) == (2, 0)
    assert {*seen} == {done.kek}
    table = lake.load()
    assert "icelock.rotation-kek" not in table.properties
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert {key.encrypted_by_id for key in lake.load().metadata.encryption_keys} == {"keyA", done.kek}
    assert ids(lake.load()) == list(range(9))


def test_lists_of_all_snapshots_are_written_again_beside_a_writer(lake: CatalogLake) -> None:
    """One swap with what the catalog keeps; a REST server's protocol has none, so nothing is written there."""
    held = lake.make(rows=3)
    lake.load().append(people(3, 3))
    before, was = lake.load().metadata, set(lake.files())
    if isinstance(lake, RestLake):
        for level in ("lists", "all"):
            with pytest.raises(PolicyError, match="REST server, whose protocol cannot replace the manifest list"):
                lake.load().maintenance.rotate(level)
        assert (set(lake.files()), lake.load().metadata.encryption_keys) == (was, before.encryption_keys)
        return
    with held.transaction() as change:
        change.append(people(6, 3))
        done = lake.load().maintenance.rotate("lists")
    held.append(people(9, 1))
    table = lake.load()
    assert (done.rotated_snapshots, done.rewritten_manifests, done.left_files) == (2, 2, 0)
    assert not {one.manifest_list for one in before.snapshots} & {one.manifest_list for one in table.metadata.snapshots}
    assert {key.encrypted_by_id for key in table.metadata.encryption_keys} == {"keyA", done.kek}
    assert sorted(table.scan(snapshot_id=before.snapshots[0].snapshot_id).to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert ids(table) == list(range(10))
    assert audit(lake.catalog(), lake.name(), depth=["open"]).verdict.value == "sound"


@pytest.mark.parametrize("lake", ["sqlite", "glue", pytest.param("hive", marks=pytest.mark.hive)], indirect=True)
def test_files_of_all_snapshots_are_written_again_beside_a_writer(lake: CatalogLake) -> None:
    held = lake.make(rows=3)
    lake.load().append(people(3, 3))
    before = lake.load().metadata
    with held.transaction() as change:
        change.append(people(6, 3))
        done = lake.load().maintenance.rotate("all")
    table = lake.load()
    assert done.left_files == 0
    assert {key.encrypted_by_id for key in table.metadata.encryption_keys} == {"keyA", done.kek}
    assert sorted(table.scan(snapshot_id=before.snapshots[0].snapshot_id).to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert ids(table) == list(range(9))


def test_a_new_table_is_checked_before_anything_is_made(lake: CatalogLake) -> None:
    for wrong in (
        {"encryption.key-id": ""},
        {"encryption.keyid": "keyA"},
        {**KEYED, "format-version": "2"},
        {"encryption.data-key-length": "16"},
    ):
        with pytest.raises(PolicyError):
            lake.catalog().create_table(lake.name(), people().schema, properties=wrong)
    with pytest.raises(KeyUnavailableError, match="keyZ"):
        lake.catalog().create_table(lake.name(), people().schema, properties={"encryption.key-id": "keyZ"})
    with pytest.raises(PolicyError, match="has no effect on a namespace"):
        lake.catalog().create_namespace(f"{lake.space}x", KEYED)
    assert lake.files() == {}
    assert lake.catalog().list_tables(lake.space) == []


# --- tables that are made with their rows


def test_a_staged_table_is_there_with_its_rows_or_not_at_all(lake: CatalogLake) -> None:
    catalog = lake.catalog()
    transaction = catalog.create_table_transaction(lake.name(), people().schema, properties=KEYED)
    transaction.append(people(0, 3))
    assert not catalog.table_exists(lake.name())
    made = transaction.commit_transaction()
    assert ids(made) == ids(lake.load()) == [0, 1, 2]
    made.append(people(3, 1))
    assert ids(lake.load()) == [0, 1, 2, 3]
    for path, data in lake.files().items():
        assert path.endswith(".json") or data[:4] == _FIRST[Path(path).suffix]


def test_a_staged_table_whose_name_was_taken_leaves_nothing(lake: CatalogLake) -> None:
    catalog = lake.catalog()
    transaction = catalog.create_table_transaction(lake.name(), people().schema, properties=KEYED)
    transaction.append(people(0, 3))
    staged = set(lake.files())
    lake.make()
    first = set(lake.files()) - staged
    with pytest.raises(TableAlreadyExistsError):
        transaction.commit_transaction()
    assert set(lake.files()) == first
    assert ids(lake.load()) == []


def test_a_staged_table_whose_answer_got_lost_is_there_once(lake: CatalogLake) -> None:
    catalog = lake.catalog()
    transaction = catalog.create_table_transaction(lake.name(), people().schema, properties={**KEYED, **lake_quick()})
    transaction.append(people(0, 2))
    with lake.lost_answer(catalog):
        made = transaction.commit_transaction()
    assert ids(made) == ids(lake.load()) == [0, 1]


def test_a_table_is_replaced_in_one_commit(lake: CatalogLake) -> None:
    table = lake.make(rows=3)
    transaction = lake.catalog().replace_table_transaction(lake.name(), people().select(["id"]).schema, properties={"owner": "us"})
    transaction.append(people(7, 1).select(["id"]))
    assert ids(lake.load()) == [0, 1, 2]
    transaction.commit_transaction()
    replaced = lake.load()
    assert ids(replaced) == [7]
    assert replaced.schema().column_names == ["id"]
    assert replaced.metadata.table_uuid == table.metadata.table_uuid
    old = replaced.scan(snapshot_id=table.metadata.current_snapshot_id).to_arrow()
    assert sorted(old["id"].to_pylist()) == [0, 1, 2]


def lake_quick() -> dict[str, str]:
    return {"commit.status-check.num-retries": "2", "commit.status-check.min-wait-ms": "20"}


def test_an_expiry_of_a_table_that_another_dropped_says_so(lake: CatalogLake) -> None:
    table = lake.make(rows=1)
    table.append(people(5, 1))
    held = lake.catalog().load_table(table.name())
    lake.catalog().drop_table(table.name())
    with pytest.raises(NoSuchTableError):
        held.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
