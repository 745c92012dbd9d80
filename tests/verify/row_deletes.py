"""Deletion vectors, position deletes and row ids for ``verify_table.py``; shares no code with ``src/icelock``.

    Puffin   PFA1 | blobs | PFA1 | footer JSON | LE uint32 its length | LE uint32 flags | PFA1
    blob     BE uint32 n | D1 D3 39 64 | LE uint64 count | (LE uint32 high word | 32-bit Roaring)* | BE CRC-32 of magic and bitmap

Roaring is decoded here from its own specification (RoaringFormatSpec): array, bitset and run containers.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from tests.verify.reading import Fault, expect, fault

ROW_ID = 2147483540
PATH, POSITION = 2147483546, 2147483545
NO_RUNS, RUNS = 12346, 12347
MOST_IN_ARRAY = 4096


@dataclass
class Live:
    """The live files of one snapshot, each with its manifest's spec id and its sequence number; data files with their first row id."""

    data: dict[str, tuple[dict[str, Any], int, int, int]] = field(default_factory=dict)
    deletes: list[tuple[dict[str, Any], int, int]] = field(default_factory=list)


@dataclass
class Found:
    """What files hold: positions by vector (path and offset), by position delete file and data file; stored row ids by data file."""

    vectors: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    positions: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    row_ids: dict[str, Any] = field(default_factory=dict)


class Bytes:
    """Takes bytes from the front; Fault when there are too few."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.what, self.at = data, what, 0

    def take(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize(form)
        if self.at + size > len(self.data):
            fault(f"{self.what}: the bitmap ends too early")
        self.at += size
        return struct.unpack(form, self.data[self.at - size : self.at])


def roaring64(data: bytes, what: str) -> list[int]:
    source = Bytes(data, what)
    (words,) = source.take("<Q")
    found: list[int] = []
    for _ in range(words):
        (high,) = source.take("<I")
        found += [high << 32 | low for low in _roaring32(source)]
    expect(source.at, len(data), f"{what}: bytes of the bitmap")
    expect(found, sorted(set(found)), f"{what}: positions in ascending order")
    return found


def _roaring32(source: Bytes) -> list[int]:
    (cookie,) = source.take("<I")
    if cookie & 0xFFFF == RUNS:
        containers = (cookie >> 16) + 1
        flags = bytes(source.take(f"<{(containers + 7) // 8}B"))
        runs = [bool(flags[index // 8] >> index % 8 & 1) for index in range(containers)]
    else:
        expect(cookie, NO_RUNS, f"{source.what}: Roaring cookie")
        (containers,) = source.take("<I")
        runs = [False] * containers
    heads = [source.take("<HH") for _ in range(containers)]
    if cookie == NO_RUNS or containers >= 4:
        source.take(f"<{containers}I")  # offsets, which say nothing new
    found: list[int] = []
    for (key, less_one), run in zip(heads, runs, strict=True):
        found += [key << 16 | low for low in _container(source, less_one + 1, run=run)]
    return found


def _container(source: Bytes, cardinality: int, *, run: bool) -> list[int]:
    if run:
        (count,) = source.take("<H")
        spans = [source.take("<HH") for _ in range(count)]
        found = [value for start, more in spans for value in range(start, start + more + 1)]
    elif cardinality <= MOST_IN_ARRAY:
        found = list(source.take(f"<{cardinality}H"))
    else:
        words = source.take("<1024Q")
        found = [64 * index + bit for index, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    expect(len(found), cardinality, f"{source.what}: values in a container")
    return found


def vector_positions(blob: bytes, cardinality: int, what: str) -> list[int]:
    """Return the positions of a deletion vector blob."""
    if len(blob) < 20:
        fault(f"{what}: {len(blob)} bytes are no deletion vector")
    expect(struct.unpack(">I", blob[:4])[0], len(blob) - 8, f"{what}: length of the vector")
    expect(blob[4:8], b"\xd1\xd3\x39\x64", f"{what}: magic of the vector")
    expect(struct.unpack(">I", blob[-4:])[0], zlib.crc32(blob[4:-4]), f"{what}: CRC-32")
    positions = roaring64(blob[8:-4], what)
    expect(len(positions), cardinality, f"{what}: cardinality")
    return positions


def puffin_blobs(plain: bytes, what: str) -> dict[int, dict[str, Any]]:
    """Return the footer's blobs by offset, after checking the frame."""
    expect((plain[:4], plain[-4:]), (b"PFA1", b"PFA1"), f"{what}: Puffin magic at both ends")
    length, flags = struct.unpack("<II", plain[-12:-4])
    expect(flags, 0, f"{what}: Puffin flags")
    start = len(plain) - 12 - length
    expect(plain[start - 4 : start], b"PFA1", f"{what}: Puffin magic before the footer")
    blobs = {blob["offset"]: blob for blob in json.loads(plain[start:-12])["blobs"]}
    end = 4
    for offset in sorted(blobs):
        expect(offset, end, f"{what}: where a blob begins")
        end = offset + blobs[offset]["length"]
    expect(end, start - 4, f"{what}: where the last blob ends")
    return blobs


