"""Rotations of keys: nothing needs the old master key afterwards, no file changes, writers in between lose nothing, and nobody else can."""

from __future__ import annotations

import json
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

import icelock
from icelock.errors import IntegrityError, KeyUnavailableError, PolicyError
from icelock.kms.memory import MemoryKms
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from icelock.table.maintenance.rotation import rotate_keys as module
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.verify.verify_table import verify

TO_B = {"level": "wrap", "to_key": "keyB"}


def made(lake: TestLake, snapshots: int = 3) -> Any:
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    for number in range(snapshots):
        table.append(people(10 * number))
    return table


def rows(table: Any) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def keks(table: Any) -> list[Any]:
    return [key for key in table.metadata.encryption_keys if "KEY_TIMESTAMP" in key.properties]


def verified(table: Any, **masters: bytes) -> dict[str, Any]:
    """The report of the independent reader, which has these master keys only."""
    return verify(Path(table.metadata_location.removeprefix("file://")), {name: [key] for name, key in masters.items()})


def test_another_master_key_opens_everything_and_the_old_one_nothing(lake: TestLake) -> None:
    table = made(lake)
    with table.manage_snapshots() as change:
        change.create_tag(table.snapshots()[0].snapshot_id, "first")
    before = {path: data for path, data in lake.files().items() if not path.endswith(".json")}
    (old,) = keks(table)
    lake.calls.take()
    done = table.maintenance.rotate(**TO_B)
    assert lake.calls.take() == ["wrap keyB", "unwrap keyB"], "one to wrap, one as a trial; this process knows the KEK"
    assert (done.level, done.from_key, done.to_key, done.wrapped, done.made) == ("wrap", "keyA", "keyB", (old.key_id,), ())
    (use,) = done.keks
    assert (use.kek, use.master_key, use.snapshots, use.refs, use.for_new_snapshots) == (old.key_id, "keyB", 3, ("first", "main"), True)
    assert {path: data for path, data in lake.files().items() if not path.endswith(".json")} == before, "no file was written or removed"
    (new,) = keks(table)
    assert (new.key_id, new.properties["KEY_TIMESTAMP"], new.encrypted_by_id) == (old.key_id, old.properties["KEY_TIMESTAMP"], "keyB")
    assert table.metadata.properties["encryption.key-id"] == "keyB"
    only_b = icelock.load_catalog("test", **{**lake.properties(), **only("keyB")}).load_table("db.t")
    assert rows(only_b) == list(range(30))
    only_b.append(people(30))
    assert rows(only_b) == list(range(40))
    verified(lake.catalog().load_table("db.t"), keyB=KEYS["keyB"])
    with pytest.raises(KeyUnavailableError):
        rows(icelock.load_catalog("test", **{**lake.properties(), **only("keyA")}).load_table("db.t"))


def only(key_id: str) -> dict[str, str]:
    """Properties of a KMS that has one of the two master keys."""
    return {"encryption.kms-impl": "icelock.kms.memory.MemoryKms", f"kms.memory.keys.{key_id}": KEYS[key_id].hex()}


def test_a_cold_process_asks_three_times_for_each_kek(lake: TestLake) -> None:
    made(lake)
    lake.calls.take()
    lake.catalog().load_table("db.t").maintenance.rotate()
    assert lake.calls.take() == ["unwrap keyA", "wrap keyA", "unwrap keyA"]


def of_several_keks(lake: TestLake, count: int, **properties: str) -> Any:
    """A table of so many KEKs, each with a snapshot of one row, as another process loads it."""
    table = made(lake, 0)
    for number in range(count):
        if number:
            table.maintenance.rotate("kek")
        table.append(people(number, 1))
    lake.calls.take()
    return lake.catalog(**properties).load_table("db.t")


def test_calls_of_several_keks_are_made_side_by_side_and_each_kek_has_its_trial(lake: TestLake) -> None:
    table = of_several_keks(lake, 5)
    table.maintenance.rotate(**TO_B)
    assert lake.calls.take() == ["unwrap keyA"] * 5 + ["wrap keyB"] * 5 + ["unwrap keyB"] * 5
    assert rows(lake.catalog().load_table("db.t")) == list(range(5))


class MeetingKms(MemoryKms):
    """Answers no call before five of them are there."""

    def __init__(self, properties: Any) -> None:
        super().__init__(properties)
        self._five = threading.Barrier(5)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        self._five.wait(10)
        return super().wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self._five.wait(10)
        return super().unwrap_key(wrapped_key, wrapping_key_id)


def test_five_keks_are_with_the_kms_at_a_time(lake: TestLake) -> None:
    keys = {f"kms.memory.keys.{name}": key.hex() for name, key in KEYS.items()}
    meeting = {"encryption.kms-impl": f"{__name__}.MeetingKms", **keys}
    of_several_keks(lake, 5, **meeting).maintenance.rotate(**TO_B)
    assert rows(lake.catalog().load_table("db.t")) == list(range(5))


