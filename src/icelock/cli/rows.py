"""``icelock head`` and ``icelock count``: rows of a table, plain or encrypted, and their number.

Not here: reading (``table.read.scan``), values as texts (``cli.cells``).
"""

# ruff: noqa: PLR0913 - click's signatures

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from icelock.cli.at import asked, at_options, scan_at
from icelock.cli.output import emit, json_option, working
from icelock.cli.table_names import full_name, load_any_table, table_argument

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icelock.table.read.scan import DataScan

_where = click.option("--where", metavar="FILTER", help="Only rows that match, such as \"city = 'Oslo' and id > 3\".")


def _columns(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[str, ...]:
    """Parse names with commas between (click's callback)."""
    names = ("*",) if given is None else tuple(name.strip() for name in given.split(","))
    if not all(names):
        raise click.BadParameter(f"{given!r}: write columns with commas between, such as id,city")
    return names


@click.command()
@table_argument
@click.option("--limit", type=click.IntRange(min=0), default=10, show_default=True, metavar="N", help="Rows at most.")
@click.option("--columns", metavar="COLUMNS", callback=_columns, help="Only these columns, such as id,city.")
@_where
@at_options
@json_option
def head(
    table: str,
    catalog: str | None,
    limit: int,
    columns: tuple[str, ...],
    where: str | None,
    snapshot_id: int | None,
    ref: str | None,
    as_of: str | None,
) -> None:
    """Show some rows of TABLE.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. Rows have no order. Long values are cut in the text; with
    --json they are whole.
    """
    at = asked(snapshot_id, ref, as_of)
    loaded = load_any_table(catalog, table)
    from icelock.cli import cells

    with working(f"head of {table}"):
        scan = _filtered(scan_at(loaded, at, columns), where).update(limit=limit)
        rows = cells.json_rows(scan.to_arrow())
    names = [field.name for field in scan.projection().fields]
    found = {"table": full_name(loaded), "snapshot-id": _snapshot_id(scan), "columns": names, "rows": rows}
    emit(found, lambda: _view(names, rows))


def _view(columns: list[str], rows: list[dict[str, Any]]) -> RenderableType:
    from icelock.cli.cells import cell
    from icelock.cli.grid import Grid

    if not rows:
        return f"no rows in the columns {', '.join(map(cell, columns))}" if columns else "no rows"
    numbers = {name for name in columns if all(isinstance(row[name], (int, float, type(None))) for row in rows)}
    return Grid(columns, [[cell(row[name]) for name in columns] for row in rows], right=frozenset(numbers))


@click.command()
@table_argument
@_where
@at_options
@json_option
def count(table: str, catalog: str | None, where: str | None, snapshot_id: int | None, ref: str | None, as_of: str | None) -> None:
    """Count the rows of TABLE.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. Without --where, and if no row is deleted by a delete file,
    manifests alone are read.
    """
    at = asked(snapshot_id, ref, as_of)
    loaded = load_any_table(catalog, table)
    with working(f"count {table}"):
        scan = _filtered(scan_at(loaded, at), where)
        rows = scan.count()
    emit({"table": full_name(loaded), "snapshot-id": _snapshot_id(scan), "where": where, "rows": rows}, lambda: str(rows))


def _filtered(scan: DataScan, where: str | None) -> DataScan:
    return scan if where is None else scan.filter(where)


def _snapshot_id(scan: DataScan) -> int | None:
    snapshot = scan.snapshot()
    return None if snapshot is None else snapshot.snapshot_id
