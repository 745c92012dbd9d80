"""One commit that puts deletes into another form: operation ``replace``; no row is deleted, none comes back (``rows.delete_rewrite``).

Used by ``rewrite_deletes``, and by ``compact`` for its option ``remove-dangling-deletes``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.snapshots import Operation

from icelock.table.commit.rewrite import EncryptedRewrite
from icelock.table.rows.delete_rewrite import DeletesChange, FindDeleted, PlannedDeletes, Progress, find_here
from icelock.table.state import OpenTable


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedDeletes:
    """The snapshot, and its summary's counts; all 0 and None if there was nothing to do."""

    snapshot_id: int | None = None
    vectors: int = 0
    removed_delete_files: int = 0
    removed_data_files: int = 0
    dangling: int = 0


class _DeletesRewrite(EncryptedRewrite):
    """The producer: another attempt may have to read deletes."""

    reads_data = True


def plan_deletes(table: OpenTable, branch: str, *, vectors: bool) -> PlannedDeletes:
    """Return what ``commit_deletes`` would do."""
    transaction: Any = table.transaction()
    return DeletesChange(transaction.staged, branch, vectors=vectors, find=find_here).plan()


def commit_deletes(
    table: OpenTable,
    branch: str,
    *,
    vectors: bool,
    find: FindDeleted = find_here,
    progress: Progress | None = None,
    written_later: Collection[str] = (),
) -> CommittedDeletes:
    """Make a vector of the deletes of each data file, if ``vectors``, and remove delete files that no data file needs.

    ``written_later`` are data files that the caller has committed: no position delete of before needs to stay for them.

    Raises:
        PolicyError: the table has no such branch.
        IntegrityError: a file fails authentication; nothing was changed.
        CommitFailedException: the catalog refused each time; likewise.
        CommitStateUnknownException: the outcome is unknown; no file of it was deleted.
    """
    table.refresh()
    transaction: Any = table.transaction()
    staged = transaction.staged
    change = DeletesChange(staged, branch, vectors=vectors, find=find, progress=progress, written_later=written_later)
    staged.prepare_kek()
    producer = _DeletesRewrite(operation=Operation.REPLACE, transaction=transaction, io=staged.io, branch=branch)
    with staged.discarding_on_error(), producer:
        producer.apply(change, may_be_empty=True)
    metadata = transaction.commit_transaction().metadata
    snapshot = metadata.snapshot_by_id(producer.snapshot_id)
    if snapshot is None:
        return CommittedDeletes()
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return CommittedDeletes(
        snapshot_id=snapshot.snapshot_id,
        vectors=int(summary.get("added-dvs", 0)),
        removed_delete_files=int(summary.get("removed-delete-files", 0)),
        removed_data_files=int(summary.get("deleted-data-files", 0)),
        dangling=len(change.planned.dangling),
    )
