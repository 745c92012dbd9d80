"""What is invalid in schemas, partition specs and sort orders of a metadata file; part of ``metadata.coherence``.

Source: Java ``SchemaParser``, ``Schema``, ``TypeUtil`` (names and ids once), ``PartitionSpecParser``, ``PartitionSpec.Builder``,
``SortOrderParser``, ``UnboundSortOrder.Builder``, and ``TableMetadataParser`` for which of them are required.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from icelock.errors import FormatError
from icelock.metadata.json_values import INT, Fields
from icelock.properties import ENCRYPTED_VERSION, is_number

MAX_NESTING: Final = 64
"""Levels of nested types that are followed; Java's Parquet and Avro writers fail before."""
LAST_COLUMN_ID: Final = 2_147_483_447
"""Ids above are reserved for metadata columns. Source: Iceberg spec, "Reserved Field IDs"."""
_WIDTH: Final = re.compile(r"(bucket|truncate)\[(.*)\]", re.IGNORECASE)
_FIXED: Final = re.compile(r"fixed\[\s*(\d+)\s*\]")
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MOST_DIGITS: Final = 38
# Other names by which PyIceberg's classes accept a field; Java does not know them, so it would read another table.
_HYPHENED: Final = (
    "format-version table-uuid last-updated-ms last-column-id current-schema-id partition-specs default-spec-id last-partition-id "
    "current-snapshot-id snapshot-log metadata-log sort-orders default-sort-order-id partition-statistics last-sequence-number "
    "next-row-id encryption-keys snapshot-id parent-snapshot-id sequence-number timestamp-ms manifest-list schema-id first-row-id "
    "added-rows key-id snapshot-ref-type min-snapshots-to-keep max-snapshot-age-ms max-ref-age-ms metadata-file statistics-path "
    "file-size-in-bytes file-footer-size-in-bytes key-metadata blob-metadata identifier-field-ids field-id field-type initial-default "
    "write-default element-id element-type element-required key-type value-id value-type value-required spec-id source-id order-id "
    "null-order"
)
_ALIASES: Final = frozenset(_HYPHENED.replace("-", "_").split())


def check_names(fields: Fields) -> None:
    """Refuse a field under a name that only PyIceberg's classes accept.

    Raises:
        FormatError: names it.
    """
    other = _ALIASES.intersection(fields.names())
    if other:
        name = min(other)
        raise FormatError(f"{fields.what} has {name}, which only PyIceberg takes for {name.replace('_', '-')}: the file was changed")


def check_schemas(top: Fields, version: int) -> None:
    """Check all schemas and the current one.

    Raises:
        FormatError: says what was found.
    """
    if version == 1 and not top.has("schemas"):
        _SchemaCheck(Fields(top.get("schema"), "schema"))
        top.integer("last-column-id", most=INT, least=0)
        return
    last = top.integer("last-column-id", most=INT, least=0)
    for schema, _ in _each(top, "schemas", "schema", "schema-id", "current-schema-id", default=0):
        highest = _SchemaCheck(schema).highest
        if version == ENCRYPTED_VERSION and highest > last:
            top.bad("last-column-id", last, f"at least {highest}, the highest id of {schema.what}")


def check_specs(top: Fields, version: int) -> None:
    """Check all partition specs and the default one.

    Raises:
        FormatError: says what was found.
    """
    if version == 1 and not top.has("partition-specs"):
        for field in top.each("partition-spec", "partition field"):
            _check_spec_field(field)
        return
    last = top.integer("last-partition-id", most=INT, default=None) if version == 1 else top.integer("last-partition-id", most=INT)
    for spec, _ in _each(top, "partition-specs", "partition spec", "spec-id", "default-spec-id"):
        highest = _check_spec(spec)
        if version == ENCRYPTED_VERSION and highest > last:
            top.bad("last-partition-id", last, f"at least {highest}, the highest field-id of {spec.what}")


def check_sort_orders(top: Fields, version: int) -> None:
    """Check all sort orders and the default one.

    Raises:
        FormatError: says what was found.
    """
    if version == 1 and not top.has("sort-orders"):
        return
    for order, order_id in _each(top, "sort-orders", "sort order", "order-id", "default-sort-order-id"):
        fields = list(order.each("fields", f"field of {order.what},"))
        if bool(fields) == (order_id == 0):
            order.bad("fields", order.get("fields"), "fields, except for order 0, which is unsorted and has none")
        for field in fields:
            _check_sort_field(field)


def _each(top: Fields, plural: str, word: str, id_name: str, chosen_name: str, **default: int) -> Iterator[tuple[Fields, int]]:
    """Yield the objects of a list with their ids, each of which occurs once; the chosen one is among them."""
    ids: set[int] = set()
    for one in top.each(plural, word):
        check_names(one)
        one_id: int = one.integer(id_name, most=INT, **default)
        if one_id in ids:
            raise FormatError(f"{id_name} {one_id} occurs twice")
        ids.add(one_id)
        one.what = f"{word} {one_id}"
        yield one, one_id
    chosen = top.integer(chosen_name, most=INT)
    if chosen not in ids:
        top.bad(chosen_name, chosen, f"the id of one of the {plural}, {sorted(ids)}")


