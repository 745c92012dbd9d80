"""The Avro schema of a manifest as written, and as its bytes really are.

1. A named type (fixed, record) is defined once and then referred to by name. PyIceberg's conversion does this neither when writing nor
   when reading, so two partition fields of one such type could be neither written nor read. See ``named_once`` and ``inlined``.
2. Java Iceberg (1.9 to 1.12 at least: ``ValueWriters.fixedBuffers``, ``InternalReader``) writes and reads partition values of ``fixed(N)``
   as bytes, preceded by their length, although its schema says fixed; those of ``uuid`` and ``decimal`` it writes correctly. We write what
   Java reads. Older versions of icelock, and other writers, wrote what the schema says; so a block is first tried as one of Java's, with
   each length checked, then as one of theirs. No other bytes are accepted: see ``io.avro.check``.

Not here: the values (``metadata.entry_reader``, ``plan.manifest_columns``, ``metadata.manifest_writer``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

from icelock.errors import FormatError
from icelock.format.key_metadata import encode_long
from icelock.io.avro.check import MOST_TYPES

DATA_FILE: Final = 2
PARTITION: Final = 102
_DEEPEST: Final = 64
_NAMED: Final = ("record", "fixed", "enum")
_KEPT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """``schema`` is what the bytes are, ``text`` the same in JSON; ``prefixes`` are the bytes before partition values, by position."""

    schema: Any
    text: str
    prefixes: Mapping[int, bytes]

    @classmethod
    def of(cls, schema: Any, prefixes: Mapping[int, bytes]) -> Self:
        """Return the form of a schema."""
        return cls(schema=schema, text=json.dumps(schema), prefixes=prefixes)


class _SharedIdError(Exception):
    """Which fields of a record have one id."""


def forms(text: bytes, *, location: str) -> tuple[StoredForm, ...]:
    """Return the possible forms of a manifest's blocks, in the order to try; ``text`` is its Avro schema in JSON, from the header.

    Raises:
        FormatError: a field id stands for two fields of one record.
        LookupError, TypeError, ValueError, RecursionError: an invalid schema.
    """
    try:
        return _forms(text)
    except _SharedIdError as e:
        raise FormatError(f"{location} {e}: it breaks the spec; rewrite it") from None


@lru_cache(maxsize=_KEPT)
def _forms(text: bytes) -> tuple[StoredForm, ...]:
    """Return the same; a table's manifests have one schema, and to look at it takes half of the time of reading a small one."""
    plain = inlined(json.loads(text))
    _check_ids(plain)
    java = _with_lengths(plain)
    return (*([java] if java.prefixes else []), StoredForm.of(plain, {}))


def written_form(schema: Any) -> StoredForm:
    """Return how the rows of a new manifest are encoded; ``schema`` is the header's, before ``named_once``."""
    return _with_lengths(inlined(schema))


def inlined(schema: Any) -> Any:
    """Return a schema with definitions in place of names.

    Raises:
        ValueError: a type contains itself.
    """
    return _Inliner().of(schema, 0)


def named_once(schema: Any) -> Any:
    """Return a schema in which every definition of a name but the first is replaced by the name."""
    return _named_once(schema, set())


def _check_ids(node: Any) -> None:
    """Refuse an id that two fields share: PyIceberg takes the last one, other readers the first."""
    if isinstance(node, list):
        for child in node:
            _check_ids(child)
    if not isinstance(node, Mapping):
        return
    seen: dict[Any, str] = {}
    for field in node.get("fields", ()):
        field_id = field.get("field-id")
        if field_id is not None and field_id in seen:
            raise _SharedIdError(f"has field id {field_id} twice ({seen[field_id]!r}, {field['name']!r})")
        seen[field_id] = field["name"]
        _check_ids(field["type"])
    for name in ("type", "items", "values"):
        _check_ids(node.get(name))


class _Inliner:
    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._made = 0

    def of(self, node: Any, depth: int) -> Any:
        self._made += 1
        if depth > _DEEPEST or self._made > MOST_TYPES:
            raise ValueError(f"a type holds itself, is nested too deep, or there are more than {MOST_TYPES}")
        if isinstance(node, list):
            return [self.of(child, depth + 1) for child in node]
        if isinstance(node, str):
            return self.of(self._known[node], depth + 1) if node in self._known else node
        if not isinstance(node, Mapping):
            return node
        if node.get("type") in _NAMED and isinstance(node.get("name"), str):
            self._known[node["name"]] = node
        made = dict(node)
        for name in ("type", "items", "values"):
            if name in made:
                made[name] = self.of(made[name], depth + 1)
        if "fields" in made:
            made["fields"] = [{**field, "type": self.of(field["type"], depth + 1)} for field in made["fields"]]
        return made


def _named_once(node: Any, seen: set[str]) -> Any:
    if isinstance(node, list):
        return [_named_once(child, seen) for child in node]
    if not isinstance(node, Mapping):
        return node
    if node.get("type") in _NAMED and "name" in node:
        if node["name"] in seen:
            return node["name"]
        seen.add(node["name"])
    return {name: _named_once(value, seen) if name in ("type", "items", "values", "fields") else value for name, value in node.items()}


def _with_lengths(schema: Any) -> StoredForm:
    """Return Java's form: a length before each partition value of a plain fixed type."""
    prefixes: dict[int, bytes] = {}

    def part(field: Mapping[str, Any], position: int) -> Mapping[str, Any]:
        kind = field["type"]
        union = isinstance(kind, list)
        for index, branch in enumerate(kind if union else [kind]):
            if isinstance(branch, Mapping) and branch.get("type") == "fixed" and "logicalType" not in branch:
                prefix = encode_long(branch["size"])
                prefixes[position] = prefix
                longer = {**branch, "name": f"fixed_part_{position}", "size": branch["size"] + len(prefix), "prefix": prefix.hex()}
                return {**field, "type": [*kind[:index], longer, *kind[index + 1 :]] if union else longer}
        return field

    def data_file(field: Mapping[str, Any]) -> Mapping[str, Any]:
        if field.get("field-id") != PARTITION:
            return field
        parts = [part(one, position) for position, one in enumerate(_fields(field["type"]))]
        return {**field, "type": {**field["type"], "fields": parts}}

    def entry(field: Mapping[str, Any]) -> Mapping[str, Any]:
        if field.get("field-id") != DATA_FILE:
            return field
        return {**field, "type": {**field["type"], "fields": [data_file(one) for one in _fields(field["type"])]}}

    made = {**schema, "fields": [entry(one) for one in _fields(schema)]}
    return StoredForm.of(made, prefixes)


def _fields(record: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(record, Mapping) or record.get("type") != "record":
        raise TypeError(f"not an Avro record: {record!r}")
    return iter(record["fields"])
