"""The producer of snapshots that remove rows: one snapshot adds and removes data files and delete files.

Each attempt asks a ``RowChange`` what to add and remove, on the metadata of that attempt. Then:

1. new data files and new delete files are written into manifests of their own;
2. a manifest with an entry to remove is rewritten: the other entries become ``existing``, with the values that they inherited, removed
   ones ``deleted``; other manifests are listed unchanged, and those without a live file are left out;
3. the deletion vector of a removed data file, and position deletes that name it, are removed with it, so that nothing dangles (Java
   ManifestFilterManager); so is a vector that another one replaces.

Not here: which rows match and how files are rewritten (``table.rows.delete``), validation (``table.commit.conflicts``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, Protocol, Self

from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysFalse, BooleanExpression, Or
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import IsolationLevel, Operation, Summary
from pyiceberg.table.update import UpdatesAndRequirements
from pyiceberg.table.update.snapshot import CommitWindow, _SnapshotProducer
from pyiceberg.typedef import KeyDefaultDict
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.errors import PolicyError
from icelock.metadata.manifest import ManifestEntry
from icelock.metadata.sound_bounds import on_sound_manifests
from icelock.plan.delete_index import DeleteFileId, delete_file_id, referenced_data_file
from icelock.plan.filters.exact import exact_filter
from icelock.plan.partition_filter import partition_filter
from icelock.plan.partition_set import PartitionSet
from icelock.table.commit.conflicts import Conflicts, Window, isolation_level
from icelock.table.commit.given_partition import check_partitions
from icelock.table.commit.producer import EncryptedProducer
from icelock.table.commit.staged import check_place, is_fresh
from icelock.table.state import Version

REPLACES: Final = "replace-partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a snapshot does besides adding the files that it was given.

    ``removed`` are data files that the parent must have; ``replaced`` are delete files that are no longer needed; all data and delete
    files of ``partitions`` are removed.
    """

    removed: Sequence[DataFile] = ()
    partitions: PartitionSet | None = None
    added: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    replaced: frozenset[DeleteFileId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.deletes or self.replaced)


class RowChange(Protocol):
    """Works out a ``Change`` for the metadata of each attempt."""

    def resolve(self) -> Change:
        """Return the change on the transaction's present metadata.

        Raises:
            ValidationException: another writer's commit makes it impossible.
        """

    def obsolete(self) -> list[str]:
        """Return files of earlier attempts that the last change does not use, once each."""

    def touches(self, data_file: str) -> bool:
        """Whether the change depends on rows of a data file, by path, as far as it was worked out."""


