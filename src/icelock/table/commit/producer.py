"""Snapshot producers that write encrypted manifests and manifest lists.

PyIceberg's producers decide which entries of the parent a snapshot keeps; the mixin here replaces what touches storage and metadata:

1. new files are written into manifests of their own, one for each partition spec, as AGS1, and the list names their key metadata;
2. the manifest list likewise, data manifests first; then its key is sealed under the table's KEK;
3. the new key entries are in the same update list as the snapshot, before it (cases C-05, C-06).

A retry rebuilds on fresh metadata; key entries of a failed attempt are never committed.

Not here: retries (``table.commit.protocol``), removing files (``table.commit.row_delta``), data files (``arrow.write.writer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, Self

from pyiceberg.io import OutputFile
from pyiceberg.manifest import UNASSIGNED_SEQ, DataFile, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import (
    _FastAppendFiles,
    _ManifestMergeManager,
    _MergeAppendFiles,
    _new_manifest_file_name,
    _new_manifest_list_file_name,
    _SnapshotProducer,
)
from pyiceberg.utils.properties import property_as_bool

from icelock.errors import PolicyError
from icelock.io.file_io import EncryptingFileIO
from icelock.metadata.json_values import whole_number
from icelock.metadata.manifest import ManifestEntry
from icelock.metadata.manifest_list import write_manifest_list
from icelock.metadata.manifest_writer import EncryptedManifestWriter
from icelock.metadata.table_metadata import Snapshot
from icelock.metadata.updates import AddEncryptionKeyUpdate, commit_time_ms
from icelock.table.commit.given_partition import check_partitions
from icelock.table.commit.staged import Staged, check_given_once, check_not_there, check_place, is_fresh
from icelock.table.commit.summary import snapshot_summary
from icelock.table.refs import check_branch

# Small commits would make planning slower and slower, so manifests are merged by default, as in Java; only up to 1 MiB (some 10,000 files;
# Java: 8 MiB), since every entry is decoded and written, which must not delay a commit for long.
TARGET_SIZE_DEFAULT: Final = 1 << 20


class EncryptedProducer(_SnapshotProducer[Any]):
    """What every producer of an encrypted table does differently from PyIceberg's; first among the bases."""

    _cleaning: bool = False
    _merges: bool = True
    idle: bool = False
    """Whether the last attempt found nothing to do, and made no snapshot."""
    reads_data: bool = False
    """Whether making the snapshot again means more than reading manifests and writing some."""
    data_sequence_number: int | None = None
    """Of the data files that the snapshot adds, if not its own: their rows are older, and later equality deletes apply to them."""

    def __init__(self, operation: Operation, transaction: Any, io: Any, **arguments: Any) -> None:
        self._staged: Staged = transaction.staged
        merge_sizes(self._staged.metadata.properties)  # PyIceberg's producers read them, and raise ValueError
        super().__init__(operation, transaction, io, **arguments)
        # PyIceberg starts from the branch's staged head; other writers' commits come after the committed one.
        head = self._staged.committed.metadata.snapshot_by_name(self._target_branch)
        self._starting_snapshot_id = None if head is None else head.snapshot_id
        self._added_paths: set[str] = set()
        # Files that were not just written: each attempt checks that the branch does not have them.
        self._given: list[DataFile] = []
        # Manifests of new files, by their content; another attempt lists them again.
        self._manifests_of: dict[tuple[Any, ...], tuple[list[DataFile], ManifestFile]] = {}

    @property
    def _io(self) -> EncryptingFileIO:
        # Always with the keys of the present metadata: after a refresh the old object would lack some. Cleaning up comes after the
        # commit, when the staged updates no longer apply to the table's metadata.
        return self._staged.committed.io if self._cleaning else self._staged.io

    @_io.setter
    def _io(self, value: object) -> None:
        """Ignored: PyIceberg's constructor assigns one, and the transaction's is used instead."""

    def named_columns(self, schema: Schema) -> Iterable[int]:
        """Return the ids of columns that the snapshot depends on by name: they must have the same names when it is committed."""
        del schema
        return ()

    def append_data_file(self, data_file: DataFile) -> Self:
        """Add a data file.

        Raises:
            PolicyError: it was added already, is not this table's, or its partition is none of the table's; or, when the snapshot is made,
                the branch has it.
        """
        if data_file.file_path in self._added_paths:
            check_given_once([data_file, data_file], table=self._staged.name)
        self._added_paths.add(data_file.file_path)
        if is_fresh(data_file):
            data_file.fresh = False  # it is used now
        else:
            check_place(self._staged.metadata, data_file, table=self._staged.name)
            check_partitions(self._staged.metadata, [data_file], table=self._staged.name)
            self._given.append(data_file)
        super().append_data_file(data_file)
        return self

    def new_manifest_output(self) -> OutputFile:
        """Not used: PyIceberg's own would be plain."""
        raise NotImplementedError("manifests of encrypted tables are opened by new_manifest_writer")

    def new_manifest_writer(self, spec: PartitionSpec, content: ManifestContent = ManifestContent.DATA) -> EncryptedManifestWriter:
        """Return the writer of a new manifest with a key of its own."""
        name = _new_manifest_file_name(num=next(self._manifest_num_counter), commit_uuid=self.commit_uuid)
        location = self._staged.locations.new_metadata_location(name)
        self._written_manifests.append(location)
        return EncryptedManifestWriter(
            self._io,
            location=location,
            spec=spec,
            schema=self.schema(),
            snapshot_id=self._snapshot_id,
            content=content,
            schemas=self._staged.metadata.schemas,
        )

    def _manifests(self) -> list[ManifestFile]:
        """Return the manifests of the new snapshot: data before deletes, in each the new ones first, as Java."""
        added = self._added_manifests(self._added_data_files, ManifestContent.DATA)
        return self._listed([*added, *self._existing_manifests()])

    def _listed(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Return the manifests to list, small ones merged; those that were merged into others are deleted after the commit."""
        properties = self._staged.metadata.properties
        # An attempt after a conflict merges only when no other writer can commit first again, or it would merge for the next conflict.
        may_lose = self._written_manifest_lists and not self._staged.cannot_lose
        if self._merges and merge_enabled(properties) and not may_lose:
            manifests = merged(self, manifests, properties)
        listed = {manifest.manifest_path for manifest in manifests}
        # A manifest that an earlier attempt did not list may be listed now.
        written = [*self._written_manifests, *self._uncommitted_manifests]
        self._uncommitted_manifests = [path for path in written if path not in listed]
        self._written_manifests = [path for path in written if path in listed]
        return sorted(manifests, key=lambda manifest: int(manifest.content))

    def _added_manifests(self, files: Iterable[DataFile], content: ManifestContent) -> list[ManifestFile]:
        """Write a manifest of new files for each partition spec that they were written with, whatever the current one is."""
        by_spec: dict[int, list[DataFile]] = {}
        for file in files:
            by_spec.setdefault(file.spec_id, []).append(file)
        manifests: list[ManifestFile] = []
        for spec_id, group in by_spec.items():
            # By identity: equal files need not be the same object, and the list keeps them alive.
            known = (content, spec_id, self.schema().schema_id, *map(id, group))
            if known not in self._manifests_of:
                with self.new_manifest_writer(self.spec(spec_id), content) as writer:
                    for file in group:
                        writer.add_entry(
                            ManifestEntry.from_args(
                                status=ManifestEntryStatus.ADDED,
                                snapshot_id=self._snapshot_id,
                                sequence_number=self._sequence_number_of(file) if content == ManifestContent.DATA else None,
                                data_file=file,
                            )
                        )
                self._manifests_of[known] = group, writer.to_manifest_file()
            manifests.append(self._manifests_of[known][1])
        return manifests

    def _sequence_number_of(self, file: DataFile) -> int | None:  # noqa: ARG002 - by producers that move rows
        """Return the data sequence number of a new data file; None: that of the snapshot."""
        return self.data_sequence_number

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        return self._summary_of(self._operation, self._added_data_files, (), snapshot_properties or {})

    def _summary_of(
        self, operation: Operation, added: Iterable[DataFile], removed: Iterable[DataFile], properties: Mapping[str, str]
    ) -> Summary:
        metadata = self._staged.metadata
        parent = None if self._parent_snapshot_id is None else metadata.snapshot_by_id(self._parent_snapshot_id)
        before = None if parent is None else parent.summary
        return snapshot_summary(operation, added=added, removed=removed, properties=properties, parent=before)

    def _cleanup_uncommitted(self) -> None:
        self._cleaning = True
        super()._cleanup_uncommitted()

    def _clean_all_uncommitted(self) -> None:
        self._cleaning = True
        self._manifests_of.clear()
        super()._clean_all_uncommitted()

    def _refresh_for_retry(self) -> None:
        self._cleaning = False
        super()._refresh_for_retry()

    def _commit(self) -> UpdatesAndRequirements:
        try:
            return self._write_snapshot()
        except BaseException:
            self._clean_all_uncommitted()
            raise

    def _unless_expired(self, make: Callable[[], UpdatesAndRequirements]) -> UpdatesAndRequirements:
        """Make the snapshot; again on the catalog's version if the caller's was expired meanwhile, together with its manifest list."""
        try:
            return make()
        except FileNotFoundError:
            if not self._staged.catch_up():
                raise
            self._refresh_for_retry()
            return make()

    def _write_snapshot(self) -> UpdatesAndRequirements:
        metadata = self._staged.metadata
        # Also on a later attempt: if another writer removed the branch, it would come back with these rows only.
        check_branch(metadata.refs, self._target_branch, table=self._staged.name)
        io = self._io
        head = None if self._parent_snapshot_id is None else metadata.snapshot_by_id(self._parent_snapshot_id)
        check_not_there(metadata, self._given, head, io, table=self._staged.name)
        manifests = self._manifests()
        name = _new_manifest_list_file_name(
            snapshot_id=self._snapshot_id, attempt=len(self._written_manifest_lists) + 1, commit_uuid=self.commit_uuid
        )
        location = self._staged.locations.new_metadata_location(name)
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
            timestamp_ms=commit_time_ms(metadata, self._staged.now_ms()),
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
        refs = self._staged.metadata.refs
        ref = SetSnapshotRefUpdate(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            ref_name=self._target_branch,
            type=SnapshotRefType.BRANCH,
            **self._staged.retention_of(self._target_branch),
        )
        head = refs[self._target_branch].snapshot_id if self._target_branch in refs else None
        return (*added, ref), (AssertRefSnapshotId(snapshot_id=head, ref=self._target_branch),)


class _OnlyAdds(EncryptedProducer):
    """A producer that removes nothing, so it can be built on any version."""

    def delete_data_file(self, data_file: DataFile) -> NoReturn:
        """Refused: PyIceberg's would silently do nothing."""
        raise PolicyError(f"an append removes no file ({data_file.file_path}): use update_snapshot().overwrite() or .delete() of the table")

    def _write_snapshot(self) -> UpdatesAndRequirements:
        return self._unless_expired(super()._write_snapshot)


class EncryptedFastAppend(_OnlyAdds, _FastAppendFiles):
    """Adds files in a manifest of their own."""

    _merges = False


class EncryptedMergeAppend(_OnlyAdds, _MergeAppendFiles):
    """Adds files and merges small manifests."""


def merge_enabled(properties: Mapping[str, str]) -> bool:
    """Return whether a table's commits merge manifests."""
    return property_as_bool(dict(properties), TableProperties.MANIFEST_MERGE_ENABLED, default=True)


def merged(producer: _SnapshotProducer[Any], manifests: Sequence[ManifestFile], properties: Mapping[str, str]) -> list[ManifestFile]:
    """Return the manifests with small ones merged (``commit.manifest-merge.*``); data and deletes apart.

    PyIceberg decides which manifests to merge: by spec, up to ``commit.manifest.target-size-bytes``, the new one only with
    ``commit.manifest.min-count-to-merge`` others. In a merged manifest, files that this snapshot adds are still ``added`` and inherit
    from it; all others are ``existing``, with the values that they inherited written out; files removed earlier are left out.
    """
    size, count = merge_sizes(properties)
    merger = _Merger(size or 1, count or 1, True, producer)
    groups = [[m for m in manifests if m.content == content] for content in (ManifestContent.DATA, ManifestContent.DELETES)]
    return [manifest for group in groups for manifest in merger.merge_manifests(group)]


def merge_sizes(properties: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the target size of merged manifests in bytes, and from how many on they are merged; refuse what is not a number."""
    names = TableProperties
    return (
        whole_number(properties, names.MANIFEST_TARGET_SIZE_BYTES, TARGET_SIZE_DEFAULT),
        whole_number(properties, names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT),
    )


class _Merger(_ManifestMergeManager[Any]):
    _snapshot_producer: Any  # an EncryptedProducer

    def _create_manifest(self, spec_id: int, manifest_bin: list[ManifestFile]) -> ManifestFile:
        producer = self._snapshot_producer
        with producer.new_manifest_writer(producer.spec(spec_id), manifest_bin[0].content) as writer:
            for manifest in manifest_bin:
                for entry in producer.fetch_manifest_entry(manifest, discard_deleted=False):
                    kept = _merged_entry(entry, producer.snapshot_id)
                    if kept is not None:
                        writer.add_entry(kept)
        merged: ManifestFile = writer.to_manifest_file()
        return merged


def _merged_entry(entry: Any, snapshot_id: int) -> ManifestEntry | None:
    ours = entry.snapshot_id == snapshot_id
    if ours and entry.status == ManifestEntryStatus.ADDED:
        given = None if entry.sequence_number == UNASSIGNED_SEQ else entry.sequence_number
        return ManifestEntry.from_args(status=entry.status, snapshot_id=snapshot_id, sequence_number=given, data_file=entry.data_file)
    if entry.status == ManifestEntryStatus.DELETED and not ours:
        return None
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.DELETED if entry.status == ManifestEntryStatus.DELETED else ManifestEntryStatus.EXISTING,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
