"""Plain tables of versions 1 and 2: read as encrypted ones are (``table.read.readable``), written by PyIceberg after two checks.

1. In a catalog that has a KMS they take rows only if the client says that they are plain (``catalog.new_properties``).
2. PyIceberg loads the class ``write.py-location-provider.impl`` of a table's properties whenever it writes. Properties lie on storage, or
   come from a REST server, so the client must name the class too (``table.encryption.check_locations``); reading needs none.

Rows are taken in every form that ``arrow.write.given`` takes, and a filter deletes the rows that it finds (``table.rows.plain_rewrite``).

Not here: encrypted tables and plain ones of version 3 (``table.table``), what Spark writes (``spark.statements.plain_tables``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.table import ALWAYS_TRUE, Table, Transaction, UpsertResult
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import UpdateSnapshot

from icelock.arrow.write.conform import InputPlan
from icelock.arrow.write.given import as_arrow, downcasts_ns
from icelock.arrow.write.schema import write_schema
from icelock.errors import PolicyError
from icelock.io.listing import delete_files
from icelock.metadata.schema_paths import find_column
from icelock.metadata.table_metadata import unshared
from icelock.plan.filters.exact import exact_filter
from icelock.plan.filters.text import parse_filter
from icelock.table.change_result import ChangeResult
from icelock.table.commit.row_delta import check_partitioned
from icelock.table.described import DescribedTable
from icelock.table.guard.rules import refuse_plain
from icelock.table.read.readable import ReadableTable
from icelock.table.read.scan import DataScan
from icelock.table.refs import check_branch
from icelock.table.reported_changes import ReportedChanges
from icelock.table.rows.plain_rewrite import without_rows
from icelock.table.table import Table as EncryptedTable

if TYPE_CHECKING:
    from icelock.table.maintenance.plain_maintenance import PlainMaintenance

_NONE: Final[Mapping[str, str]] = {}


class PlainTable(DescribedTable, ReadableTable, ReportedChanges, Table):  # type: ignore[misc]  # PyIceberg's return nothing
    """PyIceberg's ``Table`` in one of icelock's catalogs."""

    def _at_once(self) -> tuple[TableMetadata, FileIO]:
        return self.metadata, self.io

    def check_locations(self) -> None:
        """Check who names the class that chooses file paths; see ``TableEncryption.check_locations``."""
        self.catalog.encryption.check_locations(self.metadata.properties, table=".".join(self.name()))  # type: ignore[attr-defined]  # an EncryptedCatalog

    def check_write(self) -> None:
        """Refuse rows if the catalog writes encrypted tables and the client did not say that this one is plain; see ``check_locations``."""
        self._check_plain()
        catalog: Any = self.catalog  # an EncryptedCatalog
        known = catalog.pins.is_plain(self.name(), self.metadata.table_uuid)
        catalog.new_tables.check_plain_write(table=".".join(self.name()), known=known)
        self.check_locations()

    def location_provider(self) -> LocationProvider:
        """Return what chooses the paths of new files; see ``check_locations``."""
        self.check_locations()
        return super().location_provider()

    def at_one_version(self) -> Self:
        """Return another object for the present version, which other users of this one do not move on.

        Its schemas and specs are its own: PyIceberg's writers serialize them, while threads that share them may look into them.
        """
        made = copy.copy(self)
        made.metadata = unshared(self.metadata)
        return made

    def _check_plain(self) -> None:
        if self.encrypted:  # since a refresh
            raise PolicyError(f"table {'.'.join(self.name())} was converted to an encrypted one meanwhile: load it again")

    def io_for(self, metadata: TableMetadata, **_: object) -> NoReturn:
        """Refuse what needs the keys of a table."""
        del metadata
        self._check_plain()
        refuse_plain(".".join(self.name()))

    @property
    def maintenance(self) -> PlainMaintenance:  # type: ignore[override]  # it has the methods of encrypted tables
        """PyIceberg's expiry of snapshots; what else encrypted tables have is refused."""
        from icelock.table.maintenance.plain_maintenance import PlainMaintenance  # noqa: PLC0415 - not with every table that is loaded

        return PlainMaintenance(self)  # type: ignore[arg-type]  # a table whose io_for refuses

    def transaction(self) -> PlainTransaction:
        """Return a new transaction."""
        return PlainTransaction(self)

    def _changed(self, change: Callable[[Any], object]) -> ChangeResult:
        with self.transaction() as tx:
            change(tx)
            ids = [producer.snapshot_id for producer in tx._snapshot_producers]  # noqa: SLF001 - no other way to know them
        return ChangeResult.of_snapshots(found for found in map(self.metadata.snapshot_by_id, ids) if found is not None)


AnyTable = EncryptedTable | PlainTable


