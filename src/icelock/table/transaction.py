"""Transactions on an encrypted table: what PyIceberg's ``Transaction`` does, for rows in every form that ``arrow.write.given`` takes.

Order of a write: 1 checks before any byte (may the table be written, is there a KMS and a KEK); 2 data files; 3 manifests; 4 the manifest
list; 5 its key is sealed; 6 one commit of keys and snapshot. On a conflict 3 to 6 are repeated on fresh metadata, and 2 as well for rows
that another writer deleted or moved meanwhile.

Not here: commit and retries (``table.commit.protocol``), what is staged (``table.commit.staged``), snapshots of existing files
(``table.data_file_transaction``), deleting by a filter (``table.rows.delete``), matching by key (``table.rows.upsert``), the rules
(``table.guard.rules``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn, Self

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import ALWAYS_TRUE, UpsertResult
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icelock.arrow.write.given import as_arrow
from icelock.arrow.write.writer import DataFileWriter, check_input, write_data_files
from icelock.errors import PolicyError
from icelock.metadata.manifest import DataFile
from icelock.plan.filters.text import parse_filter
from icelock.shown import Described, Facts
from icelock.table.commit.branches import ManageSnapshots
from icelock.table.commit.conflicts import MERGE_ISOLATION, isolation_level
from icelock.table.commit.row_delta import check_partitioned
from icelock.table.data_file_transaction import DataFileTransaction
from icelock.table.refs import check_branch
from icelock.table.rows.delete import DeleteByFilter
from icelock.table.rows.plain_files import PlainFiles
from icelock.table.rows.source_rows import SourceRows
from icelock.table.rows.upsert import Upsert


class EncryptedTransaction(Described, DataFileTransaction):
    """PyIceberg's ``Transaction`` on an encrypted table; ``rows_written`` counts the new rows, not those that were only copied."""

    rows_written = 0

    _inside: ClassVar[frozenset[str]] = frozenset(
        {
            *("append_data_files", "change_rows", "overwrite_data_files", "overwrite_with_data_files", "replace_partitions"),
            *("rewrite_data_files", "rows_written", "staged", "update_location", "update_statistics"),
        }
    )

    def _title(self) -> str:
        return f"Transaction on table {self.staged.name}"

    def _facts(self) -> Facts:
        yield "staged changes of the metadata", len(self.staged.updates)

    def append(self, df: Any, snapshot_properties: Mapping[str, str] | None = None, branch: str | None = MAIN_BRANCH) -> None:
        """Append rows in one snapshot.

        Raises:
            PolicyError: the rows do not fit the table; nothing was written.
            KeyUnavailableError: no KMS, or the master key is unavailable; nothing was written.
        """
        rows = self._before_writing(df, branch)
        self.append_data_files(self._write(rows), snapshot_properties=snapshot_properties, branch=branch)

    def overwrite(
        self,
        df: Any,
        overwrite_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: Mapping[str, str] | None = None,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Replace the rows that match the filter (default: all) in one snapshot.

        Files that keep some of their rows are rewritten or get a deletion vector, by ``write.delete.mode``, as in ``delete``.

        Raises:
            PolicyError: the rows, or the filter, do not fit the table; nothing was written.
            KeyUnavailableError: no KMS, or the master key is unavailable; nothing was written.
            ValidationException: when committed, if another writer changed what was replaced.
        """
        overwrite_filter = parse_filter(overwrite_filter)
        rows = self._before_writing(df, branch)
        self.overwrite_with_data_files(
            _lazily(lambda: self._write(rows)),
            overwrite_filter,
            case_sensitive=case_sensitive,
            snapshot_properties=snapshot_properties,
            branch=branch,
        )

    def delete(
        self,
        delete_filter: str | BooleanExpression,
        snapshot_properties: Mapping[str, str] | None = None,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        _isolation_operation: Any = None,
    ) -> None:
        """Delete the rows that match, in one snapshot; without matching rows no snapshot is made.

        Files all of whose rows match are removed by metadata alone. Of others the rest is rewritten (``write.delete.mode=copy-on-write``,
        the default) or a deletion vector is added (``merge-on-read``). Rows for which the filter is NULL are kept.

        Raises:
            PolicyError: settings or columns that do not allow it, or a filter that does not fit them; nothing was changed.
            KeyUnavailableError: no KMS, or the master key is unavailable; nothing was written.
            ValidationException: when committed, under isolation level serializable, if another writer added rows that may match.
        """
        row_filter = parse_filter(delete_filter)
        check_branch(self.table_metadata.refs, branch, table=self.staged.name)
        self.staged.prepare_kek()
        operation = _isolation_operation or Operation.DELETE
        isolation_level(self.table_metadata, operation)
        with self._overwriting(row_filter, snapshot_properties, branch, operation, case_sensitive=case_sensitive) as producer:
            change = DeleteByFilter(self.staged, row_filter, case_sensitive=case_sensitive, branch=branch, follow_rows=True)
            producer.apply(change, pure_delete=True)

    def dynamic_partition_overwrite(
        self, df: Any, snapshot_properties: Mapping[str, str] | None = None, branch: str | None = MAIN_BRANCH
    ) -> None:
        """Replace exactly the partitions that occur in the rows, in one snapshot; without rows nothing is changed.

        Works with any transform. Partitions are those of the current spec: files of an older spec stay (as Java's ReplacePartitions).

        Raises:
            PolicyError: the table is not partitioned, or the rows do not fit it; nothing was written.
            KeyUnavailableError: no KMS, or the master key is unavailable; nothing was written.
            ValidationException: when committed, if another writer changed one of the partitions (``write.update.isolation-level``).
        """
        check_partitioned(self.table_metadata.spec())
        rows = self._before_writing(df, branch)
        self.replace_partitions(self._write(rows), snapshot_properties=snapshot_properties, branch=branch)

    def upsert(
        self,
        df: Any,
        join_cols: list[str] | None = None,
        when_matched_update_all: bool = True,
        when_not_matched_insert_all: bool = True,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> UpsertResult:
        """Update rows whose key exists and whose other values differ, and insert rows whose key does not, in one snapshot.

        Updated rows keep their ``_row_id``. Files are rewritten or get deletion vectors, by ``write.merge.mode``. Keys compare as
        in Spark: NaN equals NaN, -0.0 equals 0.0. The input is held in memory, the table is read a few batches at a time.

        Args:
            df: the rows.
            join_cols: the key; None: the table's identifier fields.
            when_matched_update_all: update rows whose key exists.
            when_not_matched_insert_all: insert the others.
            case_sensitive: whether names in ``join_cols`` are.
            branch: the branch to commit to.
            snapshot_properties: added to the snapshot's summary.

        Raises:
            PolicyError: no key, a key that occurs twice or has a null, or rows that do not fit the table; nothing was written.
            KeyUnavailableError: no KMS, or the master key is unavailable; nothing was written.
            ValidationException: when committed, if another writer changed rows with such keys (``write.merge.isolation-level``).
        """
        if not when_matched_update_all and not when_not_matched_insert_all:
            raise PolicyError("upsert with neither when_matched_update_all nor when_not_matched_insert_all does nothing")
        isolation_level(self.table_metadata, Operation.OVERWRITE, MERGE_ISOLATION)
        given = self._before_writing(df, branch)
        rows = given.read_all() if isinstance(given, pa.RecordBatchReader) else given
        source = SourceRows(self.staged.write_context(), rows, join_cols, case_sensitive=case_sensitive)
        with self._overwriting(source.row_filter, snapshot_properties, branch) as producer:
            producer.isolation_property = MERGE_ISOLATION
            change = Upsert(self.staged, source, branch=branch, update=when_matched_update_all, insert=when_not_matched_insert_all)
            change.resolve()
            producer.apply(change, may_be_empty=True)
        return change.result

    def add_files(
        self,
        file_paths: list[str],
        snapshot_properties: Mapping[str, str] | None = None,
        check_duplicate_files: bool = True,
        branch: str | None = MAIN_BRANCH,
        *,
        reencrypt: bool = False,
    ) -> None:
        """Append the rows of plain Parquet files, rewritten with fresh keys, in one snapshot; the files themselves are not changed.

        Columns are found by the files' field ids, or else by the table's name mapping or names.

        Args:
            file_paths: the files.
            snapshot_properties: added to the snapshot's summary.
            check_duplicate_files: refuse files that the table has (rows that were added before are in files of other names).
            branch: the branch to commit to.
            reencrypt: must be true: plain files cannot be in an encrypted table.

        Raises:
            PolicyError: without ``reencrypt``; or a file is given twice, is the table's, or does not fit; nothing was written.
            FormatError: not a plain Parquet file, or values that do not fit the table; files written so far are deleted.
            FileNotFoundError: no such file; nothing was written.
            KeyUnavailableError: no KMS, or the master key is unavailable; nothing was written.
        """
        plain = PlainFiles(self.staged, file_paths, check_duplicates=check_duplicate_files, branch=branch)
        if not reencrypt:
            raise PolicyError(
                f"table {self.staged.name} is encrypted, and add_files would add plain files to it: with reencrypt=True their rows are "
                "rewritten, encrypted, and the files themselves are not changed"
            )
        check_branch(self.table_metadata.refs, branch, table=self.staged.name)
        plain.check()
        self.staged.prepare_kek()
        self.append_data_files(self._write(plain.rows()), snapshot_properties=snapshot_properties, branch=branch)

    def manage_snapshots(self) -> ManageSnapshots:
        """Return a builder that creates and moves branches and tags in this transaction."""
        return ManageSnapshots(self)

    def upgrade_table_version(self, format_version: int) -> Self:
        """Do nothing, as the table has version 3; another version is refused."""
        if format_version != self.table_metadata.format_version:
            self._refuse(f"format version {format_version}")
        return self

    def update_location(self, location: str) -> NoReturn:
        """Refused: manifests name files by their locations."""
        self._refuse(f"moving it to {location}")

    def update_statistics(self) -> NoReturn:
        """Refused: statistics files are plain."""
        self._refuse("writing statistics files, which would be plain,")

    def _before_writing(self, df: Any, branch: str | None) -> pa.Table | pa.RecordBatchReader:
        """Return the rows in Arrow form; refuse what can be refused before the first byte."""
        check_branch(self.table_metadata.refs, branch, table=self.staged.name)
        context = self.staged.write_context()
        rows = as_arrow(df, context.schema, downcast_ns=context.downcast_ns)
        check_input(context.schema, rows.schema, downcast_ns=context.downcast_ns)
        # Its constructor checks settings, and creates no file.
        DataFileWriter(context, task_id=0, entropy=self.staged.entropy)
        self.staged.prepare_kek()
        return rows

    def _write(self, rows: pa.Table | Iterable[pa.RecordBatch]) -> list[DataFile]:
        batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
        files = write_data_files(self.staged.write_context(), batches, task_id=0, entropy=self.staged.entropy)
        self.rows_written += sum(int(file.record_count) for file in files)
        return files

    def _refuse(self, what: str) -> NoReturn:
        raise PolicyError(f"table {self.staged.name} is encrypted: {what} is not supported; nothing was changed")


def _lazily(write: Callable[[], Iterable[DataFile]]) -> Iterator[DataFile]:
    yield from write()
