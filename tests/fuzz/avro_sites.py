"""Where in the bytes of Avro rows there is what: a walk by the specification, for mutations that know what they change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Site = tuple[str, int, int, frozenset[str]]
"""Kind (branch, count, length, text, or a primitive type), first byte, byte behind the last, names of the fields that it is in."""


def zigzag(value: int) -> bytes:
    """Varint of any number, worked out here."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def sites(schema: Any, data: bytes, rows: int) -> list[Site]:
    """Return the sites of all rows, in order."""
    walk = _Walk(data)
    for _ in range(rows):
        walk.value(schema)
    assert walk.at == len(data)
    return walk.found


class _Walk:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.found: list[Site] = []
        self.names: list[str] = []

    def add(self, kind: str, start: int, end: int) -> None:
        self.found.append((kind, start, end, frozenset(self.names)))

    def number(self, kind: str) -> int:
        start = self.at
        while self.data[self.at] & 128:
            self.at += 1
        self.at += 1
        value = sum((byte & 127) << (7 * index) for index, byte in enumerate(self.data[start : self.at]))
        self.add(kind, start, self.at)
        return (value >> 1) ^ -(value & 1)

    def take(self, kind: str, size: int) -> None:
        self.add(kind, self.at, self.at + size)
        self.at += size

    def value(self, schema: Any) -> None:  # noqa: C901, PLR0912 - one case a type
        if isinstance(schema, list):
            self.value(schema[self.number("branch")])
            return
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            self.value(kind)
        elif kind in ("int", "long"):
            self.number(kind)
        elif kind in ("float", "double", "boolean"):
            self.take(kind, {"float": 4, "double": 8, "boolean": 1}[kind])
        elif kind in ("bytes", "string"):
            self.take("text" if kind == "string" else kind, self.number("length"))
        elif kind == "fixed":
            self.take(kind, schema["size"])
        elif kind == "record":
            for field in schema["fields"]:
                self.names.append(field["name"])
                self.value(field["type"])
                self.names.pop()
        elif kind == "array":
            for _ in self.items():
                self.value(schema["items"])
        elif kind == "map":
            for _ in self.items():
                self.value("string")
                self.value(schema["values"])
        else:
            assert kind == "null", kind

    def items(self) -> Iterator[None]:
        while count := self.number("count"):
            assert count > 0
            for _ in range(count):
                yield


CHANGES: dict[str, list[bytes]] = {
    "branch": [zigzag(n) for n in (-1, -2, 2, 3, 63, 64, 1 << 40, -(1 << 40))] + [b"\xff" * 9 + b"\x02", b"\xff" * 12 + b"\x00"],
    "count": [zigzag(n) for n in (-1, -10, 1, 1 << 20, 1 << 62, -(1 << 62))] + [zigzag(-1) + zigzag(3), b"\xff" * 10 + b"\x01"],
    "length": [zigzag(n) for n in (-1, -64, 1 << 20, 1 << 40, 1 << 62, -(1 << 62))] + [b"\xff" * 11],
    "long": [zigzag(n) for n in (-1, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 64)]
    + [b"\x80" * 9 + b"\x02", b"\x80" * 11 + b"\x00"],
    "int": [zigzag(n) for n in (-1, 3, 1 << 31, (1 << 32) + 1, -(1 << 31) - 1, (1 << 63) - 1)] + [b"\x80" * 4 + b"\x10"],
    "boolean": [b"\x02", b"\x80", b"\xff"],
    "text": [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00"],
    "fixed": [b"", b"\x00" * 40],
    "double": [b"", b"\x00" * 9],
}
"""What is put in the place of a site, by its kind; of text one byte is exchanged, so that its length stays."""


def changed(data: bytes, site: Site, replacement: bytes) -> bytes:
    """Return the bytes with another value at a site."""
    kind, start, end, _ = site
    if kind == "text":
        size = min(len(replacement), end - start)
        return data[:start] + replacement[:size] + data[start + size :]
    return data[:start] + replacement + data[end:]