class StrippingKms(MemoryKms):
    """Loses one key of many: the one that was wrapped third comes back as another one, which no trial of the others tells."""

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        self.wraps = getattr(self, "wraps", 0) + 1
        return super().wrap_key(key[:-1] + bytes([key[-1] ^ 1]) if self.wraps == 3 else key, wrapping_key_id)


def test_a_kms_that_loses_one_of_five_keks_is_found_out_before_anything_is_changed(lake: TestLake) -> None:
    table = of_several_keks(lake, 5)
    before = table.metadata_location
    lossy = StrippingKms({f"kms.memory.keys.{name}": key.hex() for name, key in KEYS.items()})
    with pytest.raises(KeyUnavailableError, match="unwrapped it to another one"):
        table.maintenance.rotate("wrap", to_key="keyB", kms=lossy)
    assert lake.catalog().load_table("db.t").metadata_location == before


def test_a_new_kek_is_for_the_snapshots_to_come(lake: TestLake) -> None:
    table = made(lake)
    (old,) = keks(table)
    done = table.maintenance.rotate("kek")
    (new_id,) = done.made
    assert [kek.key_id for kek in keks(table)] == [new_id, old.key_id], "before the others: see keys.rewrap"
    assert keks(table)[1] == old
    assert [(use.kek, use.snapshots, use.for_new_snapshots) for use in done.keks] == [(new_id, 0, True), (old.key_id, 3, False)]
    other = lake.catalog().load_table("db.t")
    other.append(people(30))
    entries = {key.key_id: key for key in other.metadata.encryption_keys}
    assert entries[other.current_snapshot().key_id].encrypted_by_id == new_id
    assert rows(lake.catalog().load_table("db.t")) == list(range(40))
    other.maintenance.rotate(**TO_B)
    verified(other, keyB=KEYS["keyB"])


@pytest.mark.parametrize("level", [{"level": "kek"}, {"level": "wrap"}, TO_B], ids=["kek", "wrap", "wrap by another"])
def test_writers_that_hold_an_older_version_go_on(lake: TestLake, level: Any, tmp_path: Path) -> None:
    table = made(lake)
    pinned = lake.catalog(**{"icelock.pins-file": str(tmp_path / "pins")})
    held, shared = pinned.load_table("db.t"), lake.catalog().load_table("db.t")
    with held.transaction() as change, shared.transaction() as properties:
        change.append(people(30))
        properties.set_properties({"a": "b"})
        table.maintenance.rotate(**level)
    held.append(people(40))
    again = lake.catalog(**{"icelock.pins-file": str(tmp_path / "pins")}).load_table("db.t")
    assert rows(again) == list(range(50))
    assert again.properties["a"] == "b"
    verified(again, keyA=KEYS["keyA"], keyB=KEYS["keyB"])


