"""The independent reader accepts what Java wrote, with Java's row counts, and names what is wrong with a damaged copy."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.golden import relocate
from tests.verify.reading import Fault, Storage, parquet_rows
from tests.verify.verify_table import Keys, Verifier, main, verify

KEY_A = b"0123456789012345"
KEY_B = b"1123456789012345"
ENCRYPTED = [table for table in relocate.TABLES if table != "plain_v3"]


def check(table: str, root: Path = relocate.DATA, *, key: bytes = KEY_A, plain_statistics: bool = False):
    return verify(
        relocate.metadata_path(table, root),
        {"keyA": [key]},
        {f"{relocate.WRITTEN_AT}{table}": str(root / table / "table")},
        plain_statistics=plain_statistics,
    )


@pytest.fixture
def refs(tmp_path):
    relocate.copy_table("refs", tmp_path)
    return tmp_path


def one_file(root: Path, pattern: str, table: str = "refs") -> Path:
    return min((root / table / "table").rglob(pattern))


def file_keys(table: str):
    metadata = json.loads(relocate.metadata_path(table).read_text())
    keys = Keys(metadata, {"keyA": [KEY_A]})
    storage = Storage({f"{relocate.WRITTEN_AT}{table}": str(relocate.DATA / table / "table")})
    verifier = Verifier(metadata, storage, keys)
    for snapshot in metadata["snapshots"]:
        verifier.snapshot(snapshot)
    return keys.of_file


def edit_metadata(root: Path, edit) -> None:
    path = relocate.metadata_path("refs", root)
    metadata = json.loads(path.read_text())
    edit(metadata)
    path.write_text(json.dumps(metadata))


@pytest.mark.parametrize("table", ENCRYPTED)
def test_java_table_verifies_with_the_rows_of_every_snapshot(table):
    report = check(table, plain_statistics=table == "stats")
    rows = {str(s["snapshot-id"]): s["rows"] - s["deleted_rows"] for s in report["snapshots"]}
    assert rows == {name: len(at["rows"] if isinstance(at, dict) else at) for name, at in relocate.expected(table)["at_snapshot"].items()}


def test_every_file_of_a_java_table_is_counted():
    report = check("types_parquet")
    assert report["files"] == {"manifest lists": 3, "manifests": 4, "data files": 3}
    assert (report["keks"], report["deks"], report["unreached_files"]) == (1, 10, 0)


def test_plain_table_is_refused():
    with pytest.raises(Fault, match=r"no encryption\.key-id"):
        check("plain_v3")


def test_plaintext_statistics_are_a_fault_unless_allowed():
    with pytest.raises(Fault, match="not encrypted"):
        check("stats")


def test_another_master_key_is_named():
    with pytest.raises(Fault, match="under master key keyA: authentication failed"):
        check("refs", key=KEY_B)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("snap-*.avro", "snap-.*block 0"), ("*-m0.avro", "-m0.avro: block 0"), ("*.parquet", "Parquet does not decrypt")],
)
def test_one_flipped_byte_is_found_and_its_file_named(refs, pattern, message):
    path = one_file(refs, pattern)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Fault, match=message):
        check("refs", refs)


def test_no_byte_of_a_parquet_file_may_change():
    path = one_file(relocate.DATA, "*.parquet")
    data = path.read_bytes()
    key = next(key for location, key in file_keys("refs").items() if location.endswith(path.name))
    for position in range(4, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(Fault):
            parquet_rows(bytes(damaged), key, path.name)


@pytest.mark.parametrize("pattern", ["snap-*.avro", "*-m0.avro", "*.parquet"])
def test_a_cut_file_is_found(refs, pattern):
    path = one_file(refs, pattern)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Fault, match=f"{path.name}: size against"):
        check("refs", refs)


def test_a_missing_file_is_found(refs):
    path = one_file(refs, "*.parquet")
    path.unlink()
    with pytest.raises(Fault, match=f"{path.name}: the file is missing"):
        check("refs", refs)


def test_two_swapped_data_files_are_found(refs):
    first, second = sorted((refs / "refs" / "table").rglob("*.parquet"))[:2]
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    with pytest.raises(Fault, match=r"size against|does not decrypt"):
        check("refs", refs)


def test_a_plaintext_stray_file_is_found(refs):
    (refs / "refs" / "table" / "data" / "stray.parquet").write_bytes(b"PAR1 and so on")
    with pytest.raises(Fault, match=r"stray\.parquet: not encrypted"):
        check("refs", refs)


def test_an_unknown_key_id_is_named(refs):
    edit_metadata(refs, lambda m: m["encryption-keys"].pop())
    with pytest.raises(Fault, match=r"key-id AH3Qr7qKn8Tv3PEAxpUj8Q== is not in encryption-keys"):
        check("refs", refs)


def test_a_changed_kek_timestamp_is_found(refs):
    edit_metadata(refs, lambda m: m["encryption-keys"][0]["properties"].update(KEY_TIMESTAMP="1795814680122"))
    with pytest.raises(Fault, match="authentication failed"):
        check("refs", refs)


@pytest.mark.parametrize(("name", "by"), [("next-row-id", 1), ("next-row-id", -1)])
def test_a_wrong_next_row_id_is_found(refs, name, by):
    edit_metadata(refs, lambda m: m.update({name: m[name] + by}))
    with pytest.raises(Fault, match="next-row-id"):
        check("refs", refs)


def test_a_wrong_added_rows_is_found(refs):
    edit_metadata(refs, lambda m: m["snapshots"][1].update({"added-rows": 9}))
    with pytest.raises(Fault, match="added-rows: expected 9, got 10"):
        check("refs", refs)


def test_a_kek_lying_in_metadata_is_found(refs):
    def leak(metadata):
        blob = base64.b64decode(metadata["encryption-keys"][0]["encrypted-key-metadata"])
        metadata["properties"]["note"] = base64.b64encode(AESGCM(KEY_A).decrypt(blob[:12], blob[12:], None)).decode()

    edit_metadata(refs, leak)
    with pytest.raises(Fault, match="holds the key of KEK"):
        check("refs", refs)


def test_script_shares_no_code_with_icelock():
    for name in ("verify_table.py", "reading.py", "modules.py", "row_deletes.py"):
        path = Path(__file__).parent / name
        assert not any(
            line.startswith(("import icelock", "from icelock", "import pyiceberg", "from pyiceberg"))
            for line in path.read_text().splitlines()
        )


def test_command_line_reports_json_and_the_fault(tmp_path, capsys):
    keyring = tmp_path / "keyring.json"
    keyring.write_text(json.dumps({"keyA": [KEY_B.hex(), KEY_A.hex()]}))
    where = [f"--relocate={relocate.WRITTEN_AT}refs={relocate.DATA / 'refs' / 'table'}"]
    script = str(Path(__file__).parent / "verify_table.py")
    command = [sys.executable, script, str(relocate.metadata_path("refs")), "--keyring-json", str(keyring), "--json", *where]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [s["rows"] for s in json.loads(done.stdout)["snapshots"]] == [30, 40, 50]
    assert main([str(relocate.metadata_path("refs")), "--master-key", f"keyA={KEY_B.hex()}", *where]) == 1
    assert capsys.readouterr().err.startswith("FAULT: KEK ")
