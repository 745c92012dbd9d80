"""The outcome of a commit whose answer was an error or got lost: found by reading, and nothing is deleted before it is known.

The table's row is read on a new connection. If it names the new metadata file, or one whose history has it, the commit was made. If it
names another one, the caller says whether that proves that the commit was not made. If it cannot be read after some tries, or is gone, the
outcome is unknown. Source: Java BaseMetastoreOperations.checkCommitStatus.

Not here: how a row is read and replaced (``catalog.commit.pointer``).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate

from icelock.io.listing import delete_files
from icelock.metadata.given import is_long

logger = logging.getLogger(__name__)

# Java's table properties for the looks at a table after a failed commit.
STATUS_CHECKS: Final = "commit.status-check.num-retries"
STATUS_CHECKS_DEFAULT: Final = 3
STATUS_WAIT_MS: Final = "commit.status-check.min-wait-ms"
STATUS_WAIT_MS_DEFAULT: Final = 1000
_MOST_LOOKS: Final = 1000


def resolve_outcome(
    staged: StagedTable,
    replaces: str | None,
    *,
    named: Callable[[], str | None],
    read: Callable[[str], TableMetadata],
    patient: bool,
) -> bool | None:
    """Whether a commit was made; None if the row cannot be read, or is gone.

    Args:
        staged: the new version.
        replaces: the metadata file that the row named before; None for a new row.
        named: reads which metadata file the row names; None if there is no row.
        read: reads a metadata file.
        patient: the request may still be on its way, so a row that does not name the new file yet is read again.
    """
    made: bool | None = None
    for seconds in waits(staged.metadata.properties):
        time.sleep(seconds)
        try:
            location = named()
            made = _tells(location, staged, replaces, read)
        except Exception as e:  # noqa: BLE001 - whatever it was, the next look may tell
            logger.debug("the row of table %s cannot be read: %s", ".".join(staged.name()), e)
            continue
        if made or not patient:
            return made
    return made


def waits(properties: Mapping[str, str]) -> list[float]:
    """Return the seconds to wait before each look: none before the first, then twice as long each time.

    A setting that is not a number is ignored: the commit may have been made, and an error now would hide that.
    """
    looks = 1 + min(_MOST_LOOKS, _number(properties, STATUS_CHECKS, STATUS_CHECKS_DEFAULT))
    first = _number(properties, STATUS_WAIT_MS, STATUS_WAIT_MS_DEFAULT) / 1000
    return [0.0, *(min(60.0, first * 2**look) for look in range(looks - 1))]


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    return max(0, int(text)) if is_long(text) else default  # type: ignore[arg-type]  # text, then


def has_commit(sent: CommitTableResponse, kept: IcebergTable, updates: tuple[Any, ...], *, before: str | None) -> bool:
    """Whether a table that was read back has the commit; other writers may have committed since.

    ``sent`` is the table as the catalog says it has it, ``before`` the metadata file on which the commit was prepared.
    """
    added = {update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)}
    there = {snapshot.snapshot_id for snapshot in kept.metadata.snapshots}
    if kept.metadata_location == sent.metadata_location:
        return added <= there
    if added and added <= there:
        return True
    history = [entry.metadata_file for entry in kept.metadata.metadata_log]
    if sent.metadata_location in history:
        return True
    replaced = {before, *(entry.metadata_file for entry in sent.metadata.metadata_log[-1:])}
    # A server that keeps no history cannot be asked about a change without a snapshot.
    return not added and not history and kept.metadata_location not in replaced


def not_there(table: str, *, catalog: str, found: str) -> CommitStateUnknownException:
    """Return the error for a commit that the catalog accepted and does not show; ``found`` is what it has instead."""
    return CommitStateUnknownException(
        f"catalog {catalog} says that the commit to table {table} was made, but has {found}, without it; nothing was deleted: load the "
        "table again later, and repeat the commit only if it still is not there"
    )


def unknown(staged: StagedTable, cause: Exception, *, who: str) -> CommitStateUnknownException:
    """Return the error for an unknown outcome; ``who`` is the catalog's server."""
    return CommitStateUnknownException(
        f"{who} did not say whether table {'.'.join(staged.name())} was changed ({type(cause).__name__}: {cause}); nothing was deleted: "
        f"look whether its metadata_location is {staged.metadata_location} or one after it before you repeat the commit"
    )


def discard(staged: StagedTable) -> None:
    """Delete the metadata file of a commit that was certainly not made."""
    delete_files(staged.io, [staged.metadata_location])


@contextlib.contextmanager
def delete_on_failure(staged: StagedTable) -> Iterator[None]:
    """Delete the staged metadata file if the block fails."""
    try:
        yield
    except BaseException:
        discard(staged)
        raise


def _tells(location: str | None, staged: StagedTable, replaces: str | None, read: Callable[[str], TableMetadata]) -> bool | None:
    if location is None:
        return False if replaces is None else None  # a table that was dropped or renamed since may have had the commit
    if location in {staged.metadata_location, replaces}:
        return location == staged.metadata_location
    # Another commit came on top of ours, or of what ours was to replace.
    return any(entry.metadata_file == staged.metadata_location for entry in read(location).metadata_log)
