"""An independent reader of encrypted Iceberg tables: shares no code with ``src/icelock``.

It is written from the format alone, with fastavro, cryptography and pyarrow, and walks the whole key chain of every snapshot:

    master key -> KEK -> manifest-list key -> manifest list -> manifests -> data and delete files

1. every key entry resolves; the KEK opens under the master key, each manifest list's key metadata under its KEK (AAD = KEY_TIMESTAMP)
2. every length is true: key metadata, manifest_length and file_size_in_bytes equal the size on storage
3. every manifest list, manifest and data file authenticates in every block or page, and counts equal what is inside
4. every DEK and every AAD prefix belongs to one file, and no key lies in metadata.json
5. row lineage: first-row-id, added-rows, next-row-id and first_row_id are consistent, no two files share a row id, and no two live rows
   either where files hold row ids of their own (not looked at in snapshots with equality deletes)
6. every deletion vector: footer, frame, CRC-32, bitmap and cardinality; its data file is there, in its partition and not newer than it,
   and has no other one; totals of the summary
7. every file below the table's location but ``*.metadata.json`` begins with AGS1 or PARE

Usage: python tests/verify/verify_table.py METADATA_JSON --master-key ID=HEX [--keyring-json FILE] [--relocate FROM=TO] [--json]

It stops at the first fault, names the file or key, and exits with 1. Not here: partition values, bounds and other metrics.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro

if not __package__:  # run as a script
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.verify.reading import (
    Fault,
    KeyMetadata,
    Storage,
    ags1_open,
    decode_key_metadata,
    expect,
    fault,
    gcm_open,
    parquet_table,
)
from tests.verify.row_deletes import Found, Live, check_deletes, position_deletes, stored_row_ids, vector

EXISTING, ADDED, DELETED = 0, 1, 2
MAGIC_OF = {"PARQUET": b"PARE", "AVRO": b"AGS1", "PUFFIN": b"AGS1"}


@dataclass(frozen=True)
class Manifest:
    header: dict[str, str]
    entries: list[dict[str, Any]]


class Keys:
    """The key entries of the metadata, opened; and which file each DEK and AAD prefix belongs to."""

    def __init__(self, metadata: dict[str, Any], masters: dict[str, list[bytes]]) -> None:
        self.metadata = metadata
        self.entries: dict[str, dict[str, Any]] = {}
        self.keks: dict[str, bytes] = {}
        self.of_file: dict[str, KeyMetadata] = {}
        self._owner: dict[bytes, str] = {}
        for entry in metadata.get("encryption-keys", []):
            if entry["key-id"] in self.entries:
                fault(f"encryption-keys: {entry['key-id']} is there twice")
            self.entries[entry["key-id"]] = entry
        master_id = metadata["properties"]["encryption.key-id"]
        self.length = int(metadata["properties"].get("encryption.data-key-length", 16))
        for key_id, entry in self.entries.items():
            if entry["encrypted-by-id"] == master_id:
                kek = self._unwrap(entry, masters.get(master_id, []))
                expect(len(kek), self.length, f"KEK {key_id}: length against encryption.data-key-length")
                self._own(kek, f"KEK {key_id}")
                self.keks[key_id] = kek
        for key_id, entry in self.entries.items():
            if entry["encrypted-by-id"] not in {master_id, *self.keks}:
                fault(f"key entry {key_id} is encrypted by {entry['encrypted-by-id']}, which is neither the master key nor a KEK")

    def _unwrap(self, entry: dict[str, Any], candidates: list[bytes]) -> bytes:
        name = f"KEK {entry['key-id']}"
        if "KEY_TIMESTAMP" not in entry.get("properties", {}):
            fault(f"{name}: no KEY_TIMESTAMP")
        if not candidates:
            fault(f"{name}: master key {entry['encrypted-by-id']} was not given (--master-key ID=HEX)")
        wrapped = base64.b64decode(entry["encrypted-key-metadata"], validate=True)
        for number, candidate in enumerate(candidates, 1):
            try:
                return gcm_open(candidate, wrapped, None, f"{name} under master key {entry['encrypted-by-id']}")
            except Fault:
                if number == len(candidates):
                    raise
        raise AssertionError

    def _own(self, secret: bytes, owner: str) -> None:
        other = self._owner.setdefault(secret, owner)
        if other != owner:
            fault(f"{owner} shares its key or AAD prefix with {other}")

    def claim(self, location: str, key: KeyMetadata) -> None:
        """Say that a file has this key: one key for one file, in every snapshot that lists it."""
        if self.of_file.setdefault(location, key) != key:
            fault(f"{location}: two parents give it different key metadata")
        expect(len(key.dek), self.length, f"{location}: length of its DEK against encryption.data-key-length")
        self._own(key.dek, location)
        self._own(key.aad_prefix, location)

    def of_manifest_list(self, snapshot: dict[str, Any]) -> KeyMetadata:
        key_id = snapshot.get("key-id")
        if key_id is None:
            fault(f"snapshot {snapshot['snapshot-id']} has no key-id")
        if key_id not in self.entries:
            fault(f"snapshot {snapshot['snapshot-id']}: key-id {key_id} is not in encryption-keys")
        entry = self.entries[key_id]
        kek_id = entry["encrypted-by-id"]
        if kek_id not in self.keks:
            fault(f"manifest-list key {key_id} is encrypted by {kek_id}, which is no KEK")
        aad = self.entries[kek_id]["properties"]["KEY_TIMESTAMP"].encode()
        blob = gcm_open(self.keks[kek_id], base64.b64decode(entry["encrypted-key-metadata"], validate=True), aad, f"key entry {key_id}")
        return decode_key_metadata(blob, f"key entry {key_id}")

    def refuse_keys_in(self, text: bytes) -> None:
        """No KEK and no DEK may lie in metadata.json, neither raw nor as base64 or hex."""
        secrets = {**{f"KEK {name}": kek for name, kek in self.keks.items()}, **{name: key.dek for name, key in self.of_file.items()}}
        lowered = text.lower()
        for name, secret in secrets.items():
            if secret in text or base64.b64encode(secret).rstrip(b"=") in text or secret.hex().encode() in lowered:
                fault(f"metadata.json holds the key of {name}")


def _rows(data: bytes) -> Manifest:
    """Decode a manifest or list. Java writes fixed partition values with a length, as it does bytes, whatever the schema says."""
    reader: Any = fastavro.block_reader(io.BytesIO(data))
    names: set[str] = set()

    def stored(node: Any) -> Any:
        if isinstance(node, list):
            return [stored(one) for one in node]
        if isinstance(node, dict) and node.get("type") == "fixed" and "logicalType" not in node:
            names.add(node["name"])
            return "bytes"
        if isinstance(node, dict):
            return {name: stored(value) for name, value in node.items()}
        return "bytes" if isinstance(node, str) and node in names else node

    schema = fastavro.parse_schema(stored(json.loads(reader.metadata["avro.schema"])))
    entries: list[Any] = []
    block: Any
    for block in reader:
        stream = io.BytesIO(block.bytes_.getvalue())
        entries += [fastavro.schemaless_reader(stream, schema, None) for _ in range(block.num_records)]
        expect(stream.read(), b"", "bytes behind the rows of a block")
    return Manifest({name: str(value) for name, value in reader.metadata.items()}, entries)


class Verifier:
    """Walks one table; every method raises Fault at what it finds."""

    def __init__(self, metadata: dict[str, Any], storage: Storage, keys: Keys) -> None:
        self.metadata, self.storage, self.keys = metadata, storage, keys
        self.kinds: Counter[str] = Counter()
        self._manifests: dict[str, Manifest] = {}
        self._manifest_rows: dict[str, tuple[Any, ...]] = {}
        self._row_ids: dict[str, int] = {}
        self._deleted = Found()
        self._puffins: dict[str, bytes] = {}

    def _avro(self, location: str, key: KeyMetadata, kind: str) -> Manifest:
        if location not in self._manifests:
            self.kinds[kind] += 1
            self.keys.claim(location, key)
            self._manifests[location] = _rows(ags1_open(self.storage.bytes(location), key, location))
        self.keys.claim(location, key)
        return self._manifests[location]

    def snapshot(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Verify one snapshot down to its data files and return its figures."""
        where = snapshot["manifest-list"]
        listing = self._avro(where, self.keys.of_manifest_list(snapshot), "manifest lists")
        self._list_header(snapshot, listing.header, where)
        counts: Counter[str] = Counter(manifests=len(listing.entries))
        live = Live()
        first_row_id = next_row_id = snapshot.get("first-row-id")  # none in a snapshot from before its table's upgrade
        for row in listing.entries:
            if row["content"] == 0 and row["first_row_id"] is None:
                fault(f"{where}: data manifest {row['manifest_path']} has no first_row_id")
            own = row["added_snapshot_id"] == snapshot["snapshot-id"]
            # The first snapshot after an upgrade gives ids to what older ones added.
            if next_row_id is not None and row["content"] == 0 and (own or row["first_row_id"] >= first_row_id):
                expect(row["first_row_id"], next_row_id, f"{row['manifest_path']}: first_row_id in {where}")
                next_row_id += row["added_rows_count"] + row["existing_rows_count"]
            self._manifest(row, counts, live)
        if first_row_id is not None:
            expect(next_row_id - first_row_id, snapshot["added-rows"], f"{where}: row ids given against added-rows")
        spans = sorted((start, start + file["record_count"], path) for path, (file, _, _, start) in live.data.items())
        for (_, end, one), (start, _, other) in itertools.pairwise(spans):
            if start < end:
                fault(f"{one} and {other} share row ids")
        check_deletes(live, self._deleted, where)
        totals = {
            "total-records": "rows",
            "total-data-files": "data_files",
            "total-delete-files": "delete_files",
            "total-position-deletes": "deleted_rows",
            "total-equality-deletes": "equality_deletes",
        }
        for name, figure in totals.items():
            if name in snapshot.get("summary", {}):
                expect(int(snapshot["summary"][name]), counts[figure], f"snapshot {snapshot['snapshot-id']}: {name}")
        figures = {name: counts[name] for name in ("rows", "deleted_rows", "data_files", "delete_files", "equality_deletes", "manifests")}
        return {"snapshot-id": snapshot["snapshot-id"], "sequence-number": snapshot.get("sequence-number", 0), **figures}

    def _list_header(self, snapshot: dict[str, Any], header: dict[str, str], where: str) -> None:
        for name, value in {
            "snapshot-id": snapshot["snapshot-id"],
            "sequence-number": snapshot["sequence-number"],
            "format-version": 3,
        }.items():
            expect(header.get(name), str(value), f"{where}: header {name}")

    def _manifest(self, row: dict[str, Any], counts: Counter[str], live: Live) -> None:
        where = row["manifest_path"]
        key = decode_key_metadata(row["key_metadata"], where)
        expect(row["manifest_length"], key.length, f"{where}: manifest_length against the key metadata")
        fixed = (row["first_row_id"], row["sequence_number"], row["added_snapshot_id"], row["manifest_length"])
        expect(fixed, self._manifest_rows.setdefault(where, fixed), f"{where}: its row in two manifest lists")
        manifest = self._avro(where, key, "manifests")
        expect(manifest.header.get("format-version"), "3", f"{where}: header format-version")
        expect(manifest.header.get("content"), "deletes" if row["content"] else "data", f"{where}: header content")
        self._counts(row, manifest.entries)
        row_id = row["first_row_id"]
        for entry in manifest.entries:
            self._sequence(entry, row)
            file = entry["data_file"]
            start = file["first_row_id"]
            if row["content"] == 0 and start is None and entry["status"] != DELETED:
                start, row_id = row_id, row_id + file["record_count"]
            if entry["status"] == DELETED:
                continue
            self._file(file)
            number = row["sequence_number"] if entry["sequence_number"] is None else entry["sequence_number"]
            if file["content"] == 0:
                expect(start, self._row_ids.setdefault(file["file_path"], start), f"{file['file_path']}: first row id in two manifests")
                live.data[file["file_path"]] = (file, row["partition_spec_id"], number, start)
                counts.update(rows=file["record_count"], data_files=1)
            else:
                live.deletes.append((file, row["partition_spec_id"], number))
                counts.update(delete_files=1, **{("deleted_rows" if file["content"] == 1 else "equality_deletes"): file["record_count"]})

    def _counts(self, row: dict[str, Any], entries: list[dict[str, Any]]) -> None:
        for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            records = [entry["data_file"]["record_count"] for entry in entries if entry["status"] == status]
            expect(row[f"{name}_files_count"], len(records), f"{row['manifest_path']}: {name}_files_count against its entries")
            expect(row[f"{name}_rows_count"], sum(records), f"{row['manifest_path']}: {name}_rows_count against its entries")

    def _sequence(self, entry: dict[str, Any], row: dict[str, Any]) -> None:
        file = entry["data_file"]["file_path"]
        if entry["snapshot_id"] is None and entry["status"] != ADDED:
            fault(f"{file}: an existing or deleted entry without snapshot_id in {row['manifest_path']}")
        if entry["sequence_number"] is None:
            expect(entry["status"], ADDED, f"{file}: status of an entry without sequence number in {row['manifest_path']}")
        elif entry["sequence_number"] > row["sequence_number"]:
            fault(f"{file}: sequence number {entry['sequence_number']} is beyond its manifest's {row['sequence_number']}")

    def _file(self, file: dict[str, Any]) -> None:
        where = file["file_path"]
        key = decode_key_metadata(file["key_metadata"], where)
        expect(file["file_size_in_bytes"], key.length, f"{where}: file_size_in_bytes against the key metadata")
        seen = where in self.keys.of_file
        self.keys.claim(where, key)
        if seen:
            self._vector(file)
            return
        data = self.storage.bytes(where)
        expect(len(data), key.length, f"{where}: size against the key metadata's file_length")
        kind = file["file_format"].upper()
        if kind not in MAGIC_OF:
            fault(f"{where}: file format {kind} cannot be encrypted")
        expect(data[:4], MAGIC_OF[kind], f"{where}: magic")
        self.kinds[("data files", "position deletes", "equality deletes")[file["content"]]] += 1
        if kind == "PARQUET":
            table = parquet_table(data, key, where)
            expect(table.num_rows, file["record_count"], f"{where}: rows against record_count")
            if file["content"] == 0:
                self._deleted.row_ids[where] = stored_row_ids(table, None)
            elif file["content"] == 1:
                self._deleted.positions[where] = position_deletes(table, where)
            return
        plain = ags1_open(data, key, where)
        if kind == "AVRO":
            expect(sum(1 for _ in fastavro.reader(io.BytesIO(plain))), file["record_count"], f"{where}: rows against record_count")
            self._deleted.row_ids[where] = stored_row_ids(None, plain)
        else:
            self._puffins[where] = plain
            self._vector(file)

    def _vector(self, file: dict[str, Any]) -> None:
        if file["file_format"].upper() == "PUFFIN" and (file["file_path"], file["content_offset"]) not in self._deleted.vectors:
            self._deleted.vectors[file["file_path"], file["content_offset"]] = vector(self._puffins[file["file_path"]], file)

    def lineage(self) -> None:
        """The numbers of the table: snapshots take row ids one after another, next-row-id is behind them all."""
        taken = 0
        since_upgrade = [one for one in self.metadata["snapshots"] if "first-row-id" in one]
        for snapshot in sorted(since_upgrade, key=lambda s: s.get("sequence-number", 0)):
            if snapshot["first-row-id"] < taken:
                fault(f"snapshot {snapshot['snapshot-id']}: first-row-id {snapshot['first-row-id']} is below {taken}, which is taken")
            taken = snapshot["first-row-id"] + snapshot["added-rows"]
            if snapshot.get("sequence-number", 0) > self.metadata["last-sequence-number"]:
                fault(f"snapshot {snapshot['snapshot-id']}: sequence number beyond last-sequence-number")
            if snapshot.get("sequence-number", 0) == self.metadata["last-sequence-number"]:
                expect(self.metadata["next-row-id"], taken, "next-row-id behind the last snapshot")
        if self.metadata["next-row-id"] < taken:
            fault(f"next-row-id {self.metadata['next-row-id']} is below {taken}")

    def folder(self, *, plain_statistics: bool) -> int:
        """Check the first bytes of all files below the location; return how many no snapshot reaches."""
        named = {
            self.storage.path(item["statistics-path"])
            for item in [*self.metadata.get("statistics", []), *self.metadata.get("partition-statistics", [])]
        }
        unreached = 0
        for path in sorted(self.storage.path(self.metadata["location"]).rglob("*")):
            if path.is_dir() or path.name.endswith(".metadata.json") or (plain_statistics and path in named):
                continue
            with path.open("rb") as stream:
                magic = stream.read(4)
            if magic not in (b"AGS1", b"PARE"):
                fault(f"{path.name}: not encrypted, its first bytes are {magic!r}")
            unreached += path not in self.storage.read
        return unreached


