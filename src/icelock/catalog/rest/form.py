"""Whether a REST server makes a table in the form that was asked for: a partition spec or a folder of its own would give values away.

Identity partition values stand in plain in paths and metadata, so a server that partitions by a column of its choice, or has files written
elsewhere, is refused before a row is written. Ids may be others: servers give them anew.

Not here: keys and format version (``catalog.rest.catalog``), what a commit made (``catalog.commit.missing``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from icelock.catalog.commit.missing import columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog.rest import CreateTableRequest
    from pyiceberg.table.metadata import TableMetadata

# Where files are written: a path, or a class that gives them one.
_PLACES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "write.location-provider.impl",
    "write.py-location-provider.impl",
)


def other_form(request: CreateTableRequest, made: TableMetadata, wanted: Mapping[str, str]) -> str:
    """Say what a table has that was not asked for; nothing if its columns, partitions, order and places are those of the request."""
    schema, there = request.table_schema, made.schema()
    asked, got = set(columns(schema).values()), set(columns(there).values())
    if asked != got or [field.name for field in schema.fields] != [field.name for field in there.fields]:
        names = sorted({name for name, *_ in asked ^ got}) or ["in another order"]
        return f"it has other columns than were asked for ({', '.join(names)[:200]})"
    if _named(schema, () if request.partition_spec is None else request.partition_spec.fields) != _named(there, made.spec().fields):
        return "it has another partition spec than was asked for"
    order = made.sort_order_by_id(made.default_sort_order_id)
    if _named(schema, () if request.write_order is None else request.write_order.fields) != _named(
        there, () if order is None else order.fields
    ):
        return "it has another sort order than was asked for"
    for place in _PLACES:
        if made.properties.get(place) != wanted.get(place):
            return f"{place} is {made.properties.get(place)!r} instead of {wanted.get(place)!r}"
    return ""


def _named(schema: Any, fields: Any) -> list[Any]:
    """Return the fields of a spec or an order, with the names of their columns."""
    return [
        (
            schema.find_column_name(field.source_id),
            str(field.transform),
            getattr(field, "direction", None),
            getattr(field, "null_order", None),
        )
        for field in fields
    ]
