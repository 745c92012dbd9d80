"""The file of pins: what stands in it, what a damaged one does, and that it is whole whoever writes."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from icelock.catalog.trust import pins_file
from icelock.catalog.trust.pins_file import PinsFile, Seen
from icelock.errors import FormatError, IntegrityError, PolicyError
from tests.lakes.sqlite import TestLake, people

SEEN = Seen(key_id="k", table_uuid="u", last_sequence_number=3, last_updated_ms=5, metadata_location="m3", metadata_hash="h")
KEYED = {"encryption.key-id": "keyA"}


def test_what_stands_in_the_file(lake: TestLake, tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    table = lake.catalog(**{"icelock.pins-file": str(path)}).create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0, 2))
    [(catalog, tables)] = json.loads(path.read_bytes())["tables"].items()
    assert (catalog, list(tables)) == ("test", ["db.t"])
    assert tables["db.t"] == {
        "key-id": "keyA",
        "table-uuid": str(table.metadata.table_uuid),
        "last-sequence-number": 1,
        "last-updated-ms": table.metadata.last_updated_ms,
        "metadata-location": table.metadata_location,
        "metadata-hash": tables["db.t"]["metadata-hash"],
        "keks": [key.to_json() for key in table.metadata.encryption_keys if "KEY_TIMESTAMP" in key.properties],
    }
    assert len(tables["db.t"]["metadata-hash"]) == 44, "base64 of 32 bytes"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {entry.name for entry in tmp_path.iterdir() if "pins" in entry.name} == {"pins.json", "pins.json.lock"}


def test_plain_tables_are_not_remembered(lake: TestLake, tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    lake.catalog(**{"icelock.pins-file": str(path)}).create_table("db.t", people().schema, properties={"icelock.plain": "true"})
    assert not path.exists()


def test_an_empty_pin_says_that_the_table_is_plain(lake: TestLake) -> None:
    """One that was exchanged for a table with a key of somebody's choice is noticed; nothing else that pins know would notice it."""
    catalog = lake.catalog()
    plain = catalog.create_table("db.p", people().schema, properties={"icelock.plain": "true"})
    keyed = catalog.create_table("db.t", people().schema, properties=KEYED)
    pinned = {"icelock.pins.db.p": ""}
    assert lake.catalog(**pinned).load_table("db.p").metadata.table_uuid == plain.metadata.table_uuid
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 'p'", (keyed.metadata_location,))
    assert lake.catalog().load_table("db.p").metadata.table_uuid == keyed.metadata.table_uuid
    with pytest.raises(IntegrityError, match=r"'keyA', and icelock\.pins\.db\.p says ''"):
        lake.catalog(**pinned).load_table("db.p")


def test_versions_go_forward_only(tmp_path: Path) -> None:
    file = PinsFile(tmp_path / "pins", catalog="c")
    assert file.get("t") is None
    file.put("t", SEEN)
    file.put("t", replace(SEEN, last_sequence_number=2, metadata_location="m2"))
    assert file.get("t") == SEEN
    later = replace(SEEN, last_updated_ms=6, metadata_location="m4")
    file.put("t", later)
    assert file.get("t") == later
    assert PinsFile(tmp_path / "pins", catalog="other").get("t") is None
    file.drop("t")
    assert file.get("t") is None


def test_what_forget_forgets_is_believed_anew(lake: TestLake, tmp_path: Path) -> None:
    pins = {"icelock.pins-file": str(tmp_path / "pins.json")}
    catalog = lake.catalog(**pins)
    catalog.create_table("db.t", people().schema, properties=KEYED)
    lake.catalog().drop_table("db.t")
    lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    with pytest.raises(Exception, match=r"call catalog\.pins\.forget\('db\.t'\)"):
        catalog.load_table("db.t")
    catalog.pins.forget("db.t")
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 0


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{", b'{"version": 2, "tables": {}}', b'{"version": 1}', b'{"version": 1, "tables": []}',
        b'{"version": 1, "tables": {"c": []}}', b'{"version": 1, "tables": {"c": {"t": 3}}}', b'{"version": 1, "tables": {"c": {"t": {}}}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_an_error_and_stays(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pins"
    path.write_bytes(content)
    for use in (lambda f: f.get("t"), lambda f: f.put("t", SEEN), lambda f: f.drop("t")):
        with pytest.raises(FormatError, match=r"restore|start again"):
            use(PinsFile(path, catalog="c"))
    assert path.read_bytes() == content


@pytest.mark.parametrize("field", [name for name in SEEN.to_json() if name != "keks"])
def test_each_field_of_an_entry_is_checked(field: str, tmp_path: Path) -> None:
    path = tmp_path / "pins"
    for entry in ({**SEEN.to_json(), field: None}, {k: v for k, v in SEEN.to_json().items() if k != field}):
        path.write_text(json.dumps({"version": 1, "tables": {"c": {"t": entry}}}))
        with pytest.raises(FormatError, match="table t"):
            PinsFile(path, catalog="c").get("t")


@pytest.mark.parametrize("keks", [None, "k", [1], [{"key-id": "k"}]])
def test_keks_of_an_entry_are_checked(keks: object, tmp_path: Path) -> None:
    """A file of an earlier version has none."""
    path = tmp_path / "pins"
    for entry in ({**SEEN.to_json(), "keks": keks}, {name: value for name, value in SEEN.to_json().items() if name != "keks"}):
        path.write_text(json.dumps({"version": 1, "tables": {"c": {"t": entry}}}))
        if "keks" in entry:
            with pytest.raises(FormatError, match="table t"):
                PinsFile(path, catalog="c").get("t")
        else:
            assert PinsFile(path, catalog="c").get("t") == SEEN


def test_writers_wait_for_each_other_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pins"

    def write(number: int) -> None:
        PinsFile(path, catalog="c").put(f"t{number}", SEEN)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert len(json.loads(path.read_bytes())["tables"]["c"]) == 40


def test_a_lock_that_is_not_given_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_file, "_LOCK_WAIT_SECONDS", 0.05)
    held = os.open(tmp_path / "pins.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PolicyError, match="another process has held it"):
            PinsFile(tmp_path / "pins", catalog="c").put("t", SEEN)
    finally:
        os.close(held)
    assert not (tmp_path / "pins").exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be opened"):
        PinsFile(tmp_path / "no" / "pins", catalog="c").put("t", SEEN)
