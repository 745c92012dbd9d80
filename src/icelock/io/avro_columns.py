"""Rows of Avro blocks as columns, decoded by polars: many times faster than row by row, and other threads run meanwhile.

polars reads whole Avro files and nests records as they are stored. An Avro record is the concatenation of its fields, so here the
blocks are joined under a header of our own, whose schema has the fields of nested records side by side and without logical types: then
the columns that nobody asked for are skipped, and values are those that are stored.

Invariant: polars reports neither bytes that are left over nor a wrong union branch. So a last row with a known text is put behind the
file's rows; it comes out as it went in only if the rows before it used every byte. Whatever is amiss, or not of the few shapes below,
is ``NotColumnarError``: the caller's row-wise reader then says what is wrong, or reads it.

    primitive | fixed | record of fields, flattened | array of primitives | array of pairs of primitives | null or one of these

Not here: containers and their codecs (``io.avro``), what the columns mean (``metadata.manifest_columns``).
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from icelock.io.avro import MAGIC, AvroBlock, encode_long

if TYPE_CHECKING:
    import polars as pl

_PRIMITIVES: Final = ("boolean", "int", "long", "float", "double", "bytes", "string")
_SYNC: Final = bytes(16)
_END: Final = "\x00end of rows\x00"
_EMPTY: Final[Mapping[str, bytes]] = {"boolean": b"\0", "int": b"\0", "long": b"\0", "float": bytes(4), "double": bytes(8), "bytes": b"\0"}


class NotColumnarError(Exception):
    """These rows are not for the columnar reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatField:
    """A stored field: its Avro type without names and logical types, under the name of a column."""

    column: str
    avro: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReader:
    """Reads columns of rows whose fields are ``fields``, in stored order; ``guard`` is a column of texts that are never null."""

    fields: Sequence[FlatField]
    guard: str
    _header: bytes = field(init=False, repr=False)
    _last_row: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        record = {"type": "record", "name": "rows", "fields": [{"name": flat.column, "type": flat.avro} for flat in self.fields]}
        header = b"".join(_entry(*item) for item in (("avro.schema", json.dumps(record)), ("avro.codec", "null")))
        object.__setattr__(self, "_header", b"".join((MAGIC, encode_long(2), header, b"\0", _SYNC)))
        end = _text(_END)
        last = b"".join(end if flat.column == self.guard else _empty(flat.avro) for flat in self.fields)
        object.__setattr__(self, "_last_row", last)

    def read(self, blocks: Sequence[AvroBlock], columns: Sequence[str]) -> pl.DataFrame:
        """Return columns of the blocks' rows, the guard among them.

        Raises:
            NotColumnarError: polars is not installed, or was used before this process was forked, or the bytes are not exactly these rows.
        """
        if _first_process() != os.getpid():
            msg = "the threads of polars do not survive a fork"
            raise NotColumnarError(msg)
        try:
            import polars as pl  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as e:
            msg = "polars is not installed"
            raise NotColumnarError(msg) from e
        rows = sum(block.rows for block in blocks)
        size = sum(len(block.data) for block in blocks) + len(self._last_row)
        if rows > size:
            msg = "more rows than bytes"
            raise NotColumnarError(msg)
        parts = (self._header, encode_long(rows + 1), encode_long(size), *(block.data for block in blocks), self._last_row, _SYNC)
        wanted = [self.guard, *(column for column in columns if column != self.guard)]
        try:
            frame = pl.read_avro(io.BytesIO(b"".join(parts)), columns=wanted)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as e:
            msg = f"{type(e).__name__}: {e}"
            raise NotColumnarError(msg) from e
        if len(frame) != rows + 1 or frame.get_column(self.guard)[rows] != _END:
            msg = "the rows do not use the bytes of their blocks"
            raise NotColumnarError(msg)
        return frame.head(rows)


@cache
def _first_process() -> int:
    """Return the process that was the first to ask, of this one and those that it was forked from."""
    return os.getpid()


def stored_type(avro: Any) -> Any:
    """Return a field's Avro type as ``FlatField`` has it.

    Raises:
        NotColumnarError: a type that is not read as a column.
    """
    if isinstance(avro, list):
        return _union(avro)
    kind = avro["type"] if isinstance(avro, Mapping) else avro
    if isinstance(kind, str) and kind in _PRIMITIVES:
        return kind
    if isinstance(avro, Mapping) and kind == "fixed" and isinstance(avro.get("size"), int) and avro["size"] > 0:
        return {"type": "fixed", "name": "fixed", "size": avro["size"]}
    if isinstance(avro, Mapping) and kind == "array":
        return {"type": "array", "items": _item(avro.get("items"))}
    msg = f"Avro type {avro!r}"
    raise NotColumnarError(msg)


def _union(branches: Sequence[Any]) -> Any:
    if len(branches) != 2 or branches[0] != "null" or isinstance(branches[1], list):  # noqa: PLR2004 - null and another
        msg = f"Avro union {branches!r}"
        raise NotColumnarError(msg)
    return ["null", stored_type(branches[1])]


def _item(avro: Any) -> Any:
    if isinstance(avro, Mapping) and avro.get("type") == "record" and len(avro["fields"]) == 2:  # noqa: PLR2004 - key and value
        pair = [stored_type(field["type"]) for field in avro["fields"]]
        if all(isinstance(kind, str) for kind in pair):
            fields = [{"name": name, "type": kind} for name, kind in zip(("key", "value"), pair, strict=True)]
            return {"type": "record", "name": "pair", "fields": fields}
    kind = stored_type(avro)
    if not isinstance(kind, str):
        msg = f"Avro array of {avro!r}"
        raise NotColumnarError(msg)
    return kind


def _empty(avro: Any) -> bytes:
    """Return the shortest value of a type; null where there may be one."""
    if isinstance(avro, list):
        return b"\0"
    if isinstance(avro, Mapping):
        return bytes(avro["size"]) if avro["type"] == "fixed" else b"\0"
    return _EMPTY.get(avro, b"\0")


def _text(value: str) -> bytes:
    data = value.encode()
    return encode_long(len(data)) + data


def _entry(name: str, value: str) -> bytes:
    return _text(name) + _text(value)