class EncryptedOverwrite(EncryptedProducer, _SnapshotProducer["EncryptedOverwrite"]):
    """Adds and removes files in one snapshot.

    Data files are given by ``append_data_file`` and ``delete_data_file``, and a ``RowChange`` by ``apply``. The predicate says where
    removed files may be and what a conflict is; without one, they may be anywhere, and every change of other writers conflicts.
    """

    def __init__(self, operation: Operation, transaction: Any, io: Any, **arguments: Any) -> None:
        super().__init__(operation, transaction, io, **arguments)
        self._row_change: RowChange | None = None
        self._may_be_empty = False
        self._moved_rows = False
        self._change = Change()
        self._removed: list[DataFile] = []
        self._late = False
        self.isolation_property: str | None = None  # instead of the operation's
        self.isolation: str | None = None  # instead of the property's

    def apply(self, change: RowChange, *, pure_delete: bool = False, may_be_empty: bool = False) -> None:
        """Let the snapshot apply a row change.

        Args:
            change: asked again for each attempt.
            pure_delete: nothing is added for removed rows, so the change may be worked out again on what other writers left, and no
                snapshot is made when there is nothing left to do.
            may_be_empty: make no snapshot when there is nothing to do.
        """
        self._row_change = change
        self._moved_rows = pure_delete
        self._may_be_empty = pure_delete or may_be_empty

    @property
    def reads_data(self) -> bool:  # type: ignore[override]  # elsewhere a constant
        """Whether the change is worked out by reading data."""
        return self._row_change is not None

    def named_columns(self, schema: Schema) -> Iterable[int]:
        """Return the ids of the columns that the filter names; all columns if another attempt finds rows by name."""
        if getattr(self._row_change, "by_name", False):
            return schema.field_ids
        return extract_field_ids(bind(schema, self._predicate, self._case_sensitive))

    def planned_on(self, snapshot_id: int | None) -> None:
        """Set the snapshot that the change was planned on: later commits are validated from the first attempt on."""
        self._late = snapshot_id != self._starting_snapshot_id
        self._starting_snapshot_id = snapshot_id

    def _commit(self) -> UpdatesAndRequirements:
        if self._late:
            self._late = False
            self._validate_concurrency()
        self._change = self._own_change()
        self.idle = self._may_be_empty and not self._change and not self._added_data_files
        if self.idle:
            self._clean_all_uncommitted()
            return (), ()
        return super()._commit()

    def _own_change(self) -> Change:
        """Return what this attempt does besides adding the files that it was given."""
        change = Change()
        if self._row_change is not None:
            change = self._row_change.resolve()
            self._uncommitted_manifests.extend(self._row_change.obsolete())
        return replace(change, removed=(*change.removed, *self._deleted_data_files))

    def _manifests(self) -> list[ManifestFile]:
        data = self._added_manifests([*self._added_data_files, *self._change.added], ManifestContent.DATA)
        deletes = self._added_manifests(self._change.deletes, ManifestContent.DELETES)
        return self._listed([*data, *deletes, *self._existing_manifests()])

    def _existing_manifests(self) -> list[ManifestFile]:
        self._removed = []
        metadata = self._staged.metadata
        head = None if self._parent_snapshot_id is None else metadata.snapshot_by_id(self._parent_snapshot_id)
        manifests = [] if head is None else [m for m in head.manifests(self._io) if m.has_added_files() or m.has_existing_files()]
        removals = _Removals(self._change, metadata)
        may_hold: KeyDefaultDict[int, Any] = KeyDefaultDict(
            lambda spec_id: on_sound_manifests(self._build_manifest_evaluator(spec_id), metadata, spec_id)
        )
        everywhere = self._predicate == AlwaysFalse()
        concerned = [m for m in manifests if removals.may_be_in(m) and (everywhere or may_hold[m.partition_spec_id](m))]
        entries = ExecutorFactory.get_or_create().map(
            lambda manifest: manifest.fetch_manifest_entry(self._io, discard_deleted=True), concerned
        )
        rewritten = {manifest: self._rewritten(manifest, found, removals) for manifest, found in zip(concerned, entries, strict=True)}
        removals.check_found(metadata.snapshot_by_name(self._target_branch))
        return [rewritten.get(manifest, manifest) for manifest in manifests]

    def _rewritten(self, manifest: ManifestFile, entries: list[ManifestEntry], removals: _Removals) -> ManifestFile:
        """Return the manifest without the removed files; the same one if all stay."""
        removed = [removals.takes(entry.data_file) for entry in entries]
        if not any(removed):
            return manifest
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id), manifest.content) as writer:
            for entry, deleted in zip(entries, removed, strict=True):
                if deleted:
                    self._removed.append(entry.data_file)
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.DELETED if deleted else ManifestEntryStatus.EXISTING,
                        snapshot_id=self._snapshot_id if deleted else entry.snapshot_id,
                        sequence_number=entry.sequence_number,
                        file_sequence_number=entry.file_sequence_number,
                        data_file=entry.data_file,
                    )
                )
        return writer.to_manifest_file()

    def _deleted_entries(self) -> NoReturn:
        """Not used: removed entries stay in the rewritten manifest."""
        raise NotImplementedError

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        added = [*self._added_data_files, *self._change.added, *self._change.deletes]
        return self._summary_of(self._what_it_does(), added, self._removed, snapshot_properties or {})

    def _what_it_does(self) -> Operation:
        """Return the operation as Java's OverwriteFiles and RowDelta name it."""
        removes = self._removed or self._change.deletes
        if self._added_data_files or self._change.added:
            return Operation.OVERWRITE if removes else Operation.APPEND
        return Operation.DELETE if removes else self._operation

    def _refresh_for_retry(self) -> None:
        super()._refresh_for_retry()
        self.__dict__.pop("partition_filters", None)  # of the earlier schema and specs

    def _validate_concurrency(self) -> None:
        table = self._staged.committed
        window = CommitWindow.resolve(table.metadata, self._starting_snapshot_id, self._target_branch)
        if window.head is None and window.base is not None:
            raise ValidationException(
                f"branch {self._target_branch!r} was replaced by an empty one since this was planned; reload the table and retry"
            )
        if window.is_empty() or window.head is None:
            return
        commits = Window(base=window.base, head=window.head)
        commits.check(table.metadata)
        conflicts = self._conflicts(table, commits)
        level = self.isolation or isolation_level(table.metadata, self._isolation_operation, self.isolation_property)
        if level == IsolationLevel.SERIALIZABLE:
            conflicts.check_no_new_rows(moved_rows=self._moved_rows)
        if not self._moved_rows:
            conflicts.check_no_lost_rows(self._touches, follows=self._follows())

    def _follows(self) -> bool:
        """Whether rows that a compaction moved are found: what removes them is worked out on the present files."""
        return not self._deleted_data_files and (self._row_change is None or getattr(self._row_change, "plans_again", False))

    def _touches(self, data_file: str) -> bool:
        return self._row_change is None or self._row_change.touches(data_file) or bool(self._deleted_data_files)

    def _conflicts(self, table: Version, commits: Window) -> Conflicts:
        row_filter = None if self._predicate == AlwaysFalse() else self._predicate
        return Conflicts(table.metadata, table.io, commits, row_filter, case_sensitive=self._case_sensitive)

    def delete_by_predicate(self, predicate: BooleanExpression, case_sensitive: bool = True) -> None:
        """Set which rows the snapshot is about; it does not search for files to remove."""
        self._predicate = predicate if self._predicate == AlwaysFalse() else Or(self._predicate, predicate)
        self._case_sensitive = case_sensitive

    def _build_partition_projection(self, spec_id: int) -> BooleanExpression:
        exact = exact_filter(self._predicate, self.schema(), case_sensitive=self._case_sensitive)
        return partition_filter(self.schema(), self.spec(spec_id), exact)


