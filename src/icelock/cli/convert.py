"""``icelock convert``: a plain table becomes an encrypted one, and what is left of the plain one.

Exit code 1: plain files are left that could not be removed, or that lie elsewhere.

Not here: the work (``icelock.table.maintenance.conversion.convert``, ``icelock.maintenance.remove_plain``).
"""

# ruff: noqa: FBT001, PLR0913 - click's signature

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from icelock.cli.exit_codes import Code
from icelock.cli.output import emit, escape, json_option, progress, working
from icelock.cli.table_names import catalog_and_name, load_any_table, table_argument
from icelock.errors import PolicyError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icelock.table.maintenance.conversion.convert_history import History
    from icelock.table.table import Table

_MOST_SHOWN: Final = 10
_COPIES: Final = "backups, and older versions that a bucket keeps, still hold the rows in the clear: icelock cannot see those"


@click.command()
@table_argument
@click.option("--key-id", metavar="KEY", help="The master key of the encrypted table.")
@click.option("--data-key-length", type=click.Choice(["16", "24", "32"]), help="Bytes of its keys; 16 if left out.")
@click.option(
    "--history",
    type=click.Choice(["drop", "refs", "keep"]),
    default="drop",
    show_default=True,
    help="Snapshots that are kept: none, those of branches and tags, all.",
)
@click.option("--drop-refs", is_flag=True, help="Branches and tags beside main may go, with the history.")
@click.option("--copy-to", metavar="TABLE", help="Make a new encrypted table of this name, and leave the plain one alone.")
@click.option(
    "--progress-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Keep what is finished, encrypted, in this file on a trusted disk: a call that was killed is gone on with by the next one.",
)
@click.option("--remove-plain", is_flag=True, help="Delete the plain files of a table that was converted, if an audit proves it whole.")
@click.option("--undo", is_flag=True, help="Make a table that was converted the plain one that it was, while its plain files are there.")
@click.option("--drop-commits", is_flag=True, help="undo: what was committed since the switch may be lost.")
@click.option("--dry-run", is_flag=True, help="Check, and say what would be done; nothing is changed.")
@json_option
def convert(
    table: str,
    catalog: str | None,
    key_id: str | None,
    data_key_length: str | None,
    history: History,
    drop_refs: bool,
    copy_to: str | None,
    progress_file: str | None,
    remove_plain: bool,
    undo: bool,
    drop_commits: bool,
    dry_run: bool,
) -> None:
    """Make an encrypted table of the plain TABLE, under its own name, in one commit; or what comes after that. Or a copy (--copy-to).

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. It stays readable and writable meanwhile. Its current
    state is kept, older snapshots go unless --history keeps them. The plain files stay until --remove-plain; as long as they are there,
    --undo is the way back.
    """
    given = [option for option in (key_id, data_key_length, copy_to, progress_file) if option is not None]
    if (remove_plain or undo) and (given or drop_refs or history != "drop" or (remove_plain and undo)):
        raise click.UsageError("--remove-plain and --undo are steps of their own: leave the other options out")
    if drop_commits and not undo:
        raise click.UsageError("--drop-commits goes with --undo")
    if remove_plain:
        _remove_plain(table, catalog, dry_run=dry_run)
        return
    if undo:
        _undo(table, catalog, drop_commits=drop_commits, dry_run=dry_run)
        return
    if key_id is None:
        raise click.UsageError("--key-id is missing: the master key of the encrypted table")
    to_catalog, to = (None, None) if copy_to is None else catalog_and_name(catalog, copy_to)
    length = None if data_key_length is None else int(data_key_length)
    asked: dict[str, Any] = {"history": history, "drop_refs": drop_refs, "copy_to": to, "copy_catalog": to_catalog}
    asked |= {"progress_file": progress_file, "dry_run": dry_run}
    loaded = load_any_table(catalog, table)
    from icelock import maintenance

    with progress(f"convert {table}") as told:
        done = maintenance.convert(loaded, key_id=key_id, data_key_length=length, progress=told, **asked)
    _emit(table, asdict(done), lambda: _view(table, asdict(done)))


