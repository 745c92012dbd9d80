"""``icelock leftovers``: list what is left over at a table's location, and remove it.

The catalog is one of PyIceberg's configuration (``.pyiceberg.yaml`` or ``PYICEBERG_CATALOG__...``).

Not here: what is left over (``icelock.maintenance.leftovers``).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from icelock.cli.exit_codes import Code
from icelock.cli.output import emit, escape, json_option, working
from icelock.cli.table_names import age, load_table, table_argument

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icelock.maintenance import Leftover, Leftovers

# Of ``Kind``: what holds rows, or values of them.
_ROWS: Final = frozenset({"data", "delete", "manifest", "manifest list"})


@click.command()
@table_argument
@click.option("--older-than", metavar="AGE", callback=age, help="Only files older than this, such as 12h. With --delete, 3d if left out.")
@click.option("--delete", is_flag=True, help="Delete the files instead of listing them.")
@json_option
def leftovers(table: str, catalog: str | None, older_than: timedelta | None, delete: bool) -> None:  # noqa: FBT001 - click's signature
    """List the files at the location of TABLE that no snapshot reaches, such as those of writers that crashed.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog.

    Nothing is deleted if a manifest cannot be read. A writer that is at work has such files too until it commits, so --older-than must be
    longer than any write takes.
    """
    loaded = load_table(catalog, table)
    from icelock import maintenance

    with working(f"leftovers of {table}"):
        if not delete:
            found = maintenance.leftovers(loaded, older_than=older_than)
        elif older_than is None:
            found = maintenance.remove_leftovers(loaded)
        else:
            found = maintenance.remove_leftovers(loaded, older_than=older_than)
    emit(_as_json(table, found, deleted=delete), lambda: _view(table, found, deleted=delete))
    if found.failed:
        click.get_current_context().exit(Code.FOUND)


def _as_json(name: str, found: Leftovers, *, deleted: bool) -> dict[str, Any]:
    return {
        "table": name,
        "deleted": deleted,
        "files": [_file(file) for file in found.files],
        "failed": [_file(file) for file in found.failed],
        "unneeded-keys": list(found.keys),
    }


def _file(file: Leftover) -> dict[str, Any]:
    return {
        "path": file.path,
        "size": file.size,
        "modified": _utc(file.modified_ms),
        "kind": file.kind.value,
        "content": file.content.value,
    }


def _view(name: str, found: Leftovers, *, deleted: bool) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    from icelock.maintenance import Content

    table = Table(title=f"{'deleted' if deleted else 'left over'}: {escape(name)}", title_justify="left")
    for column in ("kind", "content", "bytes", "modified (UTC)", "path"):
        table.add_column(column, overflow="fold", justify="right" if column == "bytes" else "left")
    for file in found.files:
        table.add_row(file.kind.value, file.content.value, str(file.size), _utc(file.modified_ms) or "unknown", escape(file.path))
    size = sum(file.size for file in found.files)
    lines = [f"{len(found.files)} files, {size} bytes{' deleted' if deleted else ''}"]
    plain = sum(file.content is Content.PLAIN and file.kind.value in _ROWS for file in found.files)
    if plain:
        lines.append(f"{plain} of them hold rows or values in plaintext: a client that does not encrypt wrote them")
    lines += [f"not deleted: {escape(file.path)}" for file in found.failed]
    if found.keys:
        lines.append(f"{len(found.keys)} key entries that nothing needs are removed by the next expiry")
    return Group(*([table] if found.files else []), *lines)


def _utc(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1_000, tz=UTC).isoformat(sep=" ", timespec="seconds")
