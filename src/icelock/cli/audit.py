"""``icelock audit``: what is encrypted, under which keys, and what is wrong.

Exit code 0: sound. 1: findings. 2: something could not be looked at (no KMS, no catalog, no right), and nothing else was found.

Not here: the audit (``icelock.audit``).
"""

# ruff: noqa: PLR0913 - click's signature

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from icelock.audit.options import Depth, Snapshots
from icelock.cli.exit_codes import Code
from icelock.cli.load import load_catalog
from icelock.cli.output import emit, escape, json_option, progress
from icelock.cli.table_names import split_catalog, tables_argument
from icelock.errors import PolicyError
from icelock.shown import utc

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.tree import Tree

    from icelock.audit.report import AuditReport, KekReport, TableReport

# Of ``Verdict`` and of ``Severity``.
_CODES: Final = {"sound": Code.DONE, "findings": Code.FOUND, "could not look": Code.COULD_NOT}
_STYLES: Final = {"error": "red", "warning": "yellow", "note": "dim"}
_SHOWN: Final = 12


@click.command()
@tables_argument()
@click.option(
    "--depth",
    type=click.Choice([one.value for one in Depth]),
    multiple=True,
    default=(Depth.OPEN.value,),
    show_default=True,
    help="metadata: keys and entries resolve. open: every list, manifest and footer authenticates. bytes: every byte does. foreign: also "
    "every object below the location. May be given several times.",
)
@click.option("--snapshots", type=click.Choice(["all", "current"]), default="all", show_default=True, help="Which snapshots to look at.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    metavar="N",
    help="Files that are opened at once, where there is much to read by several processes; 1: by this one alone.",
)
@click.option("--most-findings", type=click.IntRange(min=1), default=100, show_default=True, metavar="N", help="Kept of each kind.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write a page for people.")
@json_option
def audit(
    name: str,
    catalog: str | None,
    depth: tuple[str, ...],
    snapshots: Snapshots,
    threads: int,
    most_findings: int,
    html: Path | None,
) -> None:
    """Check whether all of a table is encrypted and intact, and which keys open what.

    NAME is CATALOG.NAMESPACE.TABLE, CATALOG.NAMESPACE or CATALOG. Nothing is written, and no key is shown.
    """
    if catalog is None:
        catalog, name = split_catalog(name)
    loaded = load_catalog(catalog)
    from icelock.audit.run import audit as run_audit

    asked: dict[str, Any] = {"depth": depth, "snapshots": snapshots, "threads": threads, "most_findings": most_findings}
    with progress(f"audit {name or catalog}") as told:
        report = run_audit(loaded, name, progress=told, **asked)
    if html is not None:
        _write(html, report)
    emit(report.to_json(), lambda: _view(report))
    click.get_current_context().exit(_CODES[report.verdict])


def _write(path: Path, report: AuditReport) -> None:
    from icelock.audit.html import page

    # Written beside it first, so that a page of before is whole until it is replaced. A pipe or device is written to.
    there = path.parent / f".{path.name}.{os.getpid()}.new" if path.is_file() or not path.exists() else path
    try:
        try:
            there.write_text(page(report), encoding="utf-8", errors="backslashreplace")
            if there != path:
                if path.exists():
                    shutil.copymode(path, there)
                there.replace(path.resolve())
        except BaseException:
            if there != path:
                there.unlink(missing_ok=True)
            raise
    except OSError as e:
        raise PolicyError(f"--html {path} cannot be written: {e.strerror}") from e


def _view(report: AuditReport) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = [part for table in report.tables for part in _table(table)]
    if len(report.tables) != 1:
        parts.append(_overview(report))
    return Group(*parts)


def _overview(report: AuditReport) -> Table:
    from rich.table import Table

    shown = Table(title=f"audit of {escape(report.catalog)} {escape(report.name)}", title_justify="left")
    for column in ("table", "verdict", "findings", "notes", "plain files", "not looked at"):
        shown.add_column(column, justify="left" if column in {"table", "verdict"} else "right", overflow="fold")
    for table in report.tables:
        plain = sum(plain.files for _, plain in table.files.values())
        cells = (escape(table.table), table.verdict.value, str(table.wrong), str(table.notes), str(plain), str(table.unseen_count))
        shown.add_row(*cells)
    return shown