def _converted(catalog: str | None, name: str) -> Table:
    loaded = load_any_table(catalog, name)
    from icelock.table.table import Table

    if not isinstance(loaded, Table):
        raise PolicyError(f"table {name} is plain: it was not converted, or that was undone")
    return loaded


def _remove_plain(table: str, catalog: str | None, *, dry_run: bool) -> None:
    converted = _converted(catalog, table)
    from icelock.maintenance import remove_plain

    with working(f"remove the plain files of {table}"):
        removed = asdict(remove_plain(converted, dry_run=dry_run))
    _emit(table, removed, lambda: _view_removed(table, removed))
    if removed["left"] or removed["elsewhere"]:
        click.get_current_context().exit(Code.FOUND)


def _undo(table: str, catalog: str | None, *, drop_commits: bool, dry_run: bool) -> None:
    converted = _converted(catalog, table)
    from icelock.maintenance import undo_conversion

    with working(f"undo the conversion of {table}"):
        undone = asdict(undo_conversion(converted, drop_commits=drop_commits, dry_run=dry_run))
    _emit(table, undone, lambda: _view_undone(table, undone))


def _emit(table: str, found: Mapping[str, Any], view: Any) -> None:
    emit({"table": table, **{name.replace("_", "-"): value for name, value in found.items()}}, view)


def _view(table: str, found: Mapping[str, Any]) -> RenderableType:
    from rich.console import Group

    name, key = escape(table), escape(found["key_id"])
    if found["copied_to"] is not None:
        done = f"{'would be' if found['dry_run'] else 'is'} copied to {escape(found['copied_to'])}, encrypted under master key {key}"
        lines = [f"{name} {done}: {found['files']} data files, {found['bytes']} bytes; it stays as it is, plain"]
    elif found["dry_run"]:
        lines = [f"{name} would be encrypted under master key {key}: {found['files']} data files, {found['bytes']} bytes"]
    else:
        made = f"{found['files']} data files became {found['added_files']} ({found['added_bytes']} bytes) in {found['rounds']} rounds"
        lines = [f"{name} is encrypted under master key {key}: {made}; writers waited {found['turn_seconds']:.1f} s at most"]
    if found["reused"]:
        lines.append(f"{found['reused']} of the data files were finished by an earlier call")
    if found["snapshots"]:
        lines.append(f"{found['snapshots']} snapshots of it {'would be' if found['dry_run'] else 'are'} kept")
    if found["dropped_refs"]:
        lines.append(f"{'would go' if found['dry_run'] else 'gone'} with the history: {escape(', '.join(found['dropped_refs']))}")
    if found["plain_files"]:
        lines += [f"{len(found['plain_files'])} plain files stay on storage until --remove-plain:", *_some(found["plain_files"])]
    return Group(*lines)


def _view_removed(table: str, found: Mapping[str, Any]) -> RenderableType:
    from rich.console import Group

    what = "would be removed" if found["dry_run"] else "removed"
    lines = [f"{len(found['files'])} plain files of {escape(table)} {what}", *_some(found["files"])]
    if found["left"]:
        why = "until those elsewhere are gone" if found["elsewhere"] else "as some could not be deleted"
        lines += [f"{len(found['left'])} are left, {why}: run it again", *_some(found["left"])]
    if found["elsewhere"]:
        lines += [
            f"{len(found['elsewhere'])} do not lie at the table: delete those that are yours alone, and run it again",
            *_some(found["elsewhere"]),
        ]
    return Group(*lines, _COPIES)


def _view_undone(table: str, found: Mapping[str, Any]) -> RenderableType:
    from rich.console import Group

    lost = (
        f"; {len(found['lost_snapshots'])} snapshots of it {'would be' if found['dry_run'] else 'are'} lost"
        if found["lost_snapshots"]
        else ""
    )
    return Group(
        f"{escape(table)} {'would be' if found['dry_run'] else 'is'} the plain table that it was{lost}",
        "the encrypted files stay; clients that have seen the table encrypted refuse it until catalog.pins.forget",
    )


def _some(paths: tuple[str, ...]) -> list[str]:
    more = [f"  ... and {len(paths) - _MOST_SHOWN} more (--json names all)"] if len(paths) > _MOST_SHOWN else []
    return [f"  {escape(path)}" for path in paths[:_MOST_SHOWN]] + more
