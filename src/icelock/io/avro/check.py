"""Whether the bytes of an Avro block are rows of a schema, and nothing else (Avro 1.12 specification, "Binary Encoding").

Decoders accept more than that: a union branch that the union lacks, a number of more than 64 bits, any byte for a boolean, a length past
the end (PyIceberg's decoder in C then reads memory outside the file), or a schema other than the one the rows were written with. So the
bytes are checked first. Visiting every value in Python would take longer than decoding; so fields whose bytes show their own end (numbers,
booleans, fixed, null, and unions of null and one of these) are matched by one regular expression for each run of them, and so are the
items of arrays of them.

A fixed type may have ``prefix`` (hex), which is not Avro: bytes that it must begin with (``metadata.stored_schema``).

Not here: containers (``io.avro.read``), values (``metadata.entry_reader``, ``io.avro.columns``), what rows may say (``metadata.manifest``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Final, NoReturn

from icelock.errors import FormatError
from icelock.io.plain_input import RESTORE

_Step = Callable[[bytes, int], int]
"""Takes the bytes and the position of a value; returns the position after it, or raises ``_Unfit`` or IndexError."""

_KEPT: Final = 64
_DEEPEST: Final = 64
_MOST_BRANCHES: Final = 64
_MOST_EMPTY: Final = 1 << 20
_MOST_EMPTY_ITEMS: Final = 16
MOST_TYPES: Final = 1 << 17
"""How many types a schema may have; named ones count at each use, since names within names grow without bound."""
_AT_ONCE: Final = 256
_CONTINUES: Final = 0x80
_LONG: Final = rb"[\x80-\xff]{0,8}+(?:[\x00-\x7f]|[\x80-\xff][\x00\x01])"
_PATTERNS: Final[Mapping[str, bytes]] = {
    "null": b"",
    "boolean": rb"[\x00\x01]",
    "int": rb"[\x80-\xff]{0,3}+(?:[\x00-\x7f]|[\x80-\xff][\x00-\x0f])",
    "long": _LONG,
    "float": rb".{4}",
    "double": rb".{8}",
}
_LEAST: Final[Mapping[str, int]] = {"null": 0, "float": 4, "double": 8}
_NUMBER: Final = re.compile(_LONG, re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroBlock:
    """``rows`` records, encoded one after the other in ``data``."""

    rows: int
    data: bytes


class _Unfit(Exception):  # noqa: N818 - it does not leave this module
    """What is wrong with the bytes, or with the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Type:
    """A type: its ``pattern`` if it has one, else its ``step``; ``least`` is the fewest bytes of a value.

    ``fields`` are those of a record that has a pattern, for better messages; ``pair``: it is a record of a number and bytes, like the
    bounds of columns.
    """

    least: int
    pattern: bytes | None = None
    step: _Step | None = None
    fields: tuple[tuple[str, _Type], ...] = ()
    pair: bool = False

    def walk(self, name: str) -> _Step:
        """Return the step of values; only here is a pattern compiled, so not those of records that are a part of another's."""
        return self.step or (_sequence(self.fields) if self.fields else _by_pattern([(name, self.pattern or b"")]))


class RowCheck:
    """Checks blocks of one schema, the writer's, in JSON.

    Raises:
        FormatError: a schema that is not valid Avro, or that is endless.
    """

    def __init__(self, schema: str, *, location: str) -> None:
        self._location = location
        try:
            self._walk, self._least = _compiled(schema, "row")
        except (_Unfit, LookupError, TypeError, ValueError, AttributeError, RecursionError, re.error, OverflowError) as e:
            raise FormatError(f"{location}: the file's Avro schema is invalid ({type(e).__name__.lstrip('_')}: {e}); {RESTORE}") from e

    def fits(self, block: AvroBlock) -> bool:
        """Whether ``check`` passes."""
        try:
            self.check(block)
        except FormatError:
            return False
        return True

    def check(self, block: AvroBlock) -> None:
        """Check every byte of a block.

        Raises:
            FormatError: it is not ``block.rows`` rows of the schema, or bytes are left over; names the file, the row and the field.
        """
        data, least = block.data, self._least
        if block.rows * least > len(data) or (not least and block.rows > _MOST_EMPTY):
            self._refuse(f"{len(data)} bytes are too few for {block.rows} rows")
        position = row = 0
        walk = self._walk
        try:
            for row in range(block.rows if least or data else 0):  # noqa: B007 - for the message
                position = walk(data, position)
        except (_Unfit, IndexError, UnicodeDecodeError, RecursionError) as e:
            found = "it ends too early" if isinstance(e, IndexError) else str(e)
            self._refuse(f"row {row} of {block.rows}, after byte {position} of {len(data)}: {found}")
        if position > len(data):
            self._refuse(f"row {row} of {block.rows} ends {position - len(data)} bytes beyond it")
        if position != len(data):
            self._refuse(f"{block.rows} rows have {position} bytes, it has {len(data)}")

    def _refuse(self, what: str) -> NoReturn:
        raise FormatError(f"{self._location}: an Avro block does not hold rows of the file's schema: {what}; {RESTORE}")