def _table(table: TableReport) -> Iterator[RenderableType]:
    style = "green" if table.verdict == "sound" else "bold red"
    asked = f"{', '.join(table.depths)}; {table.scope} snapshots; {table.seconds:.1f} s"
    yield f"{escape(table.table)}: [{style}]{table.verdict.value}[/] ({asked})"
    if table.files:
        yield _files(table)
    if table.objects:
        yield _objects(table)
    if table.keks:
        yield _tree(table)
    said = [f"{name} {what}" for name, what in table.statements.items() if what != "none"]
    if said:
        yield f"metadata file {escape(table.metadata_file)}: {', '.join(said)}"
    for finding in table.findings:
        text = f"{finding.code}: {escape(finding.what)}: {escape(finding.sentence)}; {escape(finding.remedy)}"
        yield f"[{_STYLES[finding.severity.value]}]{finding.severity.value}[/] {text}"
    left = sum(table.counts.values()) - len(table.findings)
    if left > 0:
        yield f"{left} more findings of these kinds (--most-findings shows more)"
    for unseen in table.unseen:
        yield f"[bold red]not looked at[/] {escape(unseen.what)}: {escape(unseen.why)}"


def _files(table: TableReport) -> Table:
    from rich.table import Table

    shown = Table(title_justify="left")
    for column in ("", "encrypted", "bytes", "plain", "bytes "):
        shown.add_column(column, justify="right" if column else "left")
    rows: list[tuple[str, Any, Any]] = [(kind, encrypted, plain) for kind, (encrypted, plain) in table.files.items()]
    for kind, encrypted, plain in rows:
        shown.add_row(kind, str(encrypted.files), str(encrypted.bytes), str(plain.files), str(plain.bytes))
    return shown


def _objects(table: TableReport) -> Table:
    from rich.table import Table

    shown = Table(title_justify="left")
    for column in ("objects below the location", "number", "bytes"):
        shown.add_column(column, justify="left" if column.startswith("objects") else "right")
    for kind, found in table.objects.items():
        shown.add_row(kind, str(found.files), str(found.bytes))
    return shown


def _tree(table: TableReport) -> Tree:
    from rich.tree import Tree

    tree = Tree("keys")
    for master in table.master_keys:
        refs = ", ".join(master.refs) or "no refs"
        lost = f"without it {master.lost.files} files, {master.lost.bytes} bytes are lost" if master.lost.files else "no file was opened"
        branch = tree.add(escape(f"master key {master.id}: {master.snapshots} snapshots ({refs}); {lost}"))
        for kek in (one for one in table.keks if one.master_key_id == master.id):
            _add_kek(branch, kek, table)
    return tree


def _add_kek(branch: Tree, kek: KekReport, table: TableReport) -> None:
    node = branch.add(escape(_kek(kek)))
    own = [one for one in table.snapshots if one.kek == kek.id]
    if len(own) > _SHOWN:
        node.add(f"{len(own) - _SHOWN} older snapshots")
    for one in own[-_SHOWN:]:
        refs = f" ({', '.join(one.refs)})" if one.refs else ""
        node.add(escape(f"snapshot {one.id}{refs}, {utc(one.at_ms)}"))


def _kek(kek: KekReport) -> str:
    version = f", version {kek.version} of it" if kek.version is not None else ""
    opens = "" if kek.opens else ", DOES NOT OPEN"
    age = "age unknown" if kek.age_days is None else f"{kek.age_days} of 730 days old"
    used = f" from {utc(kek.first_ms)} to {utc(kek.last_ms)}" if kek.snapshots else ""
    return f"KEK {kek.id}{version}{opens}: {age}; {len(kek.snapshots)} snapshots{used}"
