"""``icelock rotate``: new keys for a table.

Not here: the work (``icelock.table.maintenance.rotate``), master keys of a keyring file (``cli.keyring``).
"""

# ruff: noqa: FBT001 - click's signature

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table

from icelock.cli.output import emit, escape, json_option
from icelock.cli.table_names import load_table, table_argument
from icelock.table.maintenance.rotate import LEVELS, Rotated


@click.command()
@table_argument
@click.option("--level", type=click.Choice(LEVELS), required=True, help="'kek' for snapshots to come, 'wrap' to leave an old master key.")
@click.option("--to-key", metavar="KEY", help="wrap: the table's master key from now on; else the newest version of the present one.")
@click.option("--dry-run", is_flag=True, help="Say what hangs on which key; nothing is changed.")
@json_option
def rotate(table: str, catalog: str | None, level: Any, to_key: str | None, dry_run: bool) -> None:
    """Give TABLE new keys, in one commit that touches no file.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. Level kek: a new key-encryption key for the
    snapshots to come. Level wrap: the key-encryption keys are wrapped anew, and nothing needs the old master key or version.
    """
    done = load_table(catalog, table).maintenance.rotate(level, to_key=to_key, dry_run=dry_run)
    emit(_as_json(table, done, dry_run=dry_run), lambda: _view(table, done, dry_run=dry_run))


def _as_json(table: str, done: Rotated, *, dry_run: bool) -> dict[str, Any]:
    keks = [{name.replace("_", "-"): value for name, value in asdict(use).items()} for use in done.keks]
    for use in keks:
        use["created"] = use["created"].isoformat()
    found = {name.replace("_", "-"): value for name, value in asdict(done).items()}
    return {"table": table, **found, "keks": keks, "dry-run": dry_run}


def _view(name: str, done: Rotated, *, dry_run: bool) -> RenderableType:
    shown = Table(title=f"KEKs of {escape(name)}", title_justify="left")
    for column in ("KEK", "master key", "made", "snapshots", "branches and tags", "new snapshots"):
        shown.add_column(column, overflow="fold", justify="right" if column == "snapshots" else "left")
    for use in done.keks:
        cells = (use.kek, use.master_key, f"{use.created:%Y-%m-%d}", str(use.snapshots), ", ".join(use.refs))
        shown.add_row(*map(escape, cells), "yes" if use.for_new_snapshots else "")
    if done.level == "kek":
        told = "would make a KEK" if dry_run else f"made KEK {', '.join(done.made)}"
    else:
        told = f"{'would wrap' if dry_run else 'wrapped'} {len(done.wrapped)} KEKs by master key {done.to_key}"
        told += f" instead of {done.from_key}" if done.to_key != done.from_key else ", its newest version"
    return Group(shown, escape(told))