class EncryptedReplacePartitions(EncryptedOverwrite):
    """Adds files, and removes everything else in their partitions (Java ReplacePartitions).

    Partitions are compared by spec and tuple, under any transform; files of an older spec are in none of them and stay. Conflicts are
    detected in the same partitions: new data files under isolation level serializable, removed data files and new delete files under
    both. The summary has ``replace-partitions``, and the operation is always ``overwrite``.
    """

    def __init__(self, operation: Operation, transaction: Any, io: Any, **arguments: Any) -> None:
        super().__init__(operation, transaction, io, **arguments)
        self._isolation_operation = Operation.OVERWRITE
        self.snapshot_properties = {**self.snapshot_properties, REPLACES: "true"}
        self._partitions = PartitionSet()

    def append_data_file(self, data_file: DataFile) -> Self:
        """Add a file, whose partition is replaced; refused without one, as all files of its spec would be removed."""
        if not is_fresh(data_file):
            check_place(self._staged.metadata, data_file, table=self._staged.name)
            check_partitions(self._staged.metadata, [data_file], table=self._staged.name)
        check_partitioned(self.spec(data_file.spec_id))
        self._partitions.add(data_file)
        super().append_data_file(data_file)
        return self

    def _own_change(self) -> Change:
        return replace(super()._own_change(), partitions=self._partitions)

    def _what_it_does(self) -> Operation:
        return Operation.OVERWRITE

    def _conflicts(self, table: Version, commits: Window) -> Conflicts:
        return Conflicts(table.metadata, table.io, commits, None, case_sensitive=True, partitions=self._partitions)


def check_partitioned(spec: PartitionSpec) -> None:
    """Refuse a spec without partitions to replace: unpartitioned, or with void fields only."""
    if spec.is_unpartitioned() or all(str(field.transform) == "void" for field in spec.fields):
        raise PolicyError(
            f"partition spec {spec.spec_id} is unpartitioned: there are no partitions to replace; use overwrite, or delete and append"
        )


class _Removals:
    """Which entries of the parent are removed, and whether all data files to remove were found."""

    def __init__(self, change: Change, metadata: TableMetadata) -> None:
        self._paths = {file.file_path for file in change.removed}
        self._missing = set(self._paths)
        self._replaced = change.replaced
        self._partitions = change.partitions or PartitionSet()
        self._metadata = metadata

    def may_be_in(self, manifest: ManifestFile) -> bool:
        if self._paths or (self._replaced and manifest.content == ManifestContent.DELETES):
            return True
        return self._partitions.may_hold(manifest, self._metadata)

    def takes(self, file: DataFile) -> bool:
        if file in self._partitions:
            return True
        if file.content == DataFileContent.DATA:
            self._missing.discard(file.file_path)
            return file.file_path in self._paths
        return delete_file_id(file) in self._replaced or referenced_data_file(file) in self._paths

    def check_found(self, head: Any) -> None:
        if self._missing:
            where = "the branch" if head is None else f"snapshot {head.snapshot_id}"
            raise ValidationException(
                f"data files to remove are not in {where} any more: {', '.join(sorted(self._missing))}; reload the table and retry"
            )
