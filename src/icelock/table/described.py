"""What tables, scans and snapshots show of themselves, by metadata alone: no file is read and no key service is asked.

Not here: how it is laid out (``shown``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, cast

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from icelock import properties as names
from icelock.metadata.table_metadata import is_encrypted
from icelock.plan.filters.written import written
from icelock.shown import Described, Facts, Grid, utc

CATALOG: Final = "scan.catalog"  # the name of the table's catalog; a scan has no catalog that could plan for it
_HEADINGS: Final = ("snapshot", "at", "operation", "rows")


class Snapshots(list[Snapshot]):
    """A table's snapshots, which notebooks show as a table."""

    def __repr__(self) -> str:
        return f"[{', '.join(' '.join(cell for cell in _row_of(one) if cell) for one in self)}]"

    def _repr_html_(self) -> str:
        return rows_of(self).html()


class DescribedTable(Described):
    """A table: name, key id, location, snapshot, partitions and columns."""

    _inside: ClassVar[frozenset[str]] = frozenset(
        [
            "advance",
            "at_one_version",
            "catalog",
            "check_locations",
            "check_write",
            "config",
            "encryption",
            "follow",
            "io_for",
            "is_new",
            "storage",
            "to_bodo",
            "to_daft",
            "update_statistics",
        ]
    )

    def snapshots(self) -> Snapshots:
        """Return the snapshots of the table, the oldest first."""
        return Snapshots(self._described.metadata.snapshots)

    @property
    def _described(self) -> Any:  # PyIceberg's table, which is the class beside this one
        return self

    def _title(self) -> str:
        table = self._described
        static = isinstance(table.catalog, NoopCatalog)
        return f"{type(self).__name__} {table.metadata_location if static else '.'.join((table.catalog.name, *table.name()))}"

    def _facts(self) -> Facts:
        metadata: TableMetadata = self._described.metadata
        yield "master key", _key(metadata)
        yield "location", metadata.location
        current = metadata.current_snapshot()
        yield "snapshot", "none" if current is None else " ".join(cell for cell in _row_of(current) if cell)
        spec, schema = metadata.spec(), metadata.schema()
        yield "partitioned by", ", ".join(f"{field.transform}({schema.find_column_name(field.source_id)})" for field in spec.fields)
        yield "columns", columns(schema)


class DescribedScan(Described):
    """A scan: its table, filter, columns, snapshots and limit."""

    _inside: ClassVar[frozenset[str]] = frozenset(
        [
            "exact_filter",
            "full_schema",
            "has_own_schema",
            "iter_tasks",
            "partition_filters",
            "pinned",
            "planner",
            "read_context",
            "scan_tasks",
            "to_spark",
            "by",
            "like",
            "within",
        ]
    )
    table_metadata: TableMetadata
    row_filter: BooleanExpression
    selected_fields: tuple[str, ...]

    def _title(self) -> str:
        options = cast("Mapping[str, str]", getattr(self, "options", {}))
        found = (options.get(CATALOG), *(getattr(self, "table_identifier", None) or ()))
        return f"{type(self).__name__} of {'.'.join(name for name in found if name) or self.table_metadata.location}"

    def _facts(self) -> Facts:
        if not isinstance(self.row_filter, AlwaysTrue):
            yield "filter", written(self.row_filter)
        yield "columns", "all" if "*" in self.selected_fields else ", ".join(self.selected_fields)
        current = self.table_metadata.current_snapshot_id
        for fact, name in (("snapshot", "snapshot_id"), ("after snapshot", "from_snapshot_id"), ("to snapshot", "to_snapshot_id")):
            if hasattr(self, name):
                newest = None if name == "from_snapshot_id" or current is None else f"{current}, the current one"
                given = getattr(self, name)
                yield fact, newest if given is None else given
        yield "limit", getattr(self, "limit", None)


def columns(schema: Schema) -> Grid:
    """Return the columns of a schema with their types."""
    rows = [(field.name, field.field_type, "not null" if field.required else "", field.doc) for field in schema.fields]
    return Grid(("column", "type", "", "comment"), rows)


def rows_of(snapshots: Iterable[Snapshot]) -> Grid:
    """Return snapshots, a row each."""
    return Grid(_HEADINGS, [_row_of(one) for one in snapshots])


def _key(metadata: TableMetadata) -> str:
    key_id = metadata.properties.get(names.ENCRYPTION_KEY_ID)
    if key_id:
        return key_id
    return (
        "unknown: encryption.key-id is missing"
        if is_encrypted(metadata)
        else f"none, the table is plain (version {metadata.format_version})"
    )


def _row_of(snapshot: Snapshot) -> tuple[str, str, str, str]:
    summary = snapshot.summary
    total = None if summary is None else summary["total-records"]
    at = utc(snapshot.timestamp_ms) or f"{snapshot.timestamp_ms} ms"
    return str(snapshot.snapshot_id), at, "" if summary is None else summary.operation.value, "" if total is None else f"{total} rows"
