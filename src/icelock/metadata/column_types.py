"""Column types that PyIceberg does not know, or would not write the way it read them.

One column does not make a table unreadable: a type that there is no class for (``variant``, types of a later spec) is kept in the schema
as its text, and written as that text. Its values are neither read nor written; ``unread`` and its callers name such columns.

    geometry(OGC:CRS84)           Java's form, without quotes; PyIceberg adds quotes, which Java takes for part of the name
    geography(OGC:CRS84, vincenty)
    variant, any_name, any_name(...), any_name[...]

Values of ``geometry`` and ``geography`` are WKB, read as binary. Names of types ignore case, as in Java's
``Types.fromTypeName``, which refuses unknown names.

Not here: what may be read and written (``arrow.types``, ``arrow.write.schema``, ``spark.columns.types``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import PrivateAttr, model_serializer, model_validator
from pyiceberg import conversions
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

_NAME: Final = re.compile(r"([a-z][a-z0-9_]*)\s*(\(.*\)|\[.*\])?", re.IGNORECASE | re.DOTALL)
_GEOMETRY: Final = re.compile(r"geometry\s*\(\s*([^)]+?)\s*\)", re.IGNORECASE)
_GEOGRAPHY: Final = re.compile(r"geography\s*\(\s*([^,)]+?)\s*(?:,\s*(\w+)\s*)?\)", re.IGNORECASE)
_PLAIN: Final = frozenset(
    "boolean int long float double date time timestamp timestamptz timestamp_ns timestamptz_ns string uuid binary unknown".split()  # noqa: SIM905
)
_OURS: Final = _PLAIN | {"fixed", "decimal", "geometry", "geography", "struct", "list", "map"}
_PARTS: Final = ("type", "fields", "element", "key", "value")


class UnreadType(PrimitiveType):
    """A type whose values are neither read nor written; ``str`` is its text in metadata.json."""

    root: str

    def __init__(self, text: str) -> None:
        super().__init__(root=text)

    @model_validator(mode="wrap")  # type: ignore[misc]
    @classmethod
    def handle_primitive_type(cls, v: Any, handler: Any) -> IcebergType:
        """Keep the value, where PyIceberg would parse each text as a type's name."""
        return handler(v)  # type: ignore[no-any-return]

    def minimum_format_version(self) -> Any:
        """Return the version of the spec that the first of these types came with."""
        return 3

    @property
    def is_primitive(self) -> bool:
        """False: it cannot partition, sort or identify rows; in Java, too, ``variant`` is not primitive."""
        return False

    def __repr__(self) -> str:
        """Return the text, with the name of the class."""
        return f"UnreadType({self.root!r})"

    def __hash__(self) -> int:
        """Return the hash of the text."""
        return hash(self.root)

    def __eq__(self, other: object) -> bool:
        """Compare the texts."""
        return isinstance(other, UnreadType) and self.root == other.root

    def __getnewargs__(self) -> tuple[str]:
        """Return the arguments for unpickling."""
        return (self.root,)


class _Geometry(GeometryType):
    """``geometry`` as Java writes it."""

    _text: str = PrivateAttr()

    def __init__(self, crs: str, text: str) -> None:
        super().__init__(crs)
        self._text = text

    @model_validator(mode="wrap")  # type: ignore[misc]
    @classmethod
    def handle_primitive_type(cls, v: Any, handler: Any) -> IcebergType:
        """Keep the value, where PyIceberg would parse each text as a type's name."""
        return handler(v)  # type: ignore[no-any-return]

    @model_serializer
    def ser_model(self) -> str:
        """Return the text."""
        return self._text

    def __str__(self) -> str:
        """Return the text."""
        return self._text

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """Return the arguments for unpickling."""
        return self.crs, self._text


class _Geography(GeographyType):
    """``geography`` as Java writes it."""

    _text: str = PrivateAttr()

    def __init__(self, crs: str, algorithm: str, text: str) -> None:
        super().__init__(crs, algorithm)
        self._text = text

    @model_validator(mode="wrap")  # type: ignore[misc]
    @classmethod
    def handle_primitive_type(cls, v: Any, handler: Any) -> IcebergType:
        """Keep the value, where PyIceberg would parse each text as a type's name."""
        return handler(v)  # type: ignore[no-any-return]

    @model_serializer
    def ser_model(self) -> str:
        """Return the text."""
        return self._text

    def __str__(self) -> str:
        """Return the text."""
        return self._text

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]
        """Return the arguments for unpickling."""
        return self.crs, self.algorithm, self._text


@conversions.to_json.register(UnreadType)
def _default_to_json(_: UnreadType, value: Any) -> Any:
    return value


@conversions.from_json.register(UnreadType)
def _default_from_json(_: UnreadType, value: Any) -> Any:
    return value


def with_types(schema: Any) -> Any:
    """Return the JSON object of a schema or a column with types in place of texts that PyIceberg cannot read or keep."""
    if isinstance(schema, Mapping):
        return {name: _type(value) if name in _PARTS else value for name, value in schema.items()}
    return schema


def schema_from_json(text: str) -> Schema:
    """Return a schema from its JSON text, as ``metadata.canonical_json.schema_json`` makes it."""
    return Schema.model_validate(with_types(json.loads(text)))


def field_from_json(text: str) -> NestedField:
    """Return a column from its JSON text, as ``NestedField.model_dump_json`` makes it."""
    return NestedField.model_validate(with_types(json.loads(text)))


def unread(schema: Schema) -> Iterator[tuple[str, UnreadType]]:
    """Yield the full names and types of the columns and parts of columns whose values are not read."""
    return _unread(schema.as_struct(), "")


def _unread(kind: IcebergType, path: str) -> Iterator[tuple[str, UnreadType]]:
    if isinstance(kind, UnreadType):
        yield path, kind
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _unread(field.field_type, f"{path}.{field.name}" if path else field.name)
    elif isinstance(kind, ListType):
        yield from _unread(kind.element_type, f"{path}.element")
    elif isinstance(kind, MapType):
        yield from _unread(kind.key_type, f"{path}.key")
        yield from _unread(kind.value_type, f"{path}.value")


def _type(value: Any) -> Any:
    if isinstance(value, list):
        return [with_types(field) for field in value]
    return _named(value) if isinstance(value, str) else with_types(value)


def _named(text: str) -> Any:
    """Return a type, or the text for PyIceberg to read or refuse."""
    lower = text.lower()
    name = _NAME.fullmatch(lower)
    if lower in _PLAIN or name is None:
        return lower if name is not None else text
    if name[1] == "geometry" and (found := _GEOMETRY.fullmatch(text)) and not _quoted(found[1]):
        return _Geometry(found[1], text)
    if name[1] == "geography" and (found := _GEOGRAPHY.fullmatch(text)) and not _quoted(found[1]):
        return _Geography(found[1], found[2] or "spherical", text)
    if name[1] in _OURS:
        return lower if name[1] in ("fixed", "decimal", "struct", "list", "map") or name[2] is None else text
    return UnreadType(text)


def _quoted(crs: str) -> bool:
    return crs[0] in "'\""