class PlainTransaction(Transaction):
    """PyIceberg's ``Transaction`` on a ``PlainTable``. Its writes begin with one of these methods."""

    _table: PlainTable
    _kept: frozenset[str] = frozenset()  # new files with rows that a delete left

    def update_snapshot(self, *args: Any, **kwargs: Any) -> UpdateSnapshot:
        """Return PyIceberg's builder of snapshots, after ``PlainTable.check_write``."""
        self._table.check_write()
        return super().update_snapshot(*args, **kwargs)

    def commit_transaction(self) -> Table:
        """Commit as PyIceberg does; files of a commit that was certainly not made are deleted: the table may be an encrypted one by now."""
        try:
            return super().commit_transaction()
        except (PolicyError, CommitFailedException, ValidationException):
            for producer in self._snapshot_producers:
                producer._clean_all_uncommitted()  # noqa: SLF001 - PyIceberg cleans up for its own two errors only
                # What PyIceberg wrote itself has the commit's number in its name: files that users add are theirs.
                added = [file.file_path for file in producer._added_data_files]  # noqa: SLF001 - likewise
                delete_files(self._table.io, [path for path in added if str(producer.commit_uuid) in path or path in self._kept])
            raise

    def append(self, df: Any, *args: Any, **kwargs: Any) -> None:
        """Append rows as PyIceberg does, after ``PlainTable.check_write``."""
        super().append(self._rows(df), *args, **kwargs)

    def overwrite(self, df: Any, overwrite_filter: BooleanExpression | str = ALWAYS_TRUE, *args: Any, **kwargs: Any) -> None:
        """Replace the rows that match a filter as PyIceberg does, after ``PlainTable.check_write``."""
        super().overwrite(self._rows(df), parse_filter(overwrite_filter), *args, **kwargs)

    def delete(
        self,
        delete_filter: str | BooleanExpression,
        snapshot_properties: Mapping[str, str] = _NONE,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        _isolation_operation: Operation | None = None,
    ) -> None:
        """Delete the rows that match a filter: files that have some of them are written again (``table.rows.plain_rewrite``).

        Raises:
            PolicyError: the table may not be written, or the filter does not fit it.
            ValidationException: when committed, if another writer changed what was deleted.
        """
        found = exact_filter(parse_filter(delete_filter), self.table_metadata.schema(), case_sensitive=case_sensitive)
        self._table.check_write()
        check_branch(self.table_metadata.refs, branch, table=".".join(self._table.name()))
        if branch is not None and self.table_metadata.snapshot_by_name(branch) is None:
            return
        scan = DataScan(table_metadata=self.table_metadata, io=self._table.io, row_filter=found)
        removed, kept = without_rows(scan if branch is None else scan.use_ref(branch), table=".".join(self._table.name()))
        if not removed:
            return
        self._kept |= {file.file_path for file in kept}
        with self.update_snapshot(dict(snapshot_properties), branch=branch).overwrite() as change:
            change._isolation_operation = _isolation_operation or Operation.DELETE  # noqa: SLF001 - as PyIceberg's own delete does
            change._operation = Operation.OVERWRITE if kept else Operation.DELETE  # noqa: SLF001 - likewise
            change.delete_by_predicate(found)
            for file in removed:
                change.delete_data_file(file)
            for file in kept:
                change.append_data_file(file)

    def upsert(self, df: Any, join_cols: list[str] | None = None, *args: Any, **kwargs: Any) -> UpsertResult:
        """Update and insert rows as PyIceberg does, after ``PlainTable.check_write``."""
        rows, schema = _whole(self._rows(df)), self.table_metadata.schema()
        for name in join_cols or ():
            find_column(schema, name, case_sensitive=True)
        return super().upsert(rows, join_cols, *args, **kwargs)

    def dynamic_partition_overwrite(self, df: Any, *args: Any, **kwargs: Any) -> None:
        """Replace partitions as PyIceberg does, after ``PlainTable.check_write``."""
        rows = _whole(self._rows(df))
        check_partitioned(self.table_metadata.spec())
        super().dynamic_partition_overwrite(rows, *args, **kwargs)

    def add_files(
        self,
        file_paths: list[str],
        snapshot_properties: Mapping[str, str] | None = None,
        *args: Any,
        reencrypt: bool = False,
        **kwargs: Any,
    ) -> None:
        """Add Parquet files as they are, as PyIceberg does, after ``PlainTable.check_write``."""
        if reencrypt:
            raise PolicyError(f"table {'.'.join(self._table.name())} is plain: leave reencrypt out, and its files are added as they are")
        super().add_files(file_paths, dict(snapshot_properties or {}), *args, **kwargs)

    def _rows(self, df: Any) -> pa.Table | pa.RecordBatchReader:
        """Return rows in the table's columns and types; those of a partitioned table are in memory."""
        self._table.check_write()
        schema = self.table_metadata.schema()
        target = write_schema(schema)
        rows = as_arrow(df, schema, downcast_ns=downcasts_ns())
        plan = InputPlan(rows.schema, target, downcast_ns=downcasts_ns())
        batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
        fitted = pa.RecordBatchReader.from_batches(target.arrow, map(plan.apply, batches))
        return fitted if isinstance(rows, pa.RecordBatchReader) and not self.table_metadata.spec().fields else fitted.read_all()


def _whole(rows: pa.Table | pa.RecordBatchReader) -> pa.Table:
    return rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows


def check_loaded(given: object) -> None:
    """Refuse, as a PolicyError, what is given for a table and is none, such as its name."""
    if not hasattr(given, "metadata"):
        load = f"catalog.load_table({given!r})" if isinstance(given, str) else "catalog.load_table(name)"
        raise PolicyError(f"expected a table, got a {type(given).__name__}: {load} loads one")
