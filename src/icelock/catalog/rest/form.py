"""Whether a REST server makes the table that was asked for: with its key, and in its form.

Identity partition values are in plain in paths and metadata, so a server that partitions by a column of its choice, or has files written
elsewhere, is refused before a row is written. Ids may be others: servers assign new ones.

Not here: what a commit made (``catalog.commit.missing``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from icelock import properties as names
from icelock.catalog.commit.missing import columns
from icelock.errors import CommitError
from icelock.metadata.table_metadata import TableMetadataV3

# Where files are written: a path, or a class that gives them one.
_PLACES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "write.location-provider.impl",
    "write.py-location-provider.impl",
)


def check_made(name: Identifier, made: TableMetadata, wanted: Mapping[str, str], request: CreateTableRequest, *, catalog: str) -> None:
    """Check that the table that a server made is the one that was asked for.

    Raises:
        CommitError: it is not encrypted under the key that was asked for, or has another form.
    """
    problem = ""
    if not isinstance(made, TableMetadataV3):
        problem = f"format version 3 was asked for, and catalog {catalog} made version {made.format_version}"
    for setting in (names.ENCRYPTION_KEY_ID, names.DATA_KEY_LENGTH):
        if not problem and made.properties.get(setting) != wanted.get(setting):
            problem = f"{setting} is {made.properties.get(setting)!r} in catalog {catalog} instead of {wanted.get(setting)!r}"
    if problem:
        raise CommitError(
            f"table {'.'.join(name)}: {problem}: it cannot hold encrypted tables. The table at {made.location} has no data: "
            "drop it, and use another catalog"
        )
    problem = _difference(request, made, wanted)
    if problem:
        raise CommitError(
            f"table {'.'.join(name)}: catalog {catalog} made it in a form of its own: {problem}. The table at {made.location} has no "
            "data: drop it, and ask for what the server makes, or use another catalog"
        )


def _difference(request: CreateTableRequest, made: TableMetadata, wanted: Mapping[str, str]) -> str:
    """Say what a table has that was not asked for; empty if its columns, partitions, order and places are those of the request."""
    schema, there = request.table_schema, made.schema()
    asked, got = set(columns(schema).values()), set(columns(there).values())
    if asked != got or [field.name for field in schema.fields] != [field.name for field in there.fields]:
        different = sorted({name for name, *_ in asked ^ got}) or ["in another order"]
        return f"it has other columns than were asked for ({', '.join(different)[:200]})"
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
