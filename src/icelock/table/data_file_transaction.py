"""Snapshots of data files that were written already, by this process or by an engine's tasks.

Each method takes files of this table's ``DataFileWriter`` and stages one snapshot. It answers for files that were just written: they are
deleted when staging fails, or when the commit certainly fails.

Not here: writing rows (``table.transaction``, ``arrow.write.writer``), producers (``table.commit.row_delta``,
``table.commit.replace_partitions``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icelock.errors import PolicyError
from icelock.plan.filters.text import parse_filter
from icelock.table.commit.conflicts import isolation_level
from icelock.table.commit.manifest_merge import merge_enabled
from icelock.table.commit.new_files import is_fresh
from icelock.table.commit.protocol import Cleanup
from icelock.table.commit.replace_partitions import check_partitioned
from icelock.table.commit.staging import Staging
from icelock.table.rows.delete import DeleteByFilter
from icelock.table.rows.engine_change import EngineChange, EngineWork

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyiceberg.expressions import BooleanExpression

    from icelock.metadata.manifest import DataFile
    from icelock.table.commit.conflicts import Since


class GivenFiles(Staging):
    """Stages data files; the part of a transaction that engines use."""

    def append_data_files(
        self, files: Sequence[DataFile], *, snapshot_properties: Mapping[str, str] | None = None, branch: str | None = MAIN_BRANCH
    ) -> None:
        """Append data files.

        Raises:
            PolicyError: a file that is given twice, that is there, or that is another table's (``table.commit.new_files``).
        """
        self.check_new_files(files, branch)
        with Cleanup(self):
            self._answer_for(files)
            update = self.update_snapshot(snapshot_properties, branch)
            with update.merge_append() if merge_enabled(self.table_metadata.properties) else update.fast_append() as producer:
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
        """Replace data files by others; deletion vectors of the replaced ones go with them.

        Raises:
            PolicyError: as ``append_data_files``.
        """
        self.check_new_files(files, branch)
        with Cleanup(self):
            self._answer_for(files)
            with self.update_snapshot(snapshot_properties, branch).overwrite() as producer:
                producer._isolation_operation = Operation.OVERWRITE  # noqa: SLF001 - PyIceberg's own way to say it
                producer.delete_by_predicate(parse_filter(overwrite_filter))
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
    ) -> None:
        """Replace the rows that match the filter by data files.

        Files that keep some of their rows are rewritten or get a deletion vector, by ``write.delete.mode``, as in ``delete``.

        Args:
            files: asked for when all that can be refused by the table's state was; what they yielded is deleted on an error.
            overwrite_filter: which rows go.
            case_sensitive: whether its column names are.
            snapshot_properties: go into the snapshot's summary.
            branch: where to.
            since: the snapshot that the rows come from, if they come from the table's own: commits after it are looked at too.

        Raises:
            PolicyError: settings or columns that do not allow it.
            ValidationException: here or when committed, if another writer changed what was replaced.
        """
        row_filter = parse_filter(overwrite_filter)
        isolation_level(self.table_metadata, Operation.OVERWRITE)
        with Cleanup(self), self.update_snapshot(snapshot_properties, branch).overwrite() as producer:
            producer._isolation_operation = Operation.OVERWRITE  # noqa: SLF001 - PyIceberg's own way to say it
            producer.delete_by_predicate(row_filter, case_sensitive)
            if since is not None:
                producer.planned_on(since.snapshot_id)
            change = DeleteByFilter(self, row_filter, case_sensitive=case_sensitive, branch=branch, follow_rows=False)
            change.resolve()
            producer.apply(change)
            for file in files:
                self._answer_for([file])
                producer.append_data_file(file)

    def replace_partitions(
        self,
        files: Sequence[DataFile],
        *,
        snapshot_properties: Mapping[str, str] | None = None,
        branch: str | None = MAIN_BRANCH,
        base_snapshot_id: int | None = None,
        since: Since | None = None,
    ) -> None:
        """Replace the partitions of data files, under any transform, by these files; nothing happens when there are none.

        Args:
            files: written with the partition spec that their ids name.
            snapshot_properties: go into the snapshot's summary.
            branch: where to.
            base_snapshot_id: the snapshot that the write was planned on, if not the table's: commits after it are looked at too.
            since: the same; it can say that there was none.

        Raises:
            PolicyError: a file was written without a partition; or as ``append_data_files``.
            ValidationException: another writer changed one of the partitions, by ``write.update.isolation-level``.
        """
        self.check_new_files(files, branch)
        with Cleanup(self):
            self._answer_for(files)
            check_partitioned(self.table_metadata.spec())
            isolation_level(self.table_metadata, Operation.OVERWRITE)
            if not files:
                return
            with self.update_snapshot(snapshot_properties, branch).replace_partitions() as producer:
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
    ) -> None:
        """Stage a row-level change that an engine worked out on one snapshot: an update, a merge, or a delete.

        Args:
            change: the files.
            row_filter: which rows of the table were looked at.
            base_snapshot_id: the snapshot that they were looked at in; None: there was none. Commits after it are looked at.
            operation: whose isolation level counts, ``DELETE`` (``write.delete.isolation-level``) or ``OVERWRITE`` (``write.update...``).
            isolation_property: another property that counts instead, as ``write.merge.isolation-level`` for a merge.
            case_sensitive: whether names in ``row_filter`` are.
            snapshot_properties: go into the snapshot's summary.
            branch: where to.
            since: an older snapshot, that the rows come from.

        Raises:
            PolicyError: settings that cannot be; or as ``append_data_files``.
            ValidationException: another writer changed rows that match the filter, here or when committed.
        """
        self.check_new_files(change.added, branch)
        with Cleanup(self):
            self._answer_for(change.added)
            isolation_level(self.table_metadata, operation, isolation_property)
            matching = parse_filter(row_filter)
            with self.update_snapshot(snapshot_properties, branch).overwrite() as producer:
                producer._isolation_operation = operation  # noqa: SLF001 - PyIceberg's own way to say it
                producer.isolation_property = isolation_property
                producer.delete_by_predicate(matching, case_sensitive)
                producer.planned_on(base_snapshot_id if since is None else since.snapshot_id)
                given = EngineChange(self, change, matching, base_snapshot_id, case_sensitive=case_sensitive, branch=branch)
                producer.apply(given, may_be_empty=True)

    def _answer_for(self, files: Iterable[DataFile]) -> None:
        """Delete files if the commit fails: those that were just written, since others may be in use."""
        self.track(*(file.file_path for file in files if is_fresh(file)))

    def files_to_replace(self, overwrite_filter: BooleanExpression | str = ALWAYS_TRUE, branch: str | None = MAIN_BRANCH) -> list[DataFile]:
        """Return the data files all of whose live rows match the filter.

        Raises:
            PolicyError: only some rows of a file do.
        """
        scan = self.branch_scan(parse_filter(overwrite_filter), case_sensitive=True, branch=branch)
        matched, cut = ([], []) if scan is None else scan.whole_files()
        if cut:
            raise PolicyError(
                f"table {self._name()}: the filter matches some rows of {cut[0].file_path} and not others: use overwrite or delete"
            )
        return matched
