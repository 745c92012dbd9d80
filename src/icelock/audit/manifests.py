"""The rows of manifest lists and manifests, by fastavro over the plain bytes of a stream; only the columns that an audit needs.

Java writes partition values of type fixed as it does bytes, with a length, whatever the schema says; so they are read. A manifest is read
block by block, row by row.

Source: Iceberg table spec, "Manifests", "Manifest lists". Not here: what the rows mean for the table (``audit.table``).
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, cast

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from icelock.audit.fault import Fault
from icelock.properties import LIMIT_AVRO_BLOCK_BYTES, LIMITS

DELETED: Final = 2
_LONGEST_BLOCK: Final = LIMITS[LIMIT_AVRO_BLOCK_BYTES]
_SYNC: Final = 16
_BITS: Final = 64
_PIECE: Final = 1 << 20
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_UNREAD: Final = (
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    StopIteration,
    SchemaParseException,
    zlib.error,
)
# Names before and since format version 2.
_COUNTS: Final = ("added_files_count", "existing_files_count", "added_data_files_count", "existing_data_files_count")
_LIST: Final = frozenset({"manifest_path", "manifest_length", "key_metadata", *_COUNTS})
_ENTRY: Final = frozenset({"status", "data_file"})
_FILE: Final = frozenset({"content", "file_path", "file_format", "record_count", "file_size_in_bytes", "key_metadata"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRow:
    """A row of a manifest list; ``length`` in stored bytes, ``files`` in the table, ``key_metadata`` None if the manifest is plain."""

    path: str
    length: int
    files: int
    key_metadata: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """An entry of a manifest whose file is in the table; ``content``: 0 data, 1 position deletes, 2 equality deletes."""

    path: str
    format: str
    content: int
    records: int
    size: int
    key_metadata: bytes | None = field(repr=False)

    @property
    def kind(self) -> str:
        """What reports call it."""
        return "data files" if self.content == 0 else "delete files"


def manifest_rows(plain: BinaryIO, told: Callable[[str], None] = lambda _whose: None) -> Iterator[ManifestRow]:
    """Yield the rows of a manifest list; first ``told`` gets the id of the snapshot whose list it says that it is, if it says so.

    Raises:
        Fault: it is no manifest list.
    """
    for row in _rows(plain, _LIST, lambda header: told(str(header["snapshot-id"])) if "snapshot-id" in header else None):
        try:
            yield ManifestRow(
                path=str(row["manifest_path"]),
                length=int(row["manifest_length"]),
                files=sum(int(row.get(name) or 0) for name in _COUNTS),
                key_metadata=row.get("key_metadata"),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise _damaged(e) from e


def file_rows(plain: BinaryIO) -> Iterator[FileRow]:
    """Yield the files of a manifest that are not deleted from the table.

    Raises:
        Fault: it is no manifest.
    """
    for row in _rows(plain, _ENTRY):
        try:
            if row["status"] == DELETED:
                continue
            file = row["data_file"]
            yield FileRow(
                path=str(file["file_path"]),
                format=str(file["file_format"]).upper(),
                content=int(file.get("content") or 0),
                records=int(file["record_count"]),
                size=int(file["file_size_in_bytes"]),
                key_metadata=file.get("key_metadata"),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise _damaged(e) from e


def _rows(
    plain: BinaryIO, names: frozenset[str], told: Callable[[Mapping[str, Any]], None] = lambda _header: None
) -> Iterator[dict[str, Any]]:
    try:
        reader: Any = fastavro.block_reader(plain)
        told(reader.metadata)
        stored = json.loads(reader.metadata["avro.schema"])
        _check_finite(stored, set())
        writer = fastavro.parse_schema(_as_stored(stored, set()))
        wanted = fastavro.parse_schema(_only(_as_stored(stored, set()), names))
        for count, data in _blocks(plain, reader.metadata.get("avro.codec", "null")):
            rows = io.BytesIO(data)
            for _ in range(count):
                yield cast("dict[str, Any]", fastavro.schemaless_reader(rows, writer, wanted))
    except (*_UNREAD, pa.ArrowException) as e:
        raise _damaged(e) from e


def _blocks(plain: BinaryIO, codec: str) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers of rows and the bytes of blocks, up to a limit: one may be small, and large when unpacked."""
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise OSError(f"its rows are compressed by {codec!r}, which is not read here")
    while (first := plain.read(1)) != b"":
        count, size = _long(plain, first), _long(plain, plain.read(1))
        if count < 0 or not 0 <= size <= _LONGEST_BLOCK:
            raise ValueError("a block has an impossible length")
        data = plain.read(size)
        if len(data) != size or len(plain.read(_SYNC)) != _SYNC:
            raise EOFError("a block ends early")
        try:
            data = unpack(data)
        except OSError as e:  # Arrow's, of bytes that are not compressed so
            raise ValueError(str(e)) from e
        if len(data) > _LONGEST_BLOCK:
            raise ValueError("a block is too long when it is unpacked")
        yield count, data