def _check_sort_field(field: Fields) -> None:
    check_names(field)
    _check_transform(field)
    field.integer("source-id", most=INT)
    if field.text("direction").lower() not in ("asc", "desc"):
        field.bad("direction", field.get("direction"), "asc or desc")
    if field.text("null-order").lower() not in ("nulls-first", "nulls-last"):
        field.bad("null-order", field.get("null-order"), "nulls-first or nulls-last")


def _check_spec(spec: Fields) -> int:
    """Check one spec and return its highest field id."""
    names: set[str] = set()
    ids: set[int] = set()
    for field in spec.each("fields", f"field of {spec.what},"):
        name, field_id = _check_spec_field(field)
        if name in names or field_id in ids:
            raise FormatError(f"{spec.what}: the field {name!r} or its id {field_id} occurs twice")
        names.add(name)
        ids.update(() if field_id is None else (field_id,))
    return max(ids, default=0)


def _check_spec_field(field: Fields) -> tuple[str, int | None]:
    check_names(field)
    name: str = field.text("name")
    if not name:
        field.bad("name", name, "a name")
    _check_transform(field)
    field.integer("source-id", most=INT)
    return name, field.integer("field-id", most=INT, least=0, default=None)


def _check_transform(field: Fields) -> None:
    text = field.text("transform")
    width = _WIDTH.fullmatch(text)
    if width is not None and not (is_number(width[2]) and len(width[2]) <= 10 and 0 < int(width[2]) <= INT):  # noqa: PLR2004
        field.bad("transform", text, "a positive width of 32 bits")


class _SchemaCheck:
    """Checks each field of a schema once; ``highest`` is the highest id."""

    def __init__(self, schema: Fields) -> None:
        self.highest = 0
        self._what = schema.what
        self._names: set[str] = set()
        self._fields: dict[int, tuple[Mapping[str, Any] | None, tuple[int, ...]]] = {}
        if schema.text("type") != "struct":
            schema.bad("type", schema.get("type"), "struct")
        check_names(schema)
        self._struct(schema, "", (), 0)
        for field_id in schema.list("identifier-field-ids", default=()):
            self._identifier(schema, field_id)

    def _struct(self, struct: Fields, prefix: str, parents: tuple[int, ...], depth: int) -> None:
        for field in struct.each("fields", f"field of {struct.what},"):
            check_names(field)
            name: str = field.text("name")
            field.what = f"{self._what}: column {prefix + name!r}"
            field.boolean("required")
            field.text("doc", default=None)
            field_id = self._add(field, "id", prefix + name, field.names(), parents)
            self._type(field, "type", prefix + name, (*parents, field_id), depth + 1)

    def _add(self, owner: Fields, key: str, name: str, field: Mapping[str, Any] | None, parents: tuple[int, ...]) -> int:
        field_id: int = owner.integer(key, most=LAST_COLUMN_ID, least=0)
        if field_id in self._fields or name in self._names:
            raise FormatError(f"{self._what}: the column {name!r} or its id {field_id} occurs twice")
        self._fields[field_id] = field, parents
        self._names.add(name)
        self.highest = max(self.highest, field_id)
        return field_id

    def _type(self, owner: Fields, key: str, name: str, parents: tuple[int, ...], depth: int) -> None:
        if depth > MAX_NESTING:
            raise FormatError(f"{owner.what}: types are nested more than {MAX_NESTING} levels deep")
        value = owner.get(key)
        if isinstance(value, str):
            _check_primitive(owner, key, value)
            return
        kind = Fields(value, f"{owner.what}: {key}")
        check_names(kind)
        word = kind.text("type")
        if word == "struct":
            self._struct(kind, f"{name}.", parents, depth)
        elif word in ("list", "map"):
            for part in ("element",) if word == "list" else ("key", "value"):
                part_id = self._add(kind, f"{part}-id", f"{name}.{part}", None, parents)
                if part != "key":
                    kind.boolean(f"{part}-required")
                self._type(kind, part, f"{name}.{part}", (*parents, part_id), depth + 1)
        else:
            kind.bad("type", word, "struct, list or map")

    def _identifier(self, schema: Fields, field_id: Any) -> None:
        """Java Schema.validateIdentifierField."""
        field, parents = self._fields.get(field_id, (None, ())) if type(field_id) is int else (None, ())
        chain = [self._fields[parent][0] for parent in parents]
        structs = all(one is not None and one["required"] and isinstance(one["type"], dict) for one in chain)
        if (
            field is None
            or not field["required"]
            or field["type"] in ("float", "double", "variant")
            or isinstance(field["type"], dict)
            or not structs
        ):
            wanted = "ids of required columns of primitive types other than float and double, in required structs"
            schema.bad("identifier-field-ids", field_id, wanted)


def _check_primitive(owner: Fields, key: str, text: str) -> None:
    fixed, decimal = _FIXED.fullmatch(text), _DECIMAL.fullmatch(text)
    if fixed is not None and not (len(fixed[1]) <= 10 and 0 < int(fixed[1]) <= INT):  # noqa: PLR2004
        owner.bad(key, text, "a length of 32 bits")
    if decimal is not None and not (len(decimal[1]) <= 2 and len(decimal[2]) <= 2 and 0 < int(decimal[1]) <= _MOST_DIGITS):  # noqa: PLR2004
        owner.bad(key, text, f"at most {_MOST_DIGITS} digits")
