"""``icelock describe``: what a table is, by its metadata alone; no file of rows is read and no key service is asked.

Not here: its keys (``cli.keys``), its snapshots (``cli.history``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from icelock.cli.at import asked, at_options, scan_at
from icelock.cli.output import emit, json_option
from icelock.cli.table_names import full_name, load_any_table, table_argument

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField
    from rich.console import RenderableType

    from icelock.table.plain import AnyTable
    from icelock.table.read.scan import DataScan


@click.command()
@table_argument
@at_options
@json_option
def describe(table: str, catalog: str | None, snapshot_id: int | None, ref: str | None, as_of: str | None) -> None:
    """Show what TABLE is: keys, columns, partitions, branches and tags, properties.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. Of another snapshot, the columns and numbers are those of
    that snapshot. Only metadata is read, and no key service is asked.
    """
    at = asked(snapshot_id, ref, as_of)
    loaded = load_any_table(catalog, table)
    found = _found(loaded, scan_at(loaded, at))
    emit(found, lambda: _view(found))


def state(metadata: TableMetadata) -> dict[str, Any]:
    """Return whether a table is encrypted, under which master key, and its format version."""
    from icelock import properties as names
    from icelock.metadata.table_metadata import is_encrypted

    encrypted = is_encrypted(metadata)
    return {
        "state": "encrypted" if encrypted else "plain",
        "master-key-id": names.encryption_key_id(metadata.properties) if encrypted else None,
        "format-version": metadata.format_version,
    }


def _found(table: AnyTable, scan: DataScan) -> dict[str, Any]:
    from icelock import properties as names
    from icelock.cli.history import snapshot_row

    metadata = table.metadata
    said = state(metadata)
    snapshot, schema = scan.snapshot(), scan.full_schema
    return {
        "table": full_name(table),
        **said,
        "data-key-length": names.data_key_length(metadata.properties) if said["state"] == "encrypted" else None,
        "uuid": str(metadata.table_uuid),
        "location": metadata.location,
        "metadata-file": table.metadata_location,
        "snapshot": None if snapshot is None else snapshot_row(metadata, snapshot),
        "snapshots": len(metadata.snapshots),
        "columns": list(_columns(schema)),
        "partitioned-by": [f"{_transformed(schema, field)}" for field in metadata.spec().fields],
        "sorted-by": [f"{_transformed(schema, field)} {field.direction.value}" for field in metadata.sort_order().fields],
        "refs": [
            {"name": name, "type": ref.snapshot_ref_type.value, "snapshot-id": ref.snapshot_id}
            for name, ref in sorted(metadata.refs.items())
        ],
        "properties": dict(sorted(metadata.properties.items())),
    }


def _transformed(schema: Schema, field: Any) -> str:
    name = schema.find_column_name(field.source_id) or f"column {field.source_id}"
    transform = str(field.transform)
    return name if transform == "identity" else f"{transform}({name})"


def _columns(schema: Schema) -> Iterator[dict[str, Any]]:
    yield from _fields(schema.fields, "", frozenset(schema.identifier_field_ids))


def _fields(fields: Iterable[NestedField], above: str, identifiers: frozenset[int]) -> Iterator[dict[str, Any]]:
    """Yield the fields of a schema, those of a nested one behind it, by their whole names."""
    from icelock.metadata.schema_paths import child_fields

    for field in fields:
        name, inner = f"{above}{field.name}", child_fields(field.field_type)
        yield {
            "id": field.field_id,
            "name": name,
            "type": type(field.field_type).__name__.removesuffix("Type").lower() if inner else str(field.field_type),
            "required": field.required,
            "identifier": field.field_id in identifiers,
            "comment": field.doc,
        }
        yield from _fields(inner, f"{name}.", identifiers)


def _view(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    from icelock.cli.grid import Grid
    from icelock.cli.history import snapshot_text
    from icelock.cli.output import escape

    plain = f"plain (format version {found['format-version']}): its files are not encrypted"
    encrypted = f"encrypted under master key {found['master-key-id']} (format version {found['format-version']})"
    snapshot = found["snapshot"]
    facts = [
        ("table", found["table"]),
        ("state", plain if found["state"] == "plain" else encrypted),
        ("location", found["location"]),
        ("metadata file", found["metadata-file"]),
        ("snapshot", "none: it has no rows" if snapshot is None else f"{snapshot_text(snapshot)}; {found['snapshots']} in all"),
        ("partitioned by", ", ".join(found["partitioned-by"]) or "nothing"),
        ("sorted by", ", ".join(found["sorted-by"]) or "nothing"),
        *((ref["type"], f"{ref['name']} at {ref['snapshot-id']}") for ref in found["refs"]),
    ]
    notes = [{True: "identifier", False: "not null" if one["required"] else ""}[one["identifier"]] for one in found["columns"]]
    rows = [(one["name"], one["type"], note, one["comment"] or "") for one, note in zip(found["columns"], notes, strict=True)]
    return Group(
        *(escape(f"{name}: {value}") for name, value in facts),
        Grid(("column", "type", "", "comment"), rows),
        *([Grid(("property", "value"), [*found["properties"].items()])] if found["properties"] else []),
    )
