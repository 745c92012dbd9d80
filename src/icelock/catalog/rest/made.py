"""Whether a table that a REST server has or answers with has had a commit.

Not here: commits (``catalog.rest.commit``), what a commit asked for and is not there (``catalog.commit.missing``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table.update import AddSnapshotUpdate

from icelock.catalog.commit.missing import missing_part
from icelock.errors import CommitError

if TYPE_CHECKING:
    from pyiceberg.table import StagedTable
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata

    from icelock.catalog.rest.answer import TableAnswer

_OF_NO_MATTER: Final = {"last_updated_ms", "metadata_log", "snapshot_log", "table_uuid"}


def made(base: IcebergTable | None, staged: StagedTable, updates: tuple[Any, ...], now: TableAnswer) -> bool | None:
    """Whether the table that the server has now has had the commit; None if it has had a part of it, or there is no telling."""
    if base is not None and now.metadata.table_uuid != base.metadata.table_uuid:
        return False
    snapshots = _added(updates)
    if snapshots:
        there = snapshots & {snapshot.snapshot_id for snapshot in now.metadata.snapshots}
        if not there:
            return False
        return True if there == snapshots and not _lacking(base, staged, updates, now) else None
    if base is None:
        return now.metadata.table_uuid == staged.metadata.table_uuid
    if now.location == base.metadata_location or not now.metadata.metadata_log:
        return False
    # One commit on top of what there was, with our result. Anything else proves nothing.
    on_top = now.metadata.metadata_log[-1].metadata_file == base.metadata_location
    return on_top and _content(now.metadata) == _content(staged.metadata)


def answered_without(base: IcebergTable | None, staged: StagedTable, updates: tuple[Any, ...], answer: TableAnswer) -> Exception | None:
    """Return an error when the table of a success is without what was committed."""
    if base is not None and answer.metadata.table_uuid != base.metadata.table_uuid:
        return CommitError(f"success was answered, with table {answer.metadata.table_uuid} in the place of {base.metadata.table_uuid}")
    sent = _added(updates)
    lost = sent - {snapshot.snapshot_id for snapshot in answer.metadata.snapshots}
    if lost:
        return CommitError(f"success was answered, with a table without snapshot {', '.join(map(str, sorted(lost)))}")
    if base is not None and not sent:
        before = _content(base.metadata)
        if _content(answer.metadata) == before and _content(staged.metadata) != before:
            return CommitError("success was answered, with a table as it was before")
    lost_part = _lacking(base, staged, updates, answer)
    return CommitError(f"success was answered, with a table where {lost_part}") if lost_part else None


def _lacking(base: IcebergTable | None, staged: StagedTable, updates: tuple[Any, ...], now: TableAnswer) -> str:
    log = now.metadata.metadata_log
    known = {snapshot.snapshot_id for snapshot in staged.metadata.snapshots}
    followed = any(snapshot.snapshot_id not in known for snapshot in now.metadata.snapshots)
    if base is not None and log:
        followed = followed or log[-1].metadata_file != base.metadata_location
    return missing_part(updates, staged.metadata, now.metadata, followed=followed, new=base is None)


def _added(updates: tuple[Any, ...]) -> set[int]:
    return {update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)}


def _content(metadata: TableMetadata) -> dict[str, Any]:
    return {name: getattr(metadata, name) for name in type(metadata).model_fields if name not in _OF_NO_MATTER}