def _inflate(data: bytes) -> bytes:
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, _LONGEST_BLOCK + 1)


def _snappy(data: bytes) -> bytes:
    """Raw Snappy, which begins with the plain length as a varint; four bytes of a checksum follow it."""
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[:5]) if all(before & 0x80 for before in data[:place]))
    if length > _LONGEST_BLOCK:
        raise ValueError("a block is too long when it is unpacked")
    return pa.decompress(data[:-4], decompressed_size=length, codec="snappy", asbytes=True)  # type: ignore[no-any-return]


def _zstandard(data: bytes) -> bytes:
    out, stream = bytearray(), pa.input_stream(pa.BufferReader(data), compression="zstd")
    while len(out) <= _LONGEST_BLOCK and (piece := stream.read(_PIECE)):
        out += piece
    return bytes(out)


# The codecs of Iceberg's writers.
_UNPACK: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": lambda data: data,
    "deflate": _inflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
}


def _long(plain: BinaryIO, first: bytes) -> int:
    """Return a number in Avro's zigzag form."""
    value, shift, byte = 0, 0, first
    while True:
        number = byte[0]
        value |= (number & 0x7F) << shift
        if not number & 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
        if shift >= _BITS:
            raise ValueError("a number has more than 64 bits")
        byte = plain.read(1)


def _check_finite(node: Any, names: set[str]) -> None:
    """Refuse a schema whose values may be without end: a type within itself, or items of no length. Iceberg's have neither."""
    if isinstance(node, str):
        if node not in _PRIMITIVES and node not in names:
            raise ValueError("a type is named within itself")
        return
    if isinstance(node, dict) and node.get("type") == "array" and _is_empty(node["items"]):
        raise ValueError("items of no length")
    for part in _parts(node):
        _check_finite(part, names)
    if isinstance(node, dict) and "name" in node:
        names.add(node["name"])


def _parts(node: Any) -> list[Any]:
    """Return the types that a type is made of."""
    if isinstance(node, list):
        return node
    kind = node["type"]
    if kind == "record":
        return [one["type"] for one in node["fields"]]
    if kind in {"array", "map"}:
        return [node["items" if kind == "array" else "values"]]
    return [] if kind in {"fixed", "enum"} else [kind]


def _is_empty(node: Any) -> bool:
    """Whether values of a type take no byte."""
    if isinstance(node, dict) and isinstance(node.get("type"), dict):
        return _is_empty(node["type"])
    kind = node.get("type") if isinstance(node, dict) else node
    return (
        kind == "null"
        or (kind == "record" and all(_is_empty(one["type"]) for one in node["fields"]))
        or (kind == "fixed" and not node.get("size"))
    )


def _damaged(error: Exception) -> Fault:
    return Fault("manifest-damaged", f"it opens, but is not what Iceberg keeps there ({type(error).__name__})")


def _as_stored(node: Any, fixed: set[str]) -> Any:
    """Return a schema whose fixed values have a length before them."""
    if isinstance(node, list):
        return [_as_stored(one, fixed) for one in node]
    if isinstance(node, dict) and node.get("type") == "fixed" and "logicalType" not in node:
        fixed.add(node["name"])
        return "bytes"
    if isinstance(node, dict):
        return {name: _as_stored(value, fixed) for name, value in node.items()}
    return "bytes" if isinstance(node, str) and node in fixed else node


def _only(schema: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return a record's schema with these fields only; of the data file with its own."""
    fields = [dict(one) for one in schema["fields"] if one["name"] in names]
    for one in fields:
        if one["name"] == "data_file":
            one["type"] = _only(one["type"], _FILE)
    return {**schema, "fields": fields}
