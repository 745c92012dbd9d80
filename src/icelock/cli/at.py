"""The options ``--snapshot-id``, ``--ref`` and ``--as-of`` of commands that read, and the scan that they ask for.

Not here: reading (``table.read.scan``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from icelock.errors import PolicyError
from icelock.table.moments import parse_moment, parse_span

if TYPE_CHECKING:
    from icelock.table.plain import AnyTable
    from icelock.table.read.scan import DataScan

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS: Final = (
    click.option("--snapshot-id", type=int, metavar="ID", help="This snapshot, instead of the current one."),
    click.option("--ref", metavar="NAME", help="The snapshot of this branch or tag."),
    click.option("--as-of", metavar="TIME", help="The snapshot that was current then: 2026-01-31T12:00:00Z, or an age such as 3d."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """Which snapshot a command reads: at most one of an id, a branch or tag, ms since 1970; the current one without any."""

    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None


def at_options(command: F) -> F:
    """Give a command the three options; ``asked`` makes one value of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asked(snapshot_id: int | None, ref: str | None, as_of: str | None) -> At:
    """Return what the options say.

    Raises:
        click.UsageError: more than one is given, or the time is none.
    """
    given = {"--snapshot-id": snapshot_id, "--ref": ref, "--as-of": as_of}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other: keep one")
    return At(snapshot_id=snapshot_id, ref=ref, as_of_ms=None if as_of is None else _moment(as_of))


def _moment(text: str) -> int:
    try:
        if text.strip()[-1:] in {"d", "h", "m", "s"}:
            return int((datetime.now(UTC) - parse_span(text)).timestamp() * 1_000)
        return parse_moment("--as-of", text)
    except PolicyError as e:
        raise click.BadParameter(str(e), param_hint="--as-of") from e


def scan_at(table: AnyTable, at: At, columns: tuple[str, ...] = ("*",)) -> DataScan:
    """Return a scan of a table, plain or encrypted, at a snapshot.

    Raises:
        PolicyError: there is no such snapshot, branch, tag or column.
    """
    from icelock.metadata.schema_paths import column_list

    snapshot_id = at.snapshot_id
    if at.as_of_ms is not None:
        snapshot_id = snapshot_as_of(table, at.as_of_ms)
    scan = table.scan(selected_fields=column_list(columns, argument="--columns"), snapshot_id=snapshot_id)
    scan = scan if at.ref is None else scan.use_ref(at.ref)
    _ = scan.full_schema  # refuses a snapshot that is not there
    return scan


def snapshot_as_of(table: AnyTable, moment_ms: int) -> int:
    """Return the id of the snapshot that was current at a time.

    Raises:
        PolicyError: there was none.
    """
    from icelock.shown import utc

    found = table.snapshot_as_of_timestamp(moment_ms)
    if found is not None:
        return found.snapshot_id
    history = table.history()
    first = f"its first is of {utc(history[0].timestamp_ms)}" if history else "it has none at all"
    raise PolicyError(f"table {'.'.join(table.name())} had no snapshot at {utc(moment_ms) or moment_ms}: {first}")