def first_bytes(types: Sequence[Any], data: bytes) -> list[int]:
    """Return the first byte of each value of a row; a union's is its branch.

    Raises:
        FormatError: the bytes do not begin with such a row.
    """
    firsts = []
    position = 0
    try:
        for one in types:
            firsts.append(data[position])
            position = _compiled(json.dumps(one), "value")[0](data, position)
    except (_Unfit, IndexError, UnicodeDecodeError) as e:
        raise FormatError(f"no row: {e}") from e
    return firsts


@lru_cache(maxsize=_KEPT)
def _compiled(schema: str, name: str) -> tuple[_Step, int]:
    """Return the step of a schema's values, which messages call ``name``, and the fewest bytes of one."""
    kind = _Compiler().type(json.loads(schema))
    return kind.walk(name), kind.least


class _Compiler:
    """Compiles the types of one schema; ``_named`` can be referred to by name."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._depth = 0
        self._made = 0

    def type(self, written: Any) -> _Type:
        self._depth += 1
        self._made += 1
        if self._depth > _DEEPEST or self._made > MOST_TYPES:
            raise _Unfit(f"types are nested more than {_DEEPEST} deep, a type holds itself, or there are more than {MOST_TYPES}")
        try:
            return self._union(written) if isinstance(written, list) else self._single(written)
        finally:
            self._depth -= 1

    def _single(self, written: Any) -> _Type:
        if isinstance(written, str) and written not in _PATTERNS and written not in ("bytes", "string"):
            return self.type(self._named[written])
        kind = written if isinstance(written, str) else written["type"]
        if not isinstance(kind, str):
            return self.type(kind)
        if kind in _PATTERNS:
            return _Type(pattern=_PATTERNS[kind], least=_LEAST.get(kind, 1))
        if kind in ("bytes", "string"):
            return _Type(step=_text if kind == "string" else _bytes, least=1)
        if kind in ("record", "fixed", "enum"):
            self._named.update({written["name"]: written, f"{written.get('namespace')}.{written['name']}": written})
        compound = {"record": self._record, "fixed": _fixed, "enum": _enum, "array": self._array, "map": self._map}.get(kind)
        return self.type(self._named[kind]) if compound is None else compound(written)

    def _record(self, written: Mapping[str, Any]) -> _Type:
        fields = [(str(field["name"]), self.type(field["type"])) for field in written["fields"]]
        least = sum(kind.least for _, kind in fields)
        if all(kind.pattern is not None for _, kind in fields):
            return _Type(pattern=b"".join(kind.pattern or b"" for _, kind in fields), fields=tuple(fields), least=least)
        pair = [kind for _, kind in fields] == [_Type(pattern=_PATTERNS["int"], least=1), _Type(step=_bytes, least=1)]
        return _Type(step=_sequence(fields), least=least, pair=pair)

    def _union(self, branches: list[Any]) -> _Type:
        kinds = [self.type(branch) for branch in branches]
        if not 0 < len(kinds) <= _MOST_BRANCHES:
            raise _Unfit(f"a union of {len(kinds)} branches")
        least = 1 + min(kind.least for kind in kinds)
        if all(kind.pattern is not None for kind in kinds):
            cases = (re.escape(bytes([2 * tag])) + (kind.pattern or b"") for tag, kind in enumerate(kinds))
            return _Type(pattern=b"(?>" + b"|".join(cases) + b")", least=least)
        return _Type(step=_branches([kind.walk("value") for kind in kinds]), least=least)

    def _array(self, written: Mapping[str, Any]) -> _Type:
        return _Type(step=_items(self.type(written["items"])), least=1)

    def _map(self, written: Mapping[str, Any]) -> _Type:
        values = self.type(written["values"])
        entry = _sequence([("key", _Type(step=_text, least=1)), ("value", values)])
        return _Type(step=_items(_Type(step=entry, least=1 + values.least)), least=1)


def _fixed(written: Mapping[str, Any]) -> _Type:
    size, prefix = written["size"], bytes.fromhex(written.get("prefix", ""))
    if not isinstance(size, int) or isinstance(size, bool) or size < len(prefix):
        raise _Unfit(f"a fixed type of {size!r} bytes")
    return _Type(pattern=re.escape(prefix) + b".{%d}" % (size - len(prefix)), least=size)


def _enum(written: Mapping[str, Any]) -> _Type:
    known = len(written["symbols"])

    def step(data: bytes, position: int) -> int:
        index, position = _number(data, position)
        if not 0 <= index < known:
            raise _Unfit(f"symbol {index} of an enum that has {known}")
        return position

    return _Type(step=step, least=1)


def _sequence(fields: Sequence[tuple[str, _Type]]) -> _Step:
    """Return the step of consecutive fields; each run of fields with patterns is one expression."""
    steps: list[_Step] = []
    together: list[tuple[str, bytes]] = []
    for name, kind in fields:
        if kind.pattern is not None:
            together.append((name, kind.pattern))
            continue
        if together:
            steps.append(_by_pattern(together))
            together = []
        steps.append(kind.walk(name))
    if together:
        steps.append(_by_pattern(together))

    def step(data: bytes, position: int) -> int:
        for one in steps:
            position = one(data, position)
        return position

    return step


def _by_pattern(fields: Sequence[tuple[str, bytes]]) -> _Step:
    match = re.compile(b"".join(pattern for _, pattern in fields), re.DOTALL).match

    def step(data: bytes, position: int) -> int:
        found = match(data, position)
        return _unfit_field(fields, data, position) if found is None else found.end()

    return step


def _unfit_field(fields: Sequence[tuple[str, bytes]], data: bytes, position: int) -> NoReturn:
    """Name the field that does not match."""
    for name, pattern in fields:
        found = re.compile(pattern, re.DOTALL).match(data, position)
        if found is None:
            raise _Unfit(f"no value of {name} at byte {position}: {data[position : position + 8].hex(' ') or 'the end'}")
        position = found.end()
    raise AssertionError


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return a long, and the position after it."""
    found = _NUMBER.match(data, position)
    if found is None:
        raise _Unfit(f"no number of at most 64 bits at byte {position}: {data[position : position + 11].hex(' ') or 'the end'}")
    value = reduce(lambda high, byte: high << 7 | byte & 0x7F, reversed(found[0]), 0)
    return (value >> 1) ^ -(value & 1), found.end()


