"""``manage_snapshots``: PyIceberg's builder of branches and tags, with fast-forward, and without forgetting how long a ref is kept.

Moving a ref makes no snapshot, so every key stays in use. A change is a conflict when another writer has moved the same ref.

Not here: writing to a branch (``table.transaction``), removing snapshots (``table.expire``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update.snapshot import ManageSnapshots as IcebergManageSnapshots

from icelock.errors import PolicyError
from icelock.table.moments import to_millis

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self


class ManageSnapshots(IcebergManageSnapshots):
    """Creates, moves and removes branches and tags; PyIceberg's methods, and Java's ``fastForwardBranch`` and ``replaceBranch``."""

    def fast_forward_branch(self, from_branch: str, to_ref: str) -> Self:
        """Move a branch on to where another ref is; a branch that is not there is made.

        Raises:
            PolicyError: no such ref, a tag to move, or a branch whose head is no ancestor of where it should go.
        """
        target = self._ref(to_ref)
        refs = self._transaction.table_metadata.refs
        if from_branch in refs:
            head = self._branch(from_branch)
            metadata = self._transaction.table_metadata
            ancestors = {snapshot.snapshot_id for snapshot in ancestors_of(metadata.snapshot_by_id(target.snapshot_id), metadata)}
            if head.snapshot_id not in ancestors:
                msg = (
                    f"cannot fast-forward branch {from_branch} to {to_ref}: {head.snapshot_id} is no ancestor of {target.snapshot_id}; "
                    "replace_branch moves it all the same"
                )
                raise PolicyError(msg)
        return self._move(from_branch, target.snapshot_id)

    def replace_branch(self, branch: str, to_ref: str) -> Self:
        """Move a branch to where another ref is, whatever it holds.

        Raises:
            PolicyError: no such branch or ref, or a tag to move.
        """
        self._branch(branch)
        return self._move(branch, self._ref(to_ref).snapshot_id)

    def rollback_to_timestamp(self, timestamp_ms: int | datetime) -> Self:
        """Move the main branch back to its last snapshot before a time: ms since 1970, or a ``datetime`` with a zone.

        Raises:
            PolicyError: a time without a zone.
            ValueError: no snapshot is that old (PyIceberg's error).
        """
        super().rollback_to_timestamp(to_millis(timestamp_ms, name="timestamp_ms"))
        return self

    def cherrypick_snapshot(self, snapshot_id: int) -> NoReturn:
        """Refused: the files of a snapshot belong to it, with sequence numbers and row ids of their own.

        Raises:
            PolicyError: always.
        """
        msg = f"snapshot {snapshot_id} cannot be cherry-picked in this version: fast-forward a branch, or append its rows"
        raise PolicyError(msg)

    def _move(self, branch: str, snapshot_id: int) -> Self:
        updates, requirements = self._transaction._set_ref_snapshot(snapshot_id, branch, SnapshotRefType.BRANCH)  # noqa: SLF001
        self._updates += updates
        self._requirements += requirements
        return self

    def _ref(self, name: str) -> SnapshotRef:
        found = self._transaction.table_metadata.refs.get(name)
        if found is None:
            msg = f"there is no branch or tag {name}; there are {', '.join(sorted(self._transaction.table_metadata.refs)) or 'none'}"
            raise PolicyError(msg)
        return found

    def _branch(self, name: str) -> SnapshotRef:
        found = self._ref(name)
        if found.snapshot_ref_type != SnapshotRefType.BRANCH:
            msg = f"{name} is a tag, which stays where it is; move a branch"
            raise PolicyError(msg)
        return found
