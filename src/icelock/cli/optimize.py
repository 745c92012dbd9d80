"""``icelock optimize``: the upkeep of a table, a namespace or a catalog: the one command of a nightly job.

Exit code 1: a step failed, or was done in part. What there was no time for is said, and no failure.

Not here: the work (``icelock.maintenance``).
"""

# ruff: noqa: FBT001 - click's signature

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from icelock.cli.exit_codes import Code
from icelock.cli.load import load_catalog
from icelock.cli.maintain import named
from icelock.cli.output import emit, escape, json_option, note, working
from icelock.cli.table_names import age, split_catalog, tables_argument

if TYPE_CHECKING:
    from rich.console import RenderableType

    from icelock.maintenance import Optimized, OptimizeStep

_COLUMNS: Final = ("table", "step", "outcome", "seconds", "found", "why")


@click.command()
@tables_argument()
@click.option("--within", metavar="TIME", callback=age, help="No step begins that is not likely to end in it, such as 2h.")
@click.option(
    "--option", "options", metavar="NAME=VALUE", multiple=True, callback=named, help="In the place of the tables' icelock.optimize.NAME."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done; nothing is changed.")
@json_option
def optimize(name: str, catalog: str | None, within: timedelta | None, options: Mapping[str, str], dry_run: bool) -> None:
    """Look at the numbers of a table, or of all tables of a namespace or catalog, and do what they ask for.

    NAME is CATALOG.NAMESPACE.TABLE, CATALOG.NAMESPACE or CATALOG. Steps: compact, rewrite deletes, rewrite manifests, expire
    snapshots, remove leftovers. Table properties icelock.optimize.* say which, and from when on.
    """
    if catalog is None:
        catalog, name = split_catalog(name)

    def told(table: str, step: OptimizeStep) -> None:
        note(f"{table}: {step.name}: {step.outcome.value} ({step.seconds:.1f} s)")

    loaded = load_catalog(catalog)
    from icelock.maintenance import optimize_tables

    with working(f"optimize {name or catalog}"):
        done = optimize_tables(loaded, name, within=within, options=options, dry_run=dry_run, told=told)
    emit([_as_json(table) for table in done], lambda: _view(done, dry_run=dry_run))
    if any(table.failed for table in done):
        click.get_current_context().exit(Code.FOUND)


def _as_json(done: Optimized) -> dict[str, Any]:
    return {
        "table": done.table,
        "dry-run": done.dry_run,
        "seconds": round(done.seconds, 3),
        "failed": done.failed,
        "left": list(done.left),
        "steps": [
            {
                "name": step.name,
                "outcome": step.outcome.value,
                "found": step.found,
                "why": step.why,
                "seconds": round(step.seconds, 3),
                "result": _numbers(step.result),
            }
            for step in done.steps
        ],
    }


def _numbers(result: Any) -> dict[str, Any] | None:
    """Return the fields of a result, names with hyphens; of leftovers their paths."""
    from icelock.maintenance import Leftovers

    if isinstance(result, Leftovers):
        return {"files": [file.path for file in result.files], "failed": [file.path for file in result.failed]}
    if not is_dataclass(result) or isinstance(result, type):
        return None
    return {name.replace("_", "-"): value for name, value in asdict(result).items()}


def _view(done: Sequence[Optimized], *, dry_run: bool) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    from icelock.maintenance import Outcome

    shown = Table(title="would do" if dry_run else "done", title_justify="left")
    for column in _COLUMNS:
        shown.add_column(column, overflow="fold", justify="right" if column == "seconds" else "left")
    for table in done:
        for step in table.steps:
            cells = (table.table, step.name, step.outcome.value, f"{step.seconds:.1f}", step.found, step.why)
            shown.add_row(*map(escape, cells))
    left = [f"{table.table}: {', '.join(table.left)}" for table in done if table.left]
    lines = [f"no time was left for {escape(one)}" for one in left]
    wrong = sum(step.outcome in {Outcome.FAILED, Outcome.IN_PART} for table in done for step in table.steps)
    if wrong:
        lines.append(f"{wrong} steps failed, or were done in part")
    return Group(shown, f"{len(done)} {'table' if len(done) == 1 else 'tables'}", *lines)