def _bytes(data: bytes, position: int) -> int:
    size = data[position]
    if size < _CONTINUES and not size & 1:
        return position + 1 + (size >> 1)  # what comes next notices if that is past the end
    size, position = _number(data, position)
    if not 0 <= size <= len(data) - position:
        raise _Unfit(f"a length of {size} at byte {position}, where {max(0, len(data) - position)} bytes are left")
    return position + size


def _text(data: bytes, position: int) -> int:
    size = data[position]
    if size < _CONTINUES and not size & 1:
        start = position + 1
        end = start + (size >> 1)
    else:
        end = _bytes(data, position)
        start = _number(data, position)[1]
    data[start:end].decode()
    return end


def _branches(steps: Sequence[_Step]) -> _Step:
    known = 2 * len(steps)

    def step(data: bytes, position: int) -> int:
        tag = data[position]
        if tag >= known or tag & 1:
            raise _Unfit(f"branch {tag:02x} at byte {position} of a union that has {known // 2}")
        return steps[tag >> 1](data, position + 1)

    return step


def _items(item: _Type) -> _Step:
    """Return the step of an array: blocks of a count and that many items; a negative count is followed by the block's size."""
    several = _several(item)

    def step(data: bytes, position: int) -> int:
        while True:
            count = data[position]
            if count < _CONTINUES and not count & 1:
                count >>= 1
                position += 1
                if not count:
                    return position
            else:
                count, position = _number(data, position)
            size = None
            if count < 0:
                size, position = _number(data, position)
                count = -count
            if count * item.least > len(data) - position or (not item.least and count > _MOST_EMPTY_ITEMS):
                raise _Unfit(f"{count} items at byte {position}, where {max(0, len(data) - position)} bytes are left")
            start, position = position, several(data, position, count)
            if size is not None and position - start != size:
                raise _Unfit(f"items of {position - start} bytes at byte {start}, said to have {size}")

    return step


def _several(item: _Type) -> Callable[[bytes, int, int], int]:
    """Return the step of that many items."""
    one = item.walk("item")
    pattern = item.pattern

    @lru_cache(maxsize=_KEPT)
    def many(count: int) -> Callable[[bytes, int], re.Match[bytes] | None]:
        return re.compile(b"(?>%b){%d}" % (pattern or b"", count), re.DOTALL).match

    def step(data: bytes, position: int, count: int) -> int:
        while pattern is not None and count:
            together = min(count, _AT_ONCE)
            found = many(together)(data, position)
            if found is None:
                break
            position, count = found.end(), count - together
        for _ in range(count):
            position = one(data, position)
        return position

    return _several_pairs(one) if item.pair else step


def _several_pairs(one: _Step) -> Callable[[bytes, int, int], int]:
    """Return the step of that many pairs of a number and bytes, mostly of one byte and below 64; ``one`` takes any."""

    def step(data: bytes, position: int, count: int) -> int:
        for _ in range(count):
            size = data[position + 1]
            if data[position] < _CONTINUES and size < _CONTINUES and not size & 1:
                position += 2 + (size >> 1)
            else:
                position = one(data, position)
        return position

    return step
