"""``icelock compact``, ``expire``, ``rewrite-deletes``, ``rewrite-manifests``: maintenance of one table, and what came of it.

Exit code 1: something is left, because other writers touched it each time, or files could not be read or deleted.

Not here: the work (``icelock.table.maintenance``), leftovers (``cli.leftovers``).
"""

# ruff: noqa: FBT001, PLR0913 - click's signatures

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from icelock.cli.exit_codes import Code
from icelock.cli.output import emit, escape, json_option, progress, working
from icelock.cli.table_names import age, load_table, table_argument

if TYPE_CHECKING:
    from rich.table import Table

F = TypeVar("F", bound=Callable[..., Any])
_LEFT: Final = ("failed_files", "conflicted_files", "left")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done; nothing is changed.")
_branch = click.option("--branch", metavar="NAME", default="main", show_default=True, help="The branch to work on.")


def named(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    """Parse options that are written ``name=value`` (click's callback)."""
    wrong = next((one for one in given if not all(one.partition("="))), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not NAME=VALUE, such as rewrite-all=true")
    return {name.strip(): value.strip() for name, _, value in (one.partition("=") for one in given)}


@click.command()
@table_argument
@click.option("--where", metavar="FILTER", help="Only files that may have such rows, such as \"day >= '2026-01-01'\".")
@click.option("--sort-by", metavar="ORDER", help="Order of the rows, such as \"city desc, bucket(4, id)\"; 'table' for the table's own.")
@click.option("--z-order-by", metavar="COLUMNS", help="Put rows in Z-order by these columns instead: x,y")
@click.option("--option", "options", metavar="NAME=VALUE", multiple=True, callback=named, help="Option of Java's rewrite_data_files.")
@_branch
@_dry_run
@json_option
def compact(
    table: str,
    catalog: str | None,
    where: str | None,
    sort_by: str | None,
    z_order_by: str | None,
    options: Mapping[str, str],
    branch: str,
    dry_run: bool,
) -> None:
    """Put the small data files of TABLE together, cut large ones, and write those with many deleted rows without these.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. No row is changed.
    Old files stay until their snapshots expire.
    """
    columns = [column.strip() for column in z_order_by.split(",")] if z_order_by is not None else []
    if not all(columns):
        raise click.BadParameter(f"--z-order-by {z_order_by!r}: write columns with commas between, such as x,y")
    filtered: dict[str, Any] = {} if where is None else {"where": where}
    maintenance = load_table(catalog, table).maintenance
    with progress(f"compact {table}") as told:
        done = maintenance.compact(
            **filtered, sort_by=sort_by, z_order_by=columns, options=options, branch=branch, dry_run=dry_run, progress=told
        )
    _show("compact", table, done, dry_run=dry_run)


@click.command("rewrite-deletes")
@table_argument
@click.option("--into", type=click.Choice(["vectors", "data"]), default="vectors", show_default=True, help="'data' also removes the rows.")
@_branch
@_dry_run
@json_option
def rewrite_deletes(table: str, catalog: str | None, into: Any, branch: str, dry_run: bool) -> None:
    """Make deletion vectors of the deletes of TABLE, or take the deleted rows out of its data.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog.
    After --into data and an expiry, deleted rows are in no file.
    """
    maintenance = load_table(catalog, table).maintenance
    with progress(f"rewrite deletes of {table}") as told:
        done = maintenance.rewrite_deletes(into=into, branch=branch, dry_run=dry_run, progress=told)
    _show("rewrite-deletes", table, done, dry_run=dry_run)


@click.command("rewrite-manifests")
@table_argument
@click.option("--spec-id", type=int, metavar="N", help="Only manifests of this partition spec.")
@_branch
@_dry_run
@json_option
def rewrite_manifests(table: str, catalog: str | None, spec_id: int | None, branch: str, dry_run: bool) -> None:
    """Put the manifests of TABLE together, in the order of its partitions.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. Files and rows stay.
    """
    maintenance = load_table(catalog, table).maintenance
    with progress(f"rewrite manifests of {table}") as told:
        done = maintenance.rewrite_manifests(spec_id=spec_id, branch=branch, dry_run=dry_run, progress=told)
    _show("rewrite-manifests", table, done, dry_run=dry_run)


@click.command()
@table_argument
@click.option(
    "--older-than", metavar="AGE", callback=age, help="Snapshots older than this, such as 7d; else by history.expire.* of the table."
)
@click.option("--retain-last", type=click.IntRange(min=1), metavar="N", help="Keep the last N snapshots of each branch.")
@click.option("--id", "ids", type=int, multiple=True, metavar="ID", help="This snapshot; may be given several times.")
@click.option("--drop-unreadable", is_flag=True, help="Go on where a manifest list or manifest is lost for good.")
@_dry_run
@json_option
def expire(
    table: str,
    catalog: str | None,
    older_than: timedelta | None,
    retain_last: int | None,
    ids: tuple[int, ...],
    drop_unreadable: bool,
    dry_run: bool,
) -> None:
    """Remove old snapshots of TABLE, with their keys and their files.

    TABLE is CATALOG.NAMESPACE.TABLE, or NAMESPACE.TABLE of the default catalog. What a branch or tag names stays.
    """
    expiry: Any = load_table(catalog, table).maintenance.expire_snapshots()
    if older_than is not None:
        expiry = expiry.older_than(datetime.now(UTC) - older_than)
    if retain_last is not None:
        expiry = expiry.retain_last(retain_last)
    if ids:
        expiry = expiry.by_ids(list(ids))
    if drop_unreadable:
        expiry = expiry.drop_unreadable()
    with working(f"expire {table}"):
        done = expiry.plan() if dry_run else expiry.commit()
    _show("expire", table, done, dry_run=dry_run)


def _show(command: str, table: str, done: Any, *, dry_run: bool) -> None:
    """Print a result, and end with exit code 1 if something is left."""
    found = {"table": table, **asdict(done), "dry_run": dry_run}
    emit({name.replace("_", "-"): value for name, value in found.items()}, lambda: _view(command, table, found, dry_run=dry_run))
    if any(found.get(name) for name in _LEFT):
        click.get_current_context().exit(Code.FOUND)


def _view(command: str, name: str, found: Mapping[str, Any], *, dry_run: bool) -> Table:
    """Return a row for each part of a result: its number, or how many there are, and what was left by name.

    Of a dry run only what is not 0: the rest is not to be done, or not known before it is.
    """
    from rich.table import Table

    title = f"{command}{' would do' if dry_run else ''}: {escape(name)}"
    shown = Table(title=title, title_justify="left", show_header=False)
    shown.add_column()
    shown.add_column(justify="right", overflow="fold")
    for field, value in found.items():
        if field in {"table", "dry_run"} or (dry_run and not value):
            continue
        lists = isinstance(value, (tuple, list))
        text = str(len(value)) if lists else "none" if value is None else str(value)
        shown.add_row(field.replace("_", " "), text)
        if field in {"left", "unreadable"}:
            for path in value:
                shown.add_row("", escape(path))
    if not shown.row_count:
        shown.add_row("nothing to do", "")
    return shown
