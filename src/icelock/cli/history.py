"""``icelock history``: the snapshots of a table, by its metadata alone.

Not here: what changed row by row (``Table.changes``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from icelock.cli.output import emit, json_option
from icelock.cli.table_names import full_name, load_any_table, table_argument
from icelock.shown import utc

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from rich.console import RenderableType

# Of a snapshot's summary: the name here, and that of the spec.
_NUMBERS: Final = {
    "rows": "total-records",
    "data-files": "total-data-files",
    "delete-files": "total-delete-files",
    "bytes": "total-files-size",
    "added-rows": "added-records",
    "deleted-rows": "deleted-records",
}


@click.command()
@table_argument
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The newest N; all if left out.")
@json_option
def history(table: str, catalog: str | None, limit: int | None) -> None:
    """Show the snapshots of TABLE, the newest first, and what each changed.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. Only metadata is read, and no key service is asked. Deleted
    rows are those of files that went; of rows that delete files take out a snapshot keeps no number.
    """
    loaded = load_any_table(catalog, table)
    metadata = loaded.metadata
    newest = sorted(metadata.snapshots, key=lambda one: (one.sequence_number or 0, one.timestamp_ms), reverse=True)
    rows = [snapshot_row(metadata, one) for one in newest[:limit]]
    emit({"table": full_name(loaded), "snapshots": len(newest), "history": rows}, lambda: _view(full_name(loaded), rows, len(newest)))


def snapshot_row(metadata: TableMetadata, snapshot: Snapshot) -> dict[str, Any]:
    """Return what metadata says of a snapshot; numbers that its writer did not tell are None."""
    summary = snapshot.summary
    numbers = {name: _number(None if summary is None else summary[key]) for name, key in _NUMBERS.items()}
    return {
        "snapshot-id": snapshot.snapshot_id,
        "parent-id": snapshot.parent_snapshot_id,
        "at": utc(snapshot.timestamp_ms),
        "operation": None if summary is None else summary.operation.value,
        "current": snapshot.snapshot_id == metadata.current_snapshot_id,
        "refs": sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot.snapshot_id),
        **numbers,
    }


def _number(text: Any) -> int | None:
    return int(text) if text is not None and str(text).isascii() and str(text).isdigit() else None


def snapshot_text(row: dict[str, Any]) -> str:
    """Return a row of ``snapshot_row`` in words."""
    parts = {name: row[name.replace(" ", "-")] for name in ("rows", "data files", "delete files")}
    numbers = ", ".join(f"{value:,} {name}" for name, value in parts.items() if value is not None)
    return f"{row['snapshot-id']} of {row['at']}, {row['operation']}; {numbers or 'its writer told no numbers'}"


def _view(name: str, rows: list[dict[str, Any]], whole: int) -> RenderableType:
    from icelock.cli.grid import Grid
    from icelock.cli.output import escape

    if not rows:
        return escape(f"{name} has no snapshots: nothing was written to it")
    columns = {"snapshot": "snapshot-id", "at (UTC)": "at", "operation": "operation", "rows": "rows", "added": "added-rows"}
    columns |= {"deleted": "deleted-rows", "refs": "refs"}
    named = [{**row, "snapshot-id": str(row["snapshot-id"])} for row in rows]  # an id is a name, whatever its size
    cells = [[_cell(row[key]) for key in columns.values()] for row in named]
    title = f"{name}: {whole} {'snapshot' if whole == 1 else 'snapshots'}" + (f", the newest {len(rows)}" if len(rows) < whole else "")
    return Grid([*columns], cells, title=title, right=frozenset({"rows", "added", "deleted"}))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
