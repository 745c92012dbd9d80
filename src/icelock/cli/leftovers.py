"""``icelock leftovers``: list what is left over at a table's location, and remove it.

The catalog is one of PyIceberg's configuration (``.pyiceberg.yaml`` or ``PYICEBERG_CATALOG__...``).

Not here: what is left over (``icelock.maintenance.leftovers``).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
from pyiceberg.exceptions import NoSuchTableError
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from icelock.catalog.load import load_catalog
from icelock.cli.output import emit, json_option
from icelock.errors import PolicyError
from icelock.maintenance import Content, Kind, Leftover, Leftovers, remove_leftovers
from icelock.maintenance import leftovers as list_leftovers
from icelock.table.table import Table as EncryptedTable

_ROWS: Final = (Kind.DATA, Kind.DELETE, Kind.MANIFEST, Kind.MANIFEST_LIST)
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_LONGEST: Final = timedelta(days=36_500)
_AGE: Final = re.compile(r"(\d+)([dhms])")


def _age(_context: click.Context, _parameter: click.Parameter, value: str | None) -> timedelta | None:
    if value is None:
        return None
    found = _AGE.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not an age: write a number and d, h, m or s, such as 3d")
    try:
        age = timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        age = timedelta.max
    if age > _LONGEST:
        raise click.BadParameter(f"{value!r} is more than {_LONGEST.days} days; nothing is that old")
    return age


@click.command()
@click.argument("table")
@click.option("--catalog", metavar="NAME", help="The catalog's name in PyIceberg's configuration; the default one if left out.")
@click.option("--older-than", metavar="AGE", callback=_age, help="Only files older than this, such as 12h. With --delete, 3d if left out.")
@click.option("--delete", is_flag=True, help="Delete the files instead of listing them.")
@json_option
def leftovers(table: str, catalog: str | None, older_than: timedelta | None, delete: bool) -> None:  # noqa: FBT001 - click's signature
    """List the files at the location of TABLE that no snapshot reaches, such as those of writers that crashed.

    Nothing is deleted if a manifest cannot be read. A writer that is at work has such files too until it commits, so --older-than must be
    longer than any write takes.
    """
    loaded = _load(catalog, table)
    if not delete:
        found = list_leftovers(loaded, older_than=older_than)
    elif older_than is None:
        found = remove_leftovers(loaded)
    else:
        found = remove_leftovers(loaded, older_than=older_than)
    emit(_as_json(found, deleted=delete), lambda: _view(table, found, deleted=delete))
    if found.failed:
        click.get_current_context().exit(1)


def _load(catalog: str | None, name: str) -> EncryptedTable:
    if not all(name.partition(".")):
        raise PolicyError(f"{name!r} is not the name of a table: write NAMESPACE.TABLE, such as db.orders")
    try:
        loaded = load_catalog(catalog).load_table(name)
    except NoSuchTableError as e:
        raise PolicyError(f"catalog {catalog or '(default)'} has no table {name}") from e
    if not isinstance(loaded, EncryptedTable):
        raise PolicyError(
            f"table {name} has format version {loaded.metadata.format_version}: it is not encrypted, use the tools for plain tables"
        )
    return loaded


def _as_json(found: Leftovers, *, deleted: bool) -> dict[str, Any]:
    return {
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
    table = Table(title=f"{'deleted' if deleted else 'left over'}: {escape(name)}", title_justify="left")
    for column in ("kind", "content", "bytes", "modified (UTC)", "path"):
        table.add_column(column, overflow="fold", justify="right" if column == "bytes" else "left")
    for file in found.files:
        table.add_row(file.kind.value, file.content.value, str(file.size), _utc(file.modified_ms) or "unknown", escape(file.path))
    size = sum(file.size for file in found.files)
    lines = [f"{len(found.files)} files, {size} bytes{' deleted' if deleted else ''}"]
    plain = sum(file.content is Content.PLAIN and file.kind in _ROWS for file in found.files)
    if plain:
        lines.append(f"{plain} of them hold rows or values in plaintext: a client that does not encrypt wrote them")
    lines += [f"not deleted: {escape(file.path)}" for file in found.failed]
    if found.keys:
        lines.append(f"{len(found.keys)} key entries that nothing needs are removed by the next expiry")
    return Group(*([table] if found.files else []), *lines)


def _utc(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1_000, tz=UTC).isoformat(sep=" ", timespec="seconds")
