"""``icelock tables``: the tables of a catalog or namespace, and whether each is encrypted.

Exit code 1: the metadata of a table cannot be read; the others are listed.

Not here: whether all of a table is encrypted (``icelock.audit``).
"""

# ruff: noqa: FBT001 - click's signature

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import click

from icelock.cli.describe import state
from icelock.cli.exit_codes import Code
from icelock.cli.load import load_catalog
from icelock.cli.output import emit, json_option, progress
from icelock.cli.table_names import full_name, only_catalog, split_catalog, tables_argument
from icelock.shown import utc

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icelock.catalog.base import EncryptedCatalog

_AT_ONCE: Final = 8


@click.command()
@tables_argument(required=False)
@click.option("--names", is_flag=True, help="Names alone, a line each; no metadata is read.")
@json_option
def tables(name: str | None, catalog: str | None, names: bool) -> None:
    """List tables, encrypted and plain, with their master keys and numbers of rows.

    NAME is CATALOG or CATALOG.NAMESPACE; without it all tables of the default catalog, or of the only one. Namespaces below are listed too.
    The metadata of each table is read, and no key service is asked.
    """
    if catalog is None:
        catalog, name = (only_catalog(), "") if name is None else split_catalog(name)
    loaded = load_catalog(catalog)
    found = sorted(_names(loaded, name or ""))
    if names:
        whole = [f"{loaded.name}.{one}" for one in found]
        emit({"catalog": loaded.name, "namespace": name or None, "tables": whole}, lambda: _lines(whole))
        return
    with progress(f"tables of {catalog or loaded.name}") as told:
        rows = list(_rows(loaded, found, told))
    emit({"catalog": loaded.name, "namespace": name or None, "tables": rows}, lambda: _view(rows, name or str(loaded.name)))
    if any(row["error"] for row in rows):
        click.get_current_context().exit(Code.FOUND)


def _names(catalog: EncryptedCatalog, name: str) -> set[str]:
    from icelock.catalog.tables_below import tables_below

    return tables_below(catalog, name, is_table=catalog.table_exists)


def _rows(catalog: EncryptedCatalog, found: list[str], told: Any) -> Iterator[dict[str, Any]]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for number, row in enumerate(pool.map(lambda name: _row(catalog, name), found), start=1):
            told(number, len(found))
            yield row


def _row(catalog: EncryptedCatalog, name: str) -> dict[str, Any]:
    from icelock.cli.history import snapshot_row
    from icelock.errors import IcelockError

    said: dict[str, Any] = {"table": f"{catalog.name}.{name}", "state": "unreadable", "master-key-id": None, "format-version": None}
    said |= {"rows": None, "bytes": None, "changed-at": None, "error": None}
    try:
        table: Any = catalog.load_table(name, hint=False)
    except Exception as e:  # noqa: BLE001 - whatever it is, the other tables are listed, and it is said
        text = str(e) if isinstance(e, IcelockError) else f"{type(e).__name__}: {e}"
        return said | {"error": " ".join(text.split())}
    snapshot = table.metadata.current_snapshot()
    numbers = {} if snapshot is None else snapshot_row(table.metadata, snapshot)
    changed = {"rows": numbers.get("rows", 0), "bytes": numbers.get("bytes", 0), "changed-at": utc(table.metadata.last_updated_ms)}
    return said | {"table": full_name(table), **state(table.metadata), **changed}


def _lines(names: list[str]) -> RenderableType:
    from rich.console import Group

    from icelock.cli.output import escape

    return Group(*map(escape, names))


def _view(rows: list[dict[str, Any]], where: str) -> RenderableType:
    from rich.console import Group

    from icelock.cli.grid import Grid
    from icelock.cli.output import escape

    if not rows:
        return escape(f"{where} has no tables")
    cells = [
        (
            row["table"],
            row["state"],
            row["master-key-id"] or "",
            "" if row["rows"] is None else f"{row['rows']:,}",
            "" if row["bytes"] is None else f"{row['bytes']:,}",
            row["changed-at"] or "",
        )
        for row in rows
    ]
    shown = Grid(("table", "state", "master key", "rows", "bytes", "changed (UTC)"), cells, right=frozenset({"rows", "bytes"}))
    counts = {kind: sum(row["state"] == kind for row in rows) for kind in ("encrypted", "plain", "unreadable")}
    told = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    errors = [f"[red]unreadable[/] {escape(row['table'])}: {escape(row['error'])}" for row in rows if row["error"]]
    return Group(shown, f"{len(rows)} {'table' if len(rows) == 1 else 'tables'}: {told}", *errors)
