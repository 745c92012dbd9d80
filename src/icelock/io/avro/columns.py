"""Rows of Avro blocks as columns, decoded by polars: many times faster than row by row, and other threads run meanwhile.

polars reads whole Avro files and nests records as they are stored. An Avro record is the concatenation of its fields, so the blocks are
joined under our own header, whose schema has the fields of nested records side by side and without logical types: then unwanted columns
are skipped, and values are the stored ones.

Invariant: polars reports neither left-over bytes nor a wrong union branch. So a guard row with a known text is appended to the file's
rows; it comes out unchanged only if the rows before it used every byte. In most files a field is null in all rows or in none: then the
union's branch is read as a column of numbers, and checked. Otherwise all bytes are checked (``io.avro.check``), which takes six times as
long as polars. Numbers are read as longs, since polars drops the bits that do not fit an int; bits that do not fit a long are searched
for in the bytes (``_wide_numbers``). Anything wrong, or not of the few shapes below, is ``NotColumnarError``: the caller's row-wise
reader then says what is wrong, or reads it. Of unwanted columns it is only known that each ends where the next one begins.

    primitive | fixed | record of fields, flattened | array of primitives | array of pairs of primitives | null or one of these

Not here: containers and their codecs (``io.avro.read``), what the columns mean (``plan.manifest_columns``).
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from icelock.errors import FormatError
from icelock.format.key_metadata import encode_bytes, encode_long
from icelock.io.avro.check import AvroBlock, RowCheck, first_bytes
from icelock.io.avro.read import encode_header

if TYPE_CHECKING:
    import polars as pl

_PRIMITIVES: Final = ("boolean", "int", "long", "float", "double", "bytes", "string")
_SYNC: Final = bytes(16)
_END: Final = "\x00end of rows\x00"
_EMPTY: Final[Mapping[str, bytes]] = {"boolean": b"\0", "int": b"\0", "long": b"\0", "float": bytes(4), "double": bytes(8), "bytes": b"\0"}


class NotColumnarError(Exception):
    """The columnar reader cannot read these rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatField:
    """A stored field: a column's name, and its Avro type without names and logical types."""

    column: str
    avro: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReader:
    """Reads columns of rows whose fields are ``fields``, in stored order; ``guard`` is a column of texts that are never null.

    ``check`` checks the stored rows.
    """

    fields: Sequence[FlatField]
    guard: str
    check: RowCheck
    _checked: set[int] = field(init=False, repr=False, default_factory=set)

    def read(self, blocks: Sequence[AvroBlock], columns: Sequence[str]) -> pl.DataFrame:
        """Return columns of the blocks' rows, including the guard; a column that is null in all rows has no type.

        Raises:
            NotColumnarError: polars is not installed or was used before this process was forked, or the bytes are not exactly these rows.
        """
        if _first_process() != os.getpid():
            raise NotColumnarError("the threads of polars do not survive a fork")
        if importlib.util.find_spec("polars") is None:
            raise NotColumnarError("polars is not installed")
        wanted = [self.guard, *(column for column in columns if column != self.guard)]
        layout = None if any(_inner(flat.avro) == "boolean" for flat in self.fields) else self._layout_of_first(blocks)
        frame = None if layout is None else self._decoded(blocks, wanted, layout)
        if frame is None or not self._all_fit_longs(blocks, frame, layout):
            self._check_all(blocks)
            frame = self._decoded(blocks, wanted, _Layout.of(self.fields, None, self.guard))
        if frame is None:
            raise NotColumnarError("the rows do not use the bytes of their blocks")
        return frame

    def _layout_of_first(self, blocks: Sequence[AvroBlock]) -> _Layout | None:
        """Return the layout of rows that are null where the first one is; None if that of another block is null elsewhere."""
        types = [flat.avro for flat in self.fields]
        try:
            firsts = [first_bytes(types, block.data) for block in blocks if block.rows] or [first_bytes(types, b"")]
        except FormatError:
            return None
        unions = [index for index, avro in enumerate(types) if isinstance(avro, list)]
        alike = all(found[index] == firsts[0][index] for found in firsts for index in unions)
        return _Layout.of(self.fields, firsts[0], self.guard) if alike else None

    def _all_fit_longs(self, blocks: Sequence[AvroBlock], frame: pl.DataFrame, layout: _Layout | None) -> bool:
        """Whether everything that looks like a number of more than 64 bits is inside bytes and texts."""
        left = [block for block in blocks if id(block) not in self._checked]
        wide = sum(_wide_numbers(block.data) for block in left)
        if wide and (len(left) < len(blocks) or _wide_values(frame) != wide):
            everything = None if layout is None else self._decoded(left, [self.guard, *(flat.column for flat in self.fields)], layout)
            if everything is None or _wide_values(everything) != wide:
                return False
        self._checked.update(map(id, left))
        return True

    def _check_all(self, blocks: Sequence[AvroBlock]) -> None:
        for block in blocks:
            if id(block) in self._checked:
                continue
            if not self.check.fits(block):
                raise NotColumnarError("a block does not hold these rows")
            self._checked.add(id(block))

    def _decoded(self, blocks: Sequence[AvroBlock], wanted: Sequence[str], layout: _Layout) -> pl.DataFrame | None:
        """Return the wanted columns, or None if the rows do not have this layout."""
        import polars as pl  # noqa: PLC0415 - an extra, and slow to import

        rows = sum(block.rows for block in blocks)
        size = sum(len(block.data) for block in blocks) + len(layout.last_row)
        if rows > size:
            return None
        parts = (layout.header, encode_long(rows + 1), encode_long(size), *(block.data for block in blocks), layout.last_row, _SYNC)
        stored = [column for column in wanted if column not in layout.nulls]
        try:
            frame = pl.read_avro(io.BytesIO(b"".join(parts)), columns=[*stored, *layout.branches])
            if len(frame) != rows + 1 or frame.get_column(self.guard)[rows] != _END:
                return None
            if not all((frame.get_column(column) == branch).all() for column, branch in layout.branches.items()):
                return None
            ints = [pl.col(column).cast(pl.Int32) for column in stored if column in layout.ints]
            nulls = [pl.lit(None).alias(column) for column in wanted if column in layout.nulls]
            return frame.head(rows).select_seq(stored).with_columns_seq(ints + nulls)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as e:
            if layout.branches:
                return None  # not null where the first row is, so that what follows was taken for something else
            raise NotColumnarError(type(e).__name__) from e


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The schema that polars gets. ``branches`` are columns of union branches, ``nulls`` are null in all rows."""

    header: bytes
    last_row: bytes
    branches: Mapping[str, int]
    nulls: frozenset[str]
    ints: frozenset[str]

    @classmethod
    def of(cls, fields: Sequence[FlatField], firsts: Sequence[int] | None, guard: str) -> _Layout:
        """``firsts`` has the first byte of each field, which for a union is twice its branch; None: polars reads the unions."""
        stored: list[dict[str, Any]] = []
        last: list[bytes] = []
        branches: dict[str, int] = {}
        nulls: set[str] = set()
        for index, flat in enumerate(fields):
            avro = flat.avro
            if isinstance(avro, list) and firsts is not None:
                branch = firsts[index] >> 1
                branches[f"branch {index}"] = branch
                stored.append({"name": f"branch {index}", "type": "long"})
                last.append(encode_long(branch))
                if not branch:
                    nulls.add(flat.column)
                    continue
                avro = avro[1]
            stored.append({"name": flat.column, "type": _as_longs(avro)})
            last.append(encode_bytes(_END.encode()) if flat.column == guard else _empty(avro))
        schema = json.dumps({"type": "record", "name": "rows", "fields": stored})
        header = encode_header({"avro.schema": schema.encode(), "avro.codec": b"null"}, _SYNC)
        ints = frozenset(flat.column for flat in fields if _inner(flat.avro) == "int")
        return cls(header=header, last_row=b"".join(last), branches=branches, nulls=frozenset(nulls), ints=ints)


_CLASSES: Final = bytes(0 if byte < 2 else 1 if byte < 128 else 2 for byte in range(256))  # noqa: PLR2004 - what a tenth byte may be
_WIDE: Final = b"\x02" * 9 + b"\x01"


def _wide_numbers(data: bytes) -> int:
    """Count the places with nine continuation bytes of a number and a tenth that has more than the one remaining bit."""
    return data.translate(_CLASSES).count(_WIDE)


def _wide_values(frame: pl.DataFrame) -> int:
    """Return the same count for the bytes and texts of a frame."""
    import polars as pl  # noqa: PLC0415 - an extra, which the reader has found

    found = 0
    for column in frame.get_columns():
        values = column
        if isinstance(values.dtype, pl.List):
            values = values.explode()
        if isinstance(values.dtype, pl.Struct):
            values = values.struct.field("value")
        if values.dtype == pl.String:
            values = values.cast(pl.Binary)
        if values.dtype == pl.Binary:
            found += _wide_numbers(b"\0".join(values.drop_nulls().to_list()))
    return found


def _inner(avro: Any) -> Any:
    return avro[1] if isinstance(avro, list) else avro


def _as_longs(avro: Any) -> Any:
    """Return a type with longs instead of ints, which are encoded alike."""
    if isinstance(avro, list):
        return [_as_longs(one) for one in avro]
    if isinstance(avro, Mapping):
        return {name: _as_longs(value) if name in ("type", "items", "fields") else value for name, value in avro.items()}
    return "long" if avro == "int" else avro


@cache
def _first_process() -> int:
    """Return the first process that asked, of this one and those that it was forked from."""
    return os.getpid()


def stored_type(avro: Any) -> Any:
    """Return a field's Avro type in the form of ``FlatField``.

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
    raise NotColumnarError(f"Avro type {avro!r}")


def _union(branches: Sequence[Any]) -> Any:
    if len(branches) != 2 or branches[0] != "null" or isinstance(branches[1], list):  # noqa: PLR2004 - null and another
        raise NotColumnarError(f"Avro union {branches!r}")
    return ["null", stored_type(branches[1])]


def _item(avro: Any) -> Any:
    if isinstance(avro, Mapping) and avro.get("type") == "record" and len(avro["fields"]) == 2:  # noqa: PLR2004 - key and value
        pair = [stored_type(field["type"]) for field in avro["fields"]]
        if all(isinstance(kind, str) for kind in pair):
            fields = [{"name": name, "type": kind} for name, kind in zip(("key", "value"), pair, strict=True)]
            return {"type": "record", "name": "pair", "fields": fields}
    kind = stored_type(avro)
    if not isinstance(kind, str):
        raise NotColumnarError(f"Avro array of {avro!r}")
    return kind


def _empty(avro: Any) -> bytes:
    """Return the shortest value of a type; null where it is allowed."""
    if isinstance(avro, list):
        return b"\0"
    if isinstance(avro, Mapping):
        return bytes(avro["size"]) if avro["type"] == "fixed" else b"\0"
    return _EMPTY.get(avro, b"\0")