def verify(
    metadata_json: Path,
    masters: dict[str, list[bytes]],
    relocate: dict[str, str] | None = None,
    *,
    plain_statistics: bool = False,
) -> dict[str, Any]:
    """Verify one table and return the figures; raises Fault."""
    text = metadata_json.read_bytes()
    metadata = json.loads(text)
    expect(metadata["format-version"], 3, f"{metadata_json.name}: format-version")
    if "encryption.key-id" not in metadata["properties"]:
        fault(f"{metadata_json.name}: no encryption.key-id, so this is a plain table")
    keys = Keys(metadata, masters)
    verifier = Verifier(metadata, Storage(relocate or {}), keys)
    snapshots = [verifier.snapshot(snapshot) for snapshot in metadata["snapshots"]]
    verifier.lineage()
    keys.refuse_keys_in(text)
    return {
        "table-uuid": metadata["table-uuid"],
        "current-snapshot-id": metadata.get("current-snapshot-id"),
        "keks": len(keys.keks),
        "deks": len(keys.of_file),
        "files": dict(verifier.kinds),
        "unreached_files": verifier.folder(plain_statistics=plain_statistics),
        "snapshots": snapshots,
    }


def pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals:
        message = f"{text!r} is not of the form A=B"
        raise argparse.ArgumentTypeError(message)
    return left, right


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Verify an encrypted Iceberg table without icelock.")
    parser.add_argument("metadata_json", type=Path)
    parser.add_argument("--master-key", type=pair, action="append", default=[], metavar="ID=HEX", help="again for another version")
    parser.add_argument("--keyring-json", type=Path, metavar="FILE", help='{"ID": "HEX" or ["HEX", ...]}')
    parser.add_argument("--relocate", type=pair, action="append", default=[], metavar="FROM=TO", help="map locations to a local folder")
    parser.add_argument("--plain-statistics", action="store_true", help="let plaintext statistics files pass (Java writes them so)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    masters: dict[str, list[bytes]] = {}
    for key_id, versions in json.loads(options.keyring_json.read_text(encoding="utf-8")).items() if options.keyring_json else ():
        masters[key_id] = [bytes.fromhex(version) for version in ([versions] if isinstance(versions, str) else versions)]
    for key_id, version in options.master_key:
        masters.setdefault(key_id, []).append(bytes.fromhex(version))
    try:
        report = verify(options.metadata_json, masters, dict(options.relocate), plain_statistics=options.plain_statistics)
    except Fault as found:
        print(f"FAULT: {found}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(report, indent=1))
        return 0
    for snapshot in report["snapshots"]:
        print(" ".join(f"{name}={value}" for name, value in snapshot.items()))
    print(f"{report['deks']} files, each with its own DEK and AAD prefix, under {report['keks']} KEK(s): {report['files']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
