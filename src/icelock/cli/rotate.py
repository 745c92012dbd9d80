"""``icelock rotate``: new keys for a table.

Exit code 1: files are left that hang on older KEKs; the same command goes on with them.

Not here: the work (``icelock.table.maintenance.rotation.rotate``), master keys of a keyring file (``cli.keyring``).
"""

# ruff: noqa: FBT001 - click's signature

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from icelock.cli.exit_codes import Code
from icelock.cli.output import emit, escape, json_option, progress
from icelock.cli.table_names import load_table, table_argument
from icelock.table.maintenance.rotation.rotate_levels import LEVELS, OF_FILES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icelock.table.maintenance.rotation.rotate_keys import Rotated


@click.command()
@table_argument
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    required=True,
    help="'kek' for snapshots to come, 'wrap' to leave an old master key, 'lists' to leave old KEKs, 'data' to leave the keys of current "
    "files, too, 'all' those of all files.",
)
@click.option("--to-key", metavar="KEY", help="not kek: the table's master key from now on; else the newest version of the present one.")
@click.option("--dry-run", is_flag=True, help="Say what hangs on which key, with files and bytes; nothing is changed.")
@json_option
def rotate(table: str, catalog: str | None, level: Any, to_key: str | None, dry_run: bool) -> None:
    """Give TABLE new keys; no row is changed.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. Level kek: a new key-encryption key for the
    snapshots to come. Level wrap: the key-encryption keys are wrapped anew, and nothing needs the old master key or version.
    Level lists: manifests and manifest lists of all snapshots are written again under a new key-encryption key.
    Level all: as data, and the files of all older snapshots and tags with their metadata.
    Level data: the files of all branches are written again under a new key-encryption key. Ended early, it goes on when run again.
    """
    maintenance = load_table(catalog, table).maintenance
    with progress(f"rotate {table}") if level in OF_FILES and not dry_run else nullcontext() as told:
        done = maintenance.rotate(level, to_key=to_key, dry_run=dry_run, progress=told)
    emit(_as_json(table, done, dry_run=dry_run), lambda: _view(table, done, dry_run=dry_run))
    if done.left_files:
        click.get_current_context().exit(Code.FOUND)


def _as_json(table: str, done: Rotated, *, dry_run: bool) -> dict[str, Any]:
    keks = [{name.replace("_", "-"): value for name, value in asdict(use).items()} for use in done.keks]
    for use in keks:
        use["created"] = use["created"].isoformat()
    found = {name.replace("_", "-"): value for name, value in asdict(done).items()}
    return {"table": table, **found, "keks": keks, "dry-run": dry_run}


def _view(name: str, done: Rotated, *, dry_run: bool) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    shown = Table(title=f"KEKs of {escape(name)}", title_justify="left")
    for column in ("KEK", "master key", "made", "snapshots", "branches and tags", "new snapshots"):
        shown.add_column(column, overflow="fold", justify="right" if column == "snapshots" else "left")
    for use in done.keks:
        master = use.master_key if use.version is None else f"{use.master_key}, version {use.version}"
        cells = (use.kek, master, f"{use.created:%Y-%m-%d}", str(use.snapshots), ", ".join(use.refs))
        shown.add_row(*map(escape, cells), "yes" if use.for_new_snapshots else "")
    sizes = Table(title="what they open", title_justify="left")
    for column in ("KEK", "files", "bytes"):
        sizes.add_column(column, overflow="fold", justify="left" if column == "KEK" else "right")
    for use in done.keks:
        if use.files is not None:
            sizes.add_row(escape(use.kek), f"{use.files:,}", f"{use.bytes:,}")
    return Group(shown, *([sizes] if sizes.rows else []), *map(escape, _told(done, dry_run=dry_run)))


def _told(done: Rotated, *, dry_run: bool) -> list[str]:
    """Return what was done, or would be, a line for each part."""
    lines = []
    if done.wrapped or done.level == "wrap":
        by = f" instead of {done.from_key}" if done.to_key != done.from_key else ", its newest version"
        lines.append(f"{'would wrap' if dry_run else 'wrapped'} {len(done.wrapped)} KEKs by master key {done.to_key}{by}")
    if done.new_keks:
        what = f"would make {done.new_keks} KEK" if dry_run else f"made KEK {', '.join(done.made)}"
        lines.append(f"{what} under master key {done.to_key}")
    if done.resumed:
        lines.append(f"{'would go on' if dry_run else 'went on'} with the rotation under KEK {done.kek}; run it again for another KEK")
    if done.level in ("data", "all"):
        moved = f"{done.rewritten_files} data files ({done.rewritten_bytes:,} bytes)"
        lines.append(f"would write {moved} again" if dry_run else f"wrote {moved} again, into {done.added_files}")
    if done.level in ("lists", "all"):
        least = "at least " if dry_run and done.level == "all" else ""  # the snapshots that it makes on its way come to them
        what = f"the manifest lists of {least}{done.rotated_snapshots} snapshots and {least}{done.rewritten_manifests} manifests"
        lines.append(f"would write {what} again" if dry_run else f"wrote {what} again; {len(done.removed_keys)} key entries are gone")
    if done.left_files:
        lines.append(f"{done.left_files} files are left under older KEKs: run the same command again")
    return lines