def vector(plain: bytes, file: dict[str, Any]) -> list[int]:
    """Return the deleted positions of a manifest entry's deletion vector, compared with the Puffin footer."""
    where, about = file["file_path"], file["referenced_data_file"]
    if about is None or file["content_offset"] is None or file["content_size_in_bytes"] is None:
        fault(f"{where}: a deletion vector without referenced_data_file, content_offset or content_size_in_bytes")
    offset, size = file["content_offset"], file["content_size_in_bytes"]
    blob = puffin_blobs(plain, where).get(offset)
    if blob is None:
        fault(f"{where}: no blob begins at content_offset {offset}")
    expect(blob["type"], "deletion-vector-v1", f"{where}: type of the blob at {offset}")
    expect(blob["length"], size, f"{where}: length of the blob at {offset}")
    properties = {"referenced-data-file": about, "cardinality": str(file["record_count"])}
    expect({name: blob["properties"].get(name) for name in properties}, properties, f"{where}: properties of the blob at {offset}")
    return vector_positions(plain[offset : offset + size], file["record_count"], f"{where} at {offset}")


def position_deletes(table: pa.Table, what: str) -> dict[str, list[int]]:
    """Return the positions by data file in a position delete file."""
    columns = {int((field.metadata or {}).get(b"PARQUET:field_id", b"-1")): table.column(index) for index, field in enumerate(table.schema)}
    if PATH not in columns or POSITION not in columns:
        fault(f"{what}: no file_path and pos")
    found: dict[str, list[int]] = {}
    for path, position in zip(columns[PATH].to_pylist(), columns[POSITION].to_pylist(), strict=True):
        found.setdefault(path, []).append(position)
    return found


def stored_row_ids(table: pa.Table | None, avro: bytes | None) -> pa.Array | None:
    """Return the stored ``_row_id`` of each row of a data file, null where it is inherited; None when no column has them."""
    if table is not None:
        for index, field in enumerate(table.schema):
            if (field.metadata or {}).get(b"PARQUET:field_id") == str(ROW_ID).encode():
                return table.column(index).combine_chunks()
        return None
    reader = fastavro.reader(io.BytesIO(avro or b""))
    schema: Any = reader.writer_schema
    name = next((field["name"] for field in schema["fields"] if field.get("field-id") == ROW_ID), None)
    return None if name is None else pa.array([row[name] for row in reader], pa.int64())  # type: ignore[index]


def live_row_ids(stored: pa.Array | None, first: int, rows: int, deleted: set[int]) -> pa.Array:
    """Return the row ids of the rows that are not deleted."""
    ids = pa.array(range(first, first + rows), pa.int64())
    if stored is not None:
        ids = pc.coalesce(stored, ids)
    if not deleted:
        return ids
    if max(deleted) >= rows:
        message = f"row {max(deleted)} is deleted of {rows}"
        raise Fault(message)
    return ids.filter(pa.array([position not in deleted for position in range(rows)]))


def check_unique(ids: list[pa.Array], what: str) -> None:
    """No two live rows of a snapshot have the same row id."""
    every = pa.chunked_array(ids, pa.int64())
    expect(pc.count_distinct(every).as_py(), len(every), f"{what}: different row ids of its live rows")


def check_deletes(live: Live, found: Found, where: str) -> None:
    """Each deletion vector fits its data file; live rows have row ids of their own."""
    deleted: dict[str, set[int]] = {}
    with_vector: set[str] = set()
    for file, spec_id, number in live.deletes:
        if file["file_format"].upper() != "PUFFIN":
            for path, positions in found.positions.get(file["file_path"], {}).items():
                if path in live.data and live.data[path][2] <= number:
                    deleted.setdefault(path, set()).update(positions)
            continue
        about = file["referenced_data_file"]
        if about not in live.data:
            fault(f"{where}: the deletion vector of {about} in {file['file_path']} is about no data file of the snapshot")
        if about in with_vector:
            fault(f"{where}: {about} has two deletion vectors")
        with_vector.add(about)
        data, data_spec, data_number, _ = live.data[about]
        # as text, so that NaN is NaN
        expect(f"{spec_id} {file['partition']}", f"{data_spec} {data['partition']}", f"{about}: spec and partition of its deletion vector")
        if number < data_number:
            fault(f"{about}: sequence number {data_number} is beyond that of its deletion vector, {number}")
        deleted[about] = set(found.vectors[file["file_path"], file["content_offset"]])
    if any(found.row_ids.get(path) is not None for path in live.data) and not any(file["content"] == 2 for file, _, _ in live.deletes):
        check_unique(
            [
                live_row_ids(found.row_ids.get(path), start, file["record_count"], deleted.get(path, set()))
                for path, (file, _, _, start) in live.data.items()
            ],
            where,
        )
