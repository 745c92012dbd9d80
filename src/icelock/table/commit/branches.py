"""``manage_snapshots``: PyIceberg's builder of branches and tags.

An unknown name is refused; PyIceberg would ignore its removal, and move a branch that is created again.

The builder also has fast-forward, and keeps a ref's retention settings. Moving a ref makes no snapshot, so every key stays in use.
A change conflicts when another writer has moved the same ref.

Not here: writing to a branch (``table.transaction``), removing snapshots (``table.maintenance.removal.expire``).
"""

from __future__ import annotations

from datetime import datetime
from typing import NoReturn, Self

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate
from pyiceberg.table.update.snapshot import ManageSnapshots as IcebergManageSnapshots

from icelock.errors import PolicyError
from icelock.table.arguments import check_snapshot
from icelock.table.moments import to_millis
from icelock.table.refs import no_such_ref


class ManageSnapshots(IcebergManageSnapshots):
    """Creates, moves and removes branches and tags: PyIceberg's methods, and Java's ``fastForwardBranch`` and ``replaceBranch``."""

    def __enter__(self) -> Self:
        return self

    def create_branch(
        self,
        snapshot_id: int,
        branch_name: str,
        max_ref_age_ms: int | None = None,
        max_snapshot_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
    ) -> Self:
        """Create a branch at a snapshot.

        Raises:
            PolicyError: a branch or tag has this name already, or there is no such snapshot.
        """
        self._check_new(branch_name, snapshot_id)
        _check_ages(max_ref_age_ms=max_ref_age_ms, max_snapshot_age_ms=max_snapshot_age_ms, min_snapshots_to_keep=min_snapshots_to_keep)
        super().create_branch(snapshot_id, branch_name, max_ref_age_ms, max_snapshot_age_ms, min_snapshots_to_keep)
        return self

    def create_tag(self, snapshot_id: int, tag_name: str, max_ref_age_ms: int | None = None) -> Self:
        """Create a tag at a snapshot.

        Raises:
            PolicyError: a branch or tag has this name already, or there is no such snapshot.
        """
        self._check_new(tag_name, snapshot_id)
        _check_ages(max_ref_age_ms=max_ref_age_ms)
        super().create_tag(snapshot_id, tag_name, max_ref_age_ms)
        return self

    def remove_branch(self, branch_name: str) -> Self:
        """Remove a branch; its snapshots stay until they expire. Java: ``removeBranch``, of the main branch an error too.

        Raises:
            PolicyError: no such branch, a tag, or the main branch.
        """
        if branch_name == MAIN_BRANCH:
            raise PolicyError("the main branch cannot be removed, as it is what everybody reads: delete the rows, or drop the table")
        self._branch(branch_name)
        super().remove_branch(branch_name)
        return self

    def remove_tag(self, tag_name: str) -> Self:
        """Remove a tag.

        Raises:
            PolicyError: no such tag, or a branch.
        """
        if self._ref(tag_name).snapshot_ref_type != SnapshotRefType.TAG:
            raise PolicyError(f"{tag_name} is a branch: remove_branch removes it")
        super().remove_tag(tag_name)
        return self

    def set_current_snapshot(self, snapshot_id: int | None = None, ref_name: str | None = None) -> Self:
        """Move the main branch to a snapshot, or to that of another ref.

        Raises:
            PolicyError: no such snapshot or ref; or both were given, or neither.
        """
        if (snapshot_id is None) == (ref_name is None):
            raise PolicyError("set_current_snapshot takes either a snapshot_id or a ref_name")
        self._check_snapshot(self._ref(ref_name).snapshot_id if ref_name is not None else snapshot_id)
        super().set_current_snapshot(snapshot_id, ref_name)
        return self

    def rollback_to_snapshot(self, snapshot_id: int) -> Self:
        """Move the main branch back to one of its own snapshots.

        Raises:
            PolicyError: no such snapshot, or it is not in the main branch.
        """
        self._check_snapshot(snapshot_id)
        if snapshot_id not in {snapshot.snapshot_id for snapshot in self._ancestors()}:
            raise PolicyError(
                f"the main branch cannot be rolled back to snapshot {snapshot_id}, which is not an ancestor of its head: "
                "set_current_snapshot moves it to any snapshot; table.history() lists those that it had"
            )
        super().rollback_to_snapshot(snapshot_id)
        return self

    def fast_forward_branch(self, from_branch: str, to_ref: str) -> Self:
        """Move a branch forward to the snapshot of another ref; a missing branch is created.

        Raises:
            PolicyError: no such ref, a tag to move, or a branch whose head is not an ancestor of that snapshot.
        """
        target = self._ref(to_ref)
        if from_branch in self._refs():
            head = self._branch(from_branch)
            metadata = self._transaction.table_metadata
            ancestors = {snapshot.snapshot_id for snapshot in ancestors_of(metadata.snapshot_by_id(target.snapshot_id), metadata)}
            if head.snapshot_id not in ancestors:
                raise PolicyError(
                    f"cannot fast-forward branch {from_branch} to {to_ref}: {head.snapshot_id} is not an ancestor of {target.snapshot_id}; "
                    "replace_branch moves it anyway"
                )
        return self._move(from_branch, target.snapshot_id)

    def replace_branch(self, branch: str, to_ref: str) -> Self:
        """Move a branch to the snapshot of another ref, whatever it holds.

        Raises:
            PolicyError: no such branch or ref, or a tag to move.
        """
        self._branch(branch)
        return self._move(branch, self._ref(to_ref).snapshot_id)

    def rollback_to_timestamp(self, timestamp_ms: int | datetime) -> Self:
        """Move the main branch back to its last snapshot before a time: ms since 1970, or a ``datetime`` with a zone.

        Raises:
            PolicyError: a time without a zone, or no snapshot of the main branch is that old.
        """
        millis = to_millis(timestamp_ms, name="timestamp_ms")
        try:
            super().rollback_to_timestamp(millis)
        except ValueError as e:  # PyIceberg's
            times = [snapshot.timestamp_ms for snapshot in self._ancestors()]
            oldest = f"its oldest one is of {min(times)} ms: give a later time" if times else "it has none: write rows first"
            raise PolicyError(f"the main branch has no snapshot before {millis} ms (since 1970), to be rolled back to; {oldest}") from e
        return self

    def cherrypick_snapshot(self, snapshot_id: int) -> NoReturn:
        """Refused: the files of a snapshot belong to it, with their own sequence numbers and row ids."""
        raise PolicyError(
            f"snapshot {snapshot_id} cannot be cherry-picked in this version: fast-forward a branch, or append the rows again"
        )

    def _move(self, branch: str, snapshot_id: int) -> Self:
        updates, requirements = self._transaction._set_ref_snapshot(snapshot_id, branch, SnapshotRefType.BRANCH)
        self._updates += updates
        self._requirements += requirements
        return self

    def _ancestors(self) -> list[Snapshot]:
        """Return the main branch's head and its ancestors."""
        metadata = self._transaction.table_metadata
        return list(ancestors_of(metadata.current_snapshot(), metadata))

    def _refs(self) -> dict[str, SnapshotRef]:
        """Return the refs with the pending changes applied."""
        refs = dict(self._transaction.table_metadata.refs)
        for update in self._updates:
            if isinstance(update, RemoveSnapshotRefUpdate):
                refs.pop(update.ref_name, None)
            elif isinstance(update, SetSnapshotRefUpdate):
                refs[update.ref_name] = SnapshotRef.model_validate({"snapshot-id": update.snapshot_id, "type": update.type})
        return refs

    def _ref(self, name: str) -> SnapshotRef:
        refs = self._refs()
        if name not in refs:
            raise PolicyError(f"the table {no_such_ref(refs, name)}")
        return refs[name]

    def _branch(self, name: str) -> SnapshotRef:
        found = self._ref(name)
        if found.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise PolicyError(f"{name} is a tag, which cannot be moved: move a branch, or remove the tag with remove_tag")
        return found

    def _check_new(self, name: str, snapshot_id: int) -> None:
        known = self._refs().get(name)
        if known is not None:
            how = "replace_branch moves it" if known.snapshot_ref_type == SnapshotRefType.BRANCH else "remove it first with remove_tag"
            raise PolicyError(f"there is a {known.snapshot_ref_type} {name!r} already, at snapshot {known.snapshot_id}; {how}")
        self._check_snapshot(snapshot_id)

    def _check_snapshot(self, snapshot_id: int | None) -> None:
        check_snapshot(self._transaction.table_metadata, snapshot_id)


def _check_ages(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < 1:
            raise PolicyError(f"{name} is {value}; it must be at least 1, or left out")
