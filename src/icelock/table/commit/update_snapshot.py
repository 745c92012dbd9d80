"""``table.commit.update_snapshot``: PyIceberg's ``UpdateSnapshot`` whose producers encrypt.

Not here: the producers (``table.commit.producer``, ``table.commit.row_delta``, ``table.commit.replace_partitions``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import UpdateSnapshot

from icelock.errors import PolicyError
from icelock.table.commit.branches import check_branch
from icelock.table.commit.producer import EncryptedFastAppend, EncryptedMergeAppend
from icelock.table.commit.replace_partitions import EncryptedReplacePartitions
from icelock.table.commit.row_delta import EncryptedOverwrite
from icelock.table.guard import check_summary

if TYPE_CHECKING:
    import uuid

    from icelock.table.state import StagesFiles


class EncryptedUpdateSnapshot(UpdateSnapshot):
    """PyIceberg's ``UpdateSnapshot`` with encrypting producers."""

    def __init__(self, transaction: Any, branch: str | None = MAIN_BRANCH, snapshot_properties: dict[str, str] | None = None) -> None:
        staged: StagesFiles = transaction.staged
        check_summary(snapshot_properties or {}, table=staged.name)
        check_branch(staged.metadata.refs, branch, table=staged.name)
        super().__init__(transaction, staged.io, branch, snapshot_properties or {})

    def _arguments(self) -> dict[str, Any]:
        return {
            "transaction": self._transaction,
            "io": self._io,
            "branch": self._branch,
            "snapshot_properties": self._snapshot_properties,
        }

    def fast_append(self) -> EncryptedFastAppend:
        """Return a producer that adds a manifest."""
        return EncryptedFastAppend(operation=Operation.APPEND, **self._arguments())

    def merge_append(self) -> EncryptedMergeAppend:
        """Return a producer that adds a manifest and merges small ones."""
        return EncryptedMergeAppend(operation=Operation.APPEND, **self._arguments())

    def overwrite(self, commit_uuid: uuid.UUID | None = None) -> EncryptedOverwrite:  # type: ignore[override]  # not PyIceberg's class
        """Return a producer that adds and removes files."""
        return EncryptedOverwrite(operation=Operation.OVERWRITE, commit_uuid=commit_uuid, **self._arguments())

    def replace_partitions(self) -> EncryptedReplacePartitions:
        """Return a producer that replaces the partitions of the files that it is given."""
        return EncryptedReplacePartitions(operation=Operation.OVERWRITE, **self._arguments())

    def delete(self) -> NoReturn:
        """Refused: PyIceberg's producer deletes rows for which the filter is NULL (``plan.planner``)."""
        raise PolicyError("use table.delete(...) to delete by predicate: it keeps rows for which the filter is NULL")
