"""Snapshot producers that write encrypted manifests and manifest lists.

PyIceberg's producers decide which entries a snapshot has; the mixin here replaces what touches storage and metadata:

1. a manifest goes through an AGS1 writer and lists its key metadata;
2. the manifest list likewise, then its key is sealed under the table's KEK;
3. the new key entries travel in the same update list as the snapshot, before it (cases C-05, C-06).

A retry rebuilds on fresh metadata; entries of a failed attempt never reach a commit (``table.transaction``).

Not here: retries and conflicts (``table.transaction``), data files (``arrow.write``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.table.update.snapshot import (
    UpdateSnapshot,
    _FastAppendFiles,
    _MergeAppendFiles,
    _new_manifest_file_name,
    _new_manifest_list_file_name,
    _OverwriteFiles,
    _SnapshotProducer,
)

from icelock.errors import PolicyError
from icelock.metadata.manifest_list import write_manifest_list
from icelock.metadata.manifest_writer import EncryptedManifestWriter
from icelock.metadata.snapshot import Snapshot
from icelock.metadata.updates import AddEncryptionKeyUpdate

if TYPE_CHECKING:
    import uuid

    from pyiceberg.io import OutputFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.snapshots import Summary
    from pyiceberg.table.update import UpdatesAndRequirements

    from icelock.io.file_io import EncryptingFileIO
    from icelock.table.transaction import EncryptedTransaction


class _Encrypted(_SnapshotProducer[Any]):
    """What every producer of an encrypted table does its own way; first among the bases."""

    _transaction: EncryptedTransaction
    _cleaning: bool = False

    @property
    def _io(self) -> EncryptingFileIO:
        # Always that of the transaction's present metadata: after a refresh the old one would lack keys. Cleaning up comes
        # after the commit, when the staged updates no longer apply to the table's metadata.
        return self._transaction._table.io if self._cleaning else self._transaction.current_io()  # noqa: SLF001

    @_io.setter
    def _io(self, value: object) -> None:
        """PyIceberg's constructor assigns one; the transaction's is used instead."""

    def new_manifest_output(self) -> OutputFile:
        msg = "manifests of encrypted tables are opened by new_manifest_writer"
        raise NotImplementedError(msg)

    def new_manifest_writer(self, spec: PartitionSpec) -> EncryptedManifestWriter:
        provider = self._transaction._table.location_provider()  # noqa: SLF001 - PyIceberg's own access
        name = _new_manifest_file_name(num=next(self._manifest_num_counter), commit_uuid=self.commit_uuid)
        location = provider.new_metadata_location(name)
        self._written_manifests.append(location)
        return EncryptedManifestWriter(self._io, location=location, spec=spec, schema=self.schema(), snapshot_id=self._snapshot_id)

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        summary = super()._summary(snapshot_properties or {})
        # Partition summaries hold partition values; metadata.json is plain.
        for name in [name for name in summary.additional_properties if name.startswith("partition")]:
            del summary.additional_properties[name]
        return summary

    def _cleanup_uncommitted(self) -> None:
        self._cleaning = True
        super()._cleanup_uncommitted()

    def _clean_all_uncommitted(self) -> None:
        self._cleaning = True
        super()._clean_all_uncommitted()

    def _commit(self) -> UpdatesAndRequirements:
        try:
            return self._write_snapshot()
        except BaseException:
            self._clean_all_uncommitted()
            raise

    def _write_snapshot(self) -> UpdatesAndRequirements:
        metadata = self._transaction.encrypted_metadata()
        io = self._io
        manifests = self._manifests()
        name = _new_manifest_list_file_name(
            snapshot_id=self._snapshot_id, attempt=len(self._written_manifest_lists) + 1, commit_uuid=self.commit_uuid
        )
        location = self._transaction._table.location_provider().new_metadata_location(name)  # noqa: SLF001
        self._written_manifest_lists.append(location)
        written = write_manifest_list(
            io,
            location=location,
            manifests=manifests,  # type: ignore[arg-type]
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            sequence_number=metadata.next_sequence_number(),
            first_row_id=metadata.next_row_id,
        )
        sealed = io.manager.seal_manifest_list_key(written.key_metadata)
        snapshot = Snapshot(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            manifest_list=location,
            sequence_number=metadata.next_sequence_number(),
            summary=self._summary(self.snapshot_properties),
            schema_id=metadata.current_schema_id,
            first_row_id=metadata.next_row_id,
            added_rows=written.next_row_id - metadata.next_row_id,
            key_id=sealed.key_id,
        )
        keys = tuple(AddEncryptionKeyUpdate(encryption_key=entry) for entry in sealed.new_entries)
        return self._updates(snapshot, keys)

    def _updates(self, snapshot: Snapshot, keys: tuple[AddEncryptionKeyUpdate, ...]) -> UpdatesAndRequirements:
        added: tuple[Any, ...] = (*keys, AddSnapshotUpdate(snapshot=snapshot))
        if self._target_branch is None:
            return added, ()
        refs = self._transaction.table_metadata.refs
        ref = SetSnapshotRefUpdate(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            ref_name=self._target_branch,
            type=SnapshotRefType.BRANCH,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        head = refs[self._target_branch].snapshot_id if self._target_branch in refs else None
        return (*added, ref), (AssertRefSnapshotId(snapshot_id=head, ref=self._target_branch),)


class EncryptedFastAppend(_Encrypted, _FastAppendFiles):
    """Adds files in a manifest of their own."""


class EncryptedMergeAppend(_Encrypted, _MergeAppendFiles):
    """Adds files and merges small manifests."""


class EncryptedOverwrite(_Encrypted, _OverwriteFiles):
    """Adds and removes files in one snapshot; the predicate covers every file that is removed."""

    def _build_delete_files_partition_predicate(self) -> None:
        """Nothing to add: PyIceberg would build literals of partition values, which NaN and others do not survive."""


class EncryptedUpdateSnapshot(UpdateSnapshot):
    """PyIceberg's ``UpdateSnapshot`` with encrypting producers."""

    def __init__(
        self, transaction: EncryptedTransaction, branch: str | None = MAIN_BRANCH, snapshot_properties: dict[str, str] | None = None
    ) -> None:
        super().__init__(transaction, transaction.current_io(), branch, snapshot_properties or {})

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

    def overwrite(self, commit_uuid: uuid.UUID | None = None) -> EncryptedOverwrite:
        """Return a producer that adds and removes files."""
        head = self._transaction.table_metadata.snapshot_by_name(name=self._branch)
        operation = Operation.APPEND if head is None else Operation.OVERWRITE
        return EncryptedOverwrite(operation=operation, commit_uuid=commit_uuid, **self._arguments())

    def delete(self) -> NoReturn:
        """Refused: PyIceberg's producer takes files with nulls for wholly matching (``table.planner``)."""
        msg = "deleting by predicate goes through table.delete(...), which keeps rows that the filter leaves undecided"
        raise PolicyError(msg)