def test_a_snapshot_that_comes_between_is_kept(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer's new KEK, made while the KEKs were wrapped."""
    table = made(lake)
    rewrap = module.rewrap
    tries: list[int] = []

    def meanwhile(keks: Any, **more: Any) -> Any:
        if not tries:
            lake.catalog().load_table("db.t").maintenance.rotate("kek")
            lake.catalog().load_table("db.t").append(people(30))
        tries.append(len(keks))
        return rewrap(keks, **more)

    monkeypatch.setattr(module, "rewrap", meanwhile)
    done = table.maintenance.rotate(**TO_B)
    assert tries == [1, 2]
    assert len(done.wrapped) == 2
    assert rows(lake.catalog().load_table("db.t")) == list(range(40))
    verified(table, keyB=KEYS["keyB"])


def test_nothing_changes_if_the_kms_fails(lake: TestLake) -> None:
    table = made(lake)
    before = lake.files()
    for call in ("wrap", "unwrap"):
        lake.calls.deny(call)
        with pytest.raises(KeyUnavailableError):
            lake.catalog().load_table("db.t").maintenance.rotate(**TO_B)
        lake.calls.deny("nothing")
    with pytest.raises(KeyUnavailableError, match="unwrapped it to another one"):
        table.maintenance.rotate("wrap", kms=Forgetful())
    assert lake.files() == before


def test_a_kms_that_gives_two_keks_the_same_form(lake: TestLake) -> None:
    """Each unwraps right after it was wrapped."""
    table = made(lake)
    table.maintenance.rotate("kek")
    before = lake.files()
    for kms, words in ((OfOneForm(), "unwrapped it to another one"), (OfLongForms(), "a wrapped key of 65537 bytes")):
        with pytest.raises(KeyUnavailableError, match=words):
            table.maintenance.rotate("wrap", kms=kms)
    assert lake.files() == before


class OfOneForm:
    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:  # noqa: ARG002 - KmsClient
        self._key = key
        return b"the same"

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:  # noqa: ARG002 - KmsClient
        return self._key


class OfLongForms(OfOneForm):
    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return super().wrap_key(key, wrapping_key_id).ljust(65537)


@pytest.mark.parametrize("what", ["all of it", "with the number of the later one", "without a number"])
def test_an_older_form_that_is_put_back_is_refused(lake: TestLake, what: str) -> None:
    """It lies in the older metadata files; where the catalog keeps no hash, only who has seen the later form can tell."""
    table = made(lake)
    old, old_file = keks(table)[0], Path(table.metadata_location)
    table.maintenance.rotate(**TO_B)
    if what != "all of it":
        table.maintenance.rotate("wrap", to_key="keyA")
        old = {"without a number": old, "with the number of the later one": replace(old, properties=keks(table)[0].properties)}[what]
        table.maintenance.rotate(**TO_B)
    seen = lake.catalog()
    seen.load_table("db.t")
    path = Path(table.metadata_location)
    text = json.loads(path.read_bytes())
    text["properties"]["encryption.key-id"] = "keyA"
    text["encryption-keys"] = [old.to_json(), *(key for key in text["encryption-keys"] if key["key-id"] != old.key_id)]
    path.write_text(json.dumps(text))
    forget_facts(lake)
    with pytest.raises(IntegrityError, match=r"its encryption\.key-id is 'keyA', and was 'keyB'"):
        seen.load_table("db.t")
    assert old_file.exists()


def test_a_table_goes_back_to_a_key_that_it_had(lake: TestLake) -> None:
    held = made(lake)
    for key in ("keyB", "keyA", "keyA", "keyB"):
        lake.catalog().load_table("db.t").maintenance.rotate("wrap", to_key=key)
        held.refresh()
    assert rows(held) == list(range(30))
    assert keks(held)[0].properties["icelock-rotation"].startswith("4 ")


class Forgetful(MemoryKms):
    """Gives back another key than it was given."""

    def __init__(self) -> None:
        super().__init__({"kms.memory.keys.keyA": KEYS["keyA"].hex()})

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return bytes(len(super().unwrap_key(wrapped_key, wrapping_key_id)))


def test_a_kek_that_does_not_open_its_entries_is_not_wrapped(lake: TestLake) -> None:
    """Its entry was exchanged for one of another table: wrapped anew, it would look right."""
    table = made(lake)
    other = lake.catalog().create_table("db.u", people().schema, properties=KEYED)
    other.append(people())
    path = Path(table.metadata_location)
    text = json.loads(path.read_bytes())
    (mine,) = [key for key in text["encryption-keys"] if key.get("properties")]
    (theirs,) = keks(other)
    mine["encrypted-key-metadata"] = theirs.to_json()["encrypted-key-metadata"]
    path.write_text(json.dumps(text))
    forget_facts(lake)
    with pytest.raises(IntegrityError, match="does not open the entry"):
        lake.catalog().load_table("db.t").maintenance.rotate(**TO_B)


def forget_facts(lake: TestLake) -> None:
    """As for a table that a client without facts committed last."""
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("DELETE FROM icelock_table_facts")


def test_another_master_key_with_other_keks_is_refused(lake: TestLake, tmp_path: Path) -> None:
    """What somebody with write access to storage, and a master key of his own in the same KMS, can make of the metadata file."""
    table = made(lake)
    catalogs = [lake.catalog(), lake.catalog(**{"icelock.pins-file": str(tmp_path / "pins")})]
    for catalog in catalogs:
        catalog.load_table("db.t")
    again = lake.catalog(**{"icelock.pins-file": str(tmp_path / "pins")})
    kms = table.encryption.kms()
    path = Path(table.metadata_location)
    text = json.loads(path.read_bytes())
    forget_facts(lake)
    (kek,) = keks(table)
    stolen = replace(kek, encrypted_key_metadata=kms.wrap_key(b"1" * 16, "keyB"), encrypted_by_id="keyB").to_json()
    own = {**stolen, "key-id": "bWluZQ"}
    rest = [key for key in text["encryption-keys"] if key["key-id"] != kek.key_id]
    forged = {
        "the same id, another key": [stolen, *rest],
        "only a key of his own": [own, *rest],
        "one of his own beside the old one": [kek.to_json(), own, *rest],
    }
    text["properties"]["encryption.key-id"] = "keyB"
    for name, keys in forged.items():
        path.write_text(json.dumps({**text, "encryption-keys": keys}))
        for catalog in (*catalogs, again):
            try:
                catalog.load_table("db.t")
            except IntegrityError as e:
                assert "its encryption.key-id is 'keyB', and was 'keyA'" in str(e)  # noqa: PT017 - the case is named
            else:
                pytest.fail(name)


def test_only_a_rotation_may_change_the_key(lake: TestLake) -> None:
    table = made(lake)
    (kek,) = keks(table)
    kms = table.encryption.kms()
    raw = kms.unwrap_key(kek.encrypted_key_metadata, "keyA")
    wrapped = replace(kek, encrypted_key_metadata=kms.wrap_key(raw, "keyB"), encrypted_by_id="keyB")
    with pytest.raises(PolicyError, match=r"cannot be changed to 'keyB'; icelock rotate changes it"), table.transaction() as change:
        change.set_properties({"encryption.key-id": "keyB"})
    updates = (
        RemoveEncryptionKeyUpdate(key_id=kek.key_id),
        AddEncryptionKeyUpdate(**{"encryption-key": wrapped}),
        SetPropertiesUpdate(updates={"encryption.key-id": "keyB"}),
    )
    for some in (updates, updates[:2]):
        with pytest.raises(PolicyError):
            table.catalog.commit_table(table, (), some)
    assert rows(lake.catalog().load_table("db.t")) == list(range(30))


def test_a_pin_by_name_has_to_be_changed_by_hand(lake: TestLake) -> None:
    made(lake).maintenance.rotate(**TO_B)
    with pytest.raises(IntegrityError, match="correct the pin if the table was recreated, or its keys were rotated"):
        lake.catalog(**{"icelock.pins.db.t": "keyA"}).load_table("db.t")
    assert rows(lake.catalog(**{"icelock.pins.db.t": "keyB"}).load_table("db.t")) == list(range(30))


def test_an_object_whose_kms_no_longer_has_the_old_key_is_told(lake: TestLake) -> None:
    """It cannot tell that the KEKs are the same."""
    made(lake)
    properties = {**lake.properties(), **only("keyA")}
    held = icelock.load_catalog("test", **properties)
    held.load_table("db.t")
    lake.catalog().load_table("db.t").maintenance.rotate(**TO_B)
    with pytest.raises(IntegrityError, match=r"and was 'keyA', and whether its keys are the same cannot be told: .*pins\.forget"):
        held.load_table("db.t")


def test_another_kms(lake: TestLake) -> None:
    """The same name of a master key, whose bytes are others there."""
    table = made(lake)
    other = MemoryKms({"kms.memory.keys.keyA": KEYS["keyB"].hex()})
    table.maintenance.rotate(kms=other)
    assert rows(table) == list(range(30))
    moved = {"encryption.kms-impl": "icelock.kms.memory.MemoryKms", "kms.memory.keys.keyA": KEYS["keyB"].hex()}
    assert rows(icelock.load_catalog("test", **{**lake.properties(), **moved}).load_table("db.t")) == list(range(30))
    verified(table, keyA=KEYS["keyB"])


def test_what_is_refused(lake: TestLake) -> None:
    empty = lake.catalog().create_table("db.e", people().schema, properties=KEYED)
    before = lake.files()
    for arguments, words in {
        ("file",): "must be one of kek, wrap",
        ("kek", "keyB"): "use level 'wrap'",
        ("wrap", " keyB"): "white space",
        ("wrap", "keyB"): "has no KEK yet",
    }.items():
        with pytest.raises(PolicyError, match=words):
            empty.maintenance.rotate(arguments[0], to_key=arguments[1] if len(arguments) > 1 else None)
    assert lake.files() == before


def test_a_dry_run_says_what_hangs_on_which_kek(lake: TestLake) -> None:
    table = made(lake, 2)
    table.maintenance.rotate("kek")
    table.append(people(20))
    before = lake.files()
    lake.calls.take()
    plan = lake.catalog().load_table("db.t").maintenance.rotate(**TO_B, dry_run=True)
    assert [(use.snapshots, use.refs, use.master_key) for use in plan.keks] == [(1, ("main",), "keyA"), (2, (), "keyA")]
    assert plan.wrapped == tuple(use.kek for use in plan.keks)
    assert lake.files() == before
    assert lake.calls.take() == ["unwrap keyA"] * 2, "to read what each of them opens"


def test_a_rotation_between_a_commit_and_the_look_at_it(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit was made, and its KEK is the same one."""
    table = made(lake)
    load, done = table.catalog.load_table, []

    def after_another(name: Any) -> Any:
        if not done:
            done.append(lake.catalog().load_table("db.t").maintenance.rotate(**TO_B))
        return load(name)

    monkeypatch.setattr(table.catalog, "load_table", after_another)
    table.append(people(30))
    assert [one.to_key for one in done] == ["keyB"]
    assert rows(lake.catalog().load_table("db.t")) == list(range(40))
