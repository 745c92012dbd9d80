"""The part of a transaction that engines use: it has a staged state and a commit, and takes data files that were written already.

Each method takes files of this table's ``DataFileWriter`` and stages one snapshot. Files that were just written are its responsibility:
they are deleted when staging fails, or when the commit certainly fails.

Not here: writing rows (``table.transaction``, ``arrow.write.writer``), producers (``table.commit.row_delta``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import ALWAYS_TRUE, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import TableRequirement, TableUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import UpdateSnapshot, _SnapshotProducer

from icelock import telemetry
from icelock.errors import IcelockError, PolicyError
from icelock.metadata.manifest import DataFile
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.plan.filters.text import parse_filter
from icelock.table.commit.conflicts import Since, check_still_fits, isolation_level
from icelock.table.commit.producer import EncryptedFastAppend, EncryptedMergeAppend, merge_enabled
from icelock.table.commit.protocol import CommitProtocol
from icelock.table.commit.rewrite import EncryptedRewrite, FileGroup, GroupsChange
from icelock.table.commit.row_delta import EncryptedOverwrite, EncryptedReplacePartitions, check_partitioned
from icelock.table.commit.staged import Staged, is_fresh
from icelock.table.guard.snapshots import check_summary
from icelock.table.named_updates import NamedUpdateSchema, NamedUpdateSortOrder, NamedUpdateSpec
from icelock.table.refs import check_branch
from icelock.table.rows.delete import DeleteByFilter
from icelock.table.rows.file_rewrite import EngineChange, EngineWork

if TYPE_CHECKING:
    from pyiceberg.table.update.schema import UpdateSchema
    from pyiceberg.table.update.sorting import UpdateSortOrder
    from pyiceberg.table.update.spec import UpdateSpec

    from icelock.table.table import Table


class DataFileTransaction(Transaction):
    """PyIceberg's ``Transaction`` with a staged state of its own (``staged``), which takes data files."""

    _table: Table

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        self._shared = table
        super().__init__(table.at_one_version(), autocommit)
        del self._updates, self._requirements, self._snapshot_producers  # PyIceberg's state, so that nothing uses it beside ``staged``
        self.staged = Staged(self._table)

    def __enter__(self) -> Self:
        """Start staging; the end of the ``with`` block commits, or deletes what was written when it is left by an error."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A commit that failed has deleted its files, or left them because it may have been made.
        if error is not None and not self._failed:
            self._failed = True
            self.staged.discard()
        if isinstance(error, IcelockError):
            telemetry.refused("table", "change", self.staged.name, error)
        super().__exit__(kind, error, trace)

    @property
    def table_metadata(self) -> TableMetadataV3:
        """The table's metadata with the staged updates applied."""
        return self.staged.metadata

    def update_snapshot(
        self, snapshot_properties: Mapping[str, str] | None = None, branch: str | None = MAIN_BRANCH
    ) -> EncryptedUpdateSnapshot:
        """Return producers that write encrypted metadata files."""
        return EncryptedUpdateSnapshot(self, branch=branch, snapshot_properties=dict(snapshot_properties or {}))

    def update_schema(self, allow_incompatible_changes: bool = False, case_sensitive: bool = True) -> UpdateSchema:
        """Return a builder of a new schema."""
        mapping = self.table_metadata.name_mapping()
        return NamedUpdateSchema(self, allow_incompatible_changes, case_sensitive, name_mapping=mapping)

    def update_spec(self) -> UpdateSpec:
        """Return a builder of a new partition spec."""
        return NamedUpdateSpec(self)

    def update_sort_order(self, case_sensitive: bool = True) -> UpdateSortOrder:
        """Return a builder of a new sort order."""
        return NamedUpdateSortOrder(self, case_sensitive=case_sensitive)

    def commit_transaction(self) -> Table:
        """Commit what is staged; a transaction whose commit failed cannot be used again.

        Raises:
            CommitFailedException: the catalog refused each time; the files of this transaction were deleted.
            ValidationException: another writer's commit contradicts this one; likewise.
            PolicyError: an update would break a rule of encrypted tables; likewise.
            NoSuchTableError: the table was dropped or renamed meanwhile; likewise.
            CommitStateUnknownException: the outcome is unknown; nothing was deleted.
        """
        if self._failed:
            raise RuntimeError("This transaction failed to commit and cannot be reused; create a new transaction.")
        try:
            CommitProtocol(self.staged, self._table.catalog).commit()
        except BaseException:
            self._failed = True
            raise
        self._shared.advance(self._table)
        return self._shared

    def _stage(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()) -> Transaction:
        self.staged.stage(updates, requirements)
        return self

    def _register_snapshot_producer(self, producer: _SnapshotProducer[Any]) -> None:
        self.staged.producers.append(producer)

    def _set_ref_snapshot(self, snapshot_id: int, ref_name: str, type: str, **retention: Any) -> UpdatesAndRequirements:  # type: ignore[override]  # noqa: A002 - as PyIceberg
        # A ref that moves keeps its retention settings; PyIceberg forgets them.
        given = {name: value for name, value in retention.items() if value}
        return super()._set_ref_snapshot(snapshot_id, ref_name, type, **self.staged.retention_of(ref_name, type) | given)

    def append_data_files(
        self,
        files: Sequence[DataFile],
        *,
        snapshot_properties: Mapping[str, str] | None = None,
        branch: str | None = MAIN_BRANCH,
        operation: Operation = Operation.APPEND,
    ) -> None:
        """Append data files.

        Args:
            files: written with the partition spec that their ids name.
            snapshot_properties: added to the snapshot's summary.
            branch: the branch to commit to.
            operation: of the snapshot: ``OVERWRITE`` if the files are all rows of a table that is replaced.

        Raises:
            PolicyError: a file is given twice, is in the branch, or is another table's (``table.commit.staged``), or its spec or partition
                values are not the table's; nothing was written.
        """
        self.staged.check_new_files(files, branch)
        with self.staged.discarding_on_error():
            self._track_new(files)
            update = self.update_snapshot(snapshot_properties, branch)
            merges = merge_enabled(self.table_metadata.properties)
            with update.merge_append(operation) if merges else update.fast_append(operation) as producer:
                for file in files:
                    producer.append_data_file(file)

    def overwrite_data_files(
        self,
        files: Sequence[DataFile],
        replaced: Iterable[DataFile],
        *,
        overwrite_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: Mapping[str, str] | None = None,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Replace data files by others; their deletion vectors are removed with them.

        Raises:
            PolicyError: as ``append_data_files``.
        """
        self.staged.check_new_files(files, branch)
        with self._overwriting(overwrite_filter, snapshot_properties, branch, files=files) as producer:
            for file in replaced:
                producer.delete_data_file(file)
            for file in files:
                producer.append_data_file(file)

    def overwrite_with_data_files(
        self,
        files: Iterable[DataFile],
        overwrite_filter: BooleanExpression | str = ALWAYS_TRUE,
        *,
        case_sensitive: bool = True,
        snapshot_properties: Mapping[str, str] | None = None,
        branch: str | None = MAIN_BRANCH,
        since: Since | None = None,
        isolation: str | None = None,
    ) -> None:
        """Replace the rows that match the filter by data files.

        Files that keep some of their rows are rewritten or get a deletion vector, by ``write.delete.mode``, as in ``delete``.

        Args:
            files: taken only when the table's state cannot refuse the change any more; deleted on an error.
            overwrite_filter: the rows to replace.
            case_sensitive: whether names in ``overwrite_filter`` are.
            snapshot_properties: added to the snapshot's summary.
            branch: the branch to commit to.
            since: the snapshot that the rows were read from, if they come from this table: later commits are validated too.
            isolation: ``serializable`` or ``snapshot``, in place of the property.

        Raises:
            PolicyError: settings or columns that do not allow it.
            ValidationException: here or when committed, if another writer changed what was replaced.
        """
        row_filter = parse_filter(overwrite_filter)
        isolation_level(self.table_metadata, Operation.OVERWRITE)
        with self._overwriting(row_filter, snapshot_properties, branch, case_sensitive=case_sensitive) as producer:
            producer.isolation = isolation
            if since is not None:
                producer.planned_on(since.snapshot_id)
            change = DeleteByFilter(self.staged, row_filter, case_sensitive=case_sensitive, branch=branch, follow_rows=False)
            change.resolve()
            producer.apply(change)
            for file in files:
                self._track_new([file])
                producer.append_data_file(file)

    def replace_partitions(
        self,
        files: Sequence[DataFile],
        *,
        snapshot_properties: Mapping[str, str] | None = None,
        branch: str | None = MAIN_BRANCH,
        base_snapshot_id: int | None = None,
        since: Since | None = None,
        isolation: str | None = None,
    ) -> None:
        """Replace the partitions of data files, under any transform, by these files; without files nothing is changed.

        Args:
            files: written with the partition spec that their ids name.
            snapshot_properties: added to the snapshot's summary.
            branch: the branch to commit to.
            base_snapshot_id: the snapshot that the write was planned on, if not the table's: later commits are validated too.
            since: the same; its snapshot may be None, if there was no snapshot.
            isolation: ``serializable`` or ``snapshot``, in place of the property.

        Raises:
            PolicyError: a file was written without a partition; or as ``append_data_files``.
            ValidationException: another writer changed one of the partitions, by ``write.update.isolation-level``.
        """
        self.staged.check_new_files(files, branch)
        with self.staged.discarding_on_error():
            self._track_new(files)
            check_partitioned(self.table_metadata.spec())
            isolation_level(self.table_metadata, Operation.OVERWRITE)
            if not files:
                return
            with self.update_snapshot(snapshot_properties, branch).replace_partitions() as producer:
                producer.isolation = isolation
                if since is not None or base_snapshot_id is not None:
                    producer.planned_on(base_snapshot_id if since is None else since.snapshot_id)
                for file in files:
                    producer.append_data_file(file)

    def change_rows(
        self,
        change: EngineWork,
        *,
        row_filter: BooleanExpression | str,
        base_snapshot_id: int | None,
        operation: Operation = Operation.OVERWRITE,
        isolation_property: str | None = None,
        case_sensitive: bool = True,
        snapshot_properties: Mapping[str, str] | None = None,
        branch: str | None = MAIN_BRANCH,
        since: Since | None = None,
        isolation: str | None = None,
    ) -> None:
        """Stage a row-level change that an engine worked out on one snapshot: an update, a merge, or a delete.

        Args:
            change: the removed, added and rewritten files.
            row_filter: the rows of the table that were read.
            base_snapshot_id: the snapshot that they were read from; None: there was none. Later commits are validated.
            operation: whose isolation level applies, ``DELETE`` (``write.delete.isolation-level``) or ``OVERWRITE`` (``write.update...``).
            isolation_property: a property to use instead, such as ``write.merge.isolation-level`` for a merge.
            case_sensitive: whether names in ``row_filter`` are.
            snapshot_properties: added to the snapshot's summary.
            branch: the branch to commit to.
            since: an older snapshot that new rows were read from.
            isolation: ``serializable`` or ``snapshot``, in place of the property.

        Raises:
            PolicyError: invalid settings; or as ``append_data_files``.
            ValidationException: another writer changed rows that match the filter, here or when committed.
        """
        self.staged.check_new_files(change.added, branch)
        with self.staged.discarding_on_error():
            self._track_new(change.added)
            isolation_level(self.table_metadata, operation, isolation_property)
            matching = parse_filter(row_filter)
            given = EngineChange(self.staged, change, matching, base_snapshot_id, case_sensitive=case_sensitive, branch=branch)
            with self._overwriting(matching, snapshot_properties, branch, operation, case_sensitive=case_sensitive) as producer:
                producer.isolation_property, producer.isolation = isolation_property, isolation
                producer.planned_on(base_snapshot_id if since is None else since.snapshot_id)
                producer.apply(given, may_be_empty=True)

    def rewrite_data_files(
        self,
        groups: Sequence[FileGroup],
        planned_on: TableMetadataV3,
        *,
        snapshot_properties: Mapping[str, str] | None = None,
        branch: str = MAIN_BRANCH,
    ) -> GroupsChange:
        """Put data files in the place of others with the same rows: operation ``replace``, as Java's RewriteFiles.

        Args:
            groups: each is committed as a whole, or left out if other writers touched its files meanwhile; nothing is committed if none is
                left. Files of groups that were left out (``dropped`` of what is returned) are the caller's to delete after the commit.
            planned_on: the metadata whose snapshot of the branch the groups were planned on.
            snapshot_properties: added to the snapshot's summary.
            branch: the branch to commit to.

        Raises:
            PolicyError: as ``append_data_files``.
            ValidationException: the branch has no such snapshot any more, or the columns or the partition spec of the new files are not the
                table's any more.
        """
        base = planned_on.snapshot_by_name(branch)
        if base is None:
            raise PolicyError(f"table {self.staged.name}: branch {branch!r} has no snapshot, so there are no files to rewrite")
        files = [file for group in groups for file in group.added]
        self.staged.check_new_files(files, branch)
        with self.staged.discarding_on_error():
            self._track_new(files)
            check_still_fits(planned_on, self.staged.metadata, table=self.staged.name)
            change = GroupsChange(self.staged, groups, base, branch)
            update = self.update_snapshot(snapshot_properties, branch)
            with EncryptedRewrite(operation=Operation.REPLACE, **update._arguments()) as producer:  # noqa: SLF001 - no step for engines
                producer.rewrite(change, sequence_number=base.sequence_number or 0)
            return change

    @contextmanager
    def _overwriting(
        self,
        row_filter: BooleanExpression | str,
        snapshot_properties: Mapping[str, str] | None,
        branch: str | None,
        operation: Operation = Operation.OVERWRITE,
        *,
        case_sensitive: bool = True,
        files: Iterable[DataFile] = (),
    ) -> Iterator[EncryptedOverwrite]:
        """Stage a snapshot that replaces rows matching a filter, by the producer that is yielded; ``operation`` as in ``change_rows``."""
        with self.staged.discarding_on_error():
            self._track_new(files)
            with self.update_snapshot(snapshot_properties, branch).overwrite() as producer:
                producer._isolation_operation = operation  # noqa: SLF001 - PyIceberg has no other way
                producer.delete_by_predicate(parse_filter(row_filter), case_sensitive)
                yield producer

    def _track_new(self, files: Iterable[DataFile]) -> None:
        """Let files be deleted if the commit fails: only those that were just written, since others may be in use."""
        self.staged.track(*(file.file_path for file in files if is_fresh(file)))


class EncryptedUpdateSnapshot(UpdateSnapshot):
    """PyIceberg's ``UpdateSnapshot`` with encrypting producers."""

    def __init__(self, transaction: Any, branch: str | None = MAIN_BRANCH, snapshot_properties: dict[str, str] | None = None) -> None:
        staged: Staged = transaction.staged
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

    def fast_append(self, operation: Operation = Operation.APPEND) -> EncryptedFastAppend:
        """Return a producer that adds a manifest."""
        return EncryptedFastAppend(operation=operation, **self._arguments())

    def merge_append(self, operation: Operation = Operation.APPEND) -> EncryptedMergeAppend:
        """Return a producer that adds a manifest and merges small ones."""
        return EncryptedMergeAppend(operation=operation, **self._arguments())

    def overwrite(self, commit_uuid: uuid.UUID | None = None) -> EncryptedOverwrite:  # type: ignore[override]  # not PyIceberg's class
        """Return a producer that adds and removes files."""
        return EncryptedOverwrite(operation=Operation.OVERWRITE, commit_uuid=commit_uuid, **self._arguments())

    def replace_partitions(self) -> EncryptedReplacePartitions:
        """Return a producer that replaces the partitions of the files that it is given."""
        return EncryptedReplacePartitions(operation=Operation.OVERWRITE, **self._arguments())

    def delete(self) -> NoReturn:
        """Refused: PyIceberg's producer deletes rows for which the filter is NULL (``plan.planner``)."""
        raise PolicyError("use table.delete(...) to delete by predicate: it keeps rows for which the filter is NULL")
