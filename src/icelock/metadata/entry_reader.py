"""Records of manifests and manifest lists: blocks by ``io.avro.read``, which accounts for every byte, rows by PyIceberg's decoders.

PyIceberg's own reader (0.12) takes a cut in the file, or a block without rows, for the end, and checks neither bytes left over in a block
nor the last sync marker; so rows could be lost without an error. Its decoder in C accepts any union branch and any length, and reads past
the end of the block; so blocks are checked first (``io.avro.check``). PyIceberg also writes partition values in nanoseconds that it cannot
read: ``{"type": "long", "logicalType": "timestamp-nanos", ...}`` is read as a long; the values are the same. And its decoder in C gives
doubles the digits of a float (0.1 becomes 0.10000000149...), so blocks that may have doubles use the one in Python.

PyIceberg reads manifests and manifest lists of plain tables itself. It gets the same blocks, unpacked within the limits and checked
(``checked_avro``).

Not here: what the records hold (``metadata.manifest``), many entries at once (``plan.manifest_columns``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import InputFile
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from icelock.errors import FormatError, IcelockError
from icelock.format.key_metadata import encode_long
from icelock.io.avro.check import AvroBlock, RowCheck
from icelock.io.avro.read import AvroFile, encode_header
from icelock.io.limits import Limits, read_all
from icelock.io.plain_input import RESTORE, PlainBytes
from icelock.metadata.stored_schema import forms
from icelock.properties import LIMIT_MANIFEST_BYTES

_NANOS: Final = "timestamp-nanos"
_KEPT_READERS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordKind:
    """How the records of a file are built.

    Args:
        what: what the file should be, for messages.
        schema: of the wanted records; fields are matched by id.
        types: the class of a field id's record; -1 is the outer one.
        enums: the enumeration of a field id's values.
    """

    what: str
    schema: Schema
    types: Mapping[int, Callable[..., Any]]
    enums: Mapping[int, Callable[..., Enum]]


def read_records(file: InputFile, kind: RecordKind, limits: Limits) -> Iterator[Any]:
    """Yield the records of a plain or decrypting file, which is read, and so authenticated, as a whole first.

    Raises:
        FormatError: the plain bytes are not such a file; names the file.
        IntegrityError: the bytes are not those that were written.
    """
    avro = open_whole(file, limits)
    yield from decode_records(avro.schema_text, avro.all_blocks(), location=file.location, kind=kind)


def open_whole(file: InputFile, limits: Limits) -> AvroFile:
    """Read a plain or decrypting file as a whole.

    Raises:
        FormatError: the plain bytes are not an Avro file, or exceed the limits.
        IntegrityError: the bytes are not those that were written.
    """
    with file.open() as stream:
        data = read_all(stream, file.location, limit=limits.manifest_bytes, name=LIMIT_MANIFEST_BYTES)
    return AvroFile(PlainBytes(location=file.location, data=data), limits)


def decode_records(stored: bytes, blocks: Iterable[AvroBlock], *, location: str, kind: RecordKind) -> Iterator[Any]:
    """Yield the records of some blocks; ``stored`` is their Avro schema in JSON.

    Raises:
        FormatError: they are not such records.
    """
    try:
        known = [(RowCheck(form.text, location=location), form) for form in forms(stored, location=location)]
        for block in blocks:
            form = next((form for rows, form in known if rows.fits(block)), None)
            if form is None:
                known[-1][0].check(block)
                continue
            reader, decoder_of = _reader(form.text, kind)
            decoder = decoder_of(block.data)
            for _ in range(block.rows):
                record = reader.read(decoder)
                if form.prefixes:
                    _drop_prefixes(record.data_file.partition._data, form.prefixes)  # noqa: SLF001 - PyIceberg's Record
                yield record
            _check_used(block, decoder.tell(), location)
    except (IcelockError, OSError):
        raise
    except Exception as e:  # PyIceberg's decoders raise whatever the bytes lead to
        raise FormatError(f"{location} is not a {kind.what}: {e}") from e


@lru_cache(maxsize=_KEPT_READERS)
def _reader(stored: str, kind: RecordKind) -> tuple[Reader, Callable[[bytes], BinaryDecoder]]:
    """Return the reader for an Avro schema (JSON), and the constructor of a block's decoder.

    Making them takes as long as reading some hundred rows; they have no state.
    """
    schema = json.loads(stored)
    found = AvroSchemaConversion().avro_to_iceberg(_as_longs(schema))
    reader = resolve_reader(found, kind.schema, dict(kind.types), dict(kind.enums))
    return reader, StreamingBinaryDecoder if _has_doubles(schema) else new_decoder


def _drop_prefixes(values: list[Any], prefixes: Mapping[int, bytes]) -> None:
    for position, prefix in prefixes.items():
        if values[position] is not None:
            values[position] = values[position][len(prefix) :]


def _has_doubles(node: Any) -> bool:
    if isinstance(node, list):
        return any(map(_has_doubles, node))
    if isinstance(node, dict):
        return _has_doubles(node.get("type")) or any(_has_doubles(node.get(name)) for name in ("fields", "items", "values"))
    return bool(node == "double")


def _check_used(block: AvroBlock, used: int, location: str) -> None:
    if used != len(block.data):
        raise FormatError(f"{location}: an Avro block of {block.rows} rows has {len(block.data)} bytes, its rows have {used}; {RESTORE}")


def _as_longs(node: Any) -> Any:
    if isinstance(node, list):
        return [_as_longs(child) for child in node]
    if not isinstance(node, dict):
        return node
    if node.get("logicalType") == _NANOS:
        return "long"
    return {name: _as_longs(child) for name, child in node.items()}


def checked_avro(data: bytes, location: str, limits: Limits) -> bytes:
    """Return an Avro file's rows as an Avro file without compression.

    Raises:
        FormatError: it is not an Avro file, its blocks are not rows of its schema, or it exceeds the limits.
    """
    avro = AvroFile(PlainBytes(location=location, data=data), limits)
    try:
        rows = RowCheck(forms(avro.schema_text, location=location)[-1].text, location=location)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise FormatError(f"{location}: the file's Avro schema is invalid ({type(e).__name__}: {e}); {RESTORE}") from e
    parts = [encode_header({**avro.header, "avro.codec": b"null"}, avro.sync)]
    for block in avro.all_blocks():
        rows.check(block)
        parts += [encode_long(block.rows), encode_long(len(block.data)), block.data, avro.sync]
    return b"".join(parts)
