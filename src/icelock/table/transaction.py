"""Transactions on an encrypted table: append, overwrite, delete.

Order of a write: 1 the guard (may the table be written, is a KMS there, can its KEK be had) before any byte; 2 data files;
3 manifests; 4 the manifest list; 5 its key is sealed; 6 one commit with keys and snapshot. On a conflict 3 to 6 are done again on
fresh metadata; 2 as well for rows that another writer deleted or moved meanwhile.

Not here: commit and retries (``table.commit``), the producers (``table.producer``, ``table.row_delta``), deleting by a filter
(``table.delete``), the rules (``table.guard``).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyiceberg.table import ALWAYS_TRUE, DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE, Transaction, _parse_row_filter
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.utils.config import Config
from pyiceberg.utils.properties import property_as_bool

from icelock import properties as names
from icelock.arrow.write import DataFileWriter, WriteContext, check_input, write_data_files
from icelock.errors import PolicyError
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.commit import Cleanup, CommitProtocol
from icelock.table.conflicts import isolation_level
from icelock.table.delete import DeleteByFilter
from icelock.table.guard import check_updates
from icelock.table.row_delta import EncryptedUpdateSnapshot
from icelock.table.scan import DataScan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from icelock.format.encrypted_key import EncryptedKey
    from icelock.io.file_io import EncryptingFileIO
    from icelock.keys.entropy import Entropy
    from icelock.metadata.manifest import DataFile
    from icelock.table.table import Table


class EncryptedTransaction(CommitProtocol):
    """PyIceberg's ``Transaction`` on an encrypted table."""

    _table: Table

    def __init__(self, table: Table, autocommit: bool = False) -> None:  # noqa: FBT001, FBT002 - PyIceberg's signature
        super().__init__(table, autocommit)
        self._staged: tuple[Any, Any, TableMetadata] | None = None
        self._keyed_io: tuple[TableMetadataV3, EncryptingFileIO] | None = None
        self._spare: tuple[EncryptedKey, ...] = ()

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the staged updates applied; computed once for each stage."""
        if self._staged is None or self._staged[0] is not self._table.metadata or self._staged[1] is not self._updates:
            self._staged = (self._table.metadata, self._updates, super().table_metadata)
        return self._staged[2]

    def encrypted_metadata(self) -> TableMetadataV3:
        """Return the staged metadata, which is that of a v3 table."""
        metadata = self.table_metadata
        if not isinstance(metadata, TableMetadataV3):
            msg = f"table {self._name()}: encryption needs format version 3, not {metadata.format_version}"
            raise PolicyError(msg)
        return metadata

    def current_io(self) -> EncryptingFileIO:
        """Return storage access with the keys of the staged metadata."""
        metadata = self.encrypted_metadata()
        if self._keyed_io is None or self._keyed_io[0] is not metadata:
            self._keyed_io = (metadata, self._table.io_for(metadata, spare=self._spare))
        return self._keyed_io[1]

    def prepare_kek(self, minted: tuple[EncryptedKey, ...] = ()) -> tuple[EncryptedKey, ...]:
        """Make sure that the KEK of this commit can be had, minting it (one wrap) when the table has no live one.

        Args:
            minted: what an earlier call for the same write returned, in another process: it is used instead of a new one.

        Returns:
            The entry of the KEK that was minted for this commit, wrapped; nothing if the table has a live one.

        Raises:
            KeyUnavailableError: no KMS, or the KMS refused.
        """
        if minted:
            self._spare, self._keyed_io = minted, None
        fresh = self.current_io().manager.prepare_kek()
        if fresh:
            self._spare, self._keyed_io = fresh, None
        return self._spare

    def update_snapshot(
        self, snapshot_properties: Mapping[str, str] | None = None, branch: str | None = MAIN_BRANCH
    ) -> EncryptedUpdateSnapshot:
        """Return producers that write encrypted metadata files."""
        return EncryptedUpdateSnapshot(self, branch=branch, snapshot_properties=dict(snapshot_properties or {}))

    def append(
        self, df: pa.Table | pa.RecordBatchReader, snapshot_properties: Mapping[str, str] | None = None, branch: str | None = MAIN_BRANCH
    ) -> None:
        """Append rows in one snapshot.

        Raises:
            PolicyError: the rows do not fit the table; nothing was written.
            KeyUnavailableError: no KMS, or the master key cannot be had; nothing was written.
        """
        self._before_writing(df)
        self.append_data_files(self._write(df), snapshot_properties=snapshot_properties, branch=branch)

    def overwrite(
        self,
        df: pa.Table | pa.RecordBatchReader,
        overwrite_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: Mapping[str, str] | None = None,
        case_sensitive: bool = True,  # noqa: FBT001, FBT002
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Replace the rows that match the filter (default: all) in one snapshot.

        Files that keep some of their rows are rewritten or get a deletion vector, by ``write.delete.mode``, as in ``delete``.

        Raises:
            PolicyError: the rows do not fit the table; nothing was written.
            KeyUnavailableError: no KMS, or the master key cannot be had; nothing was written.
            ValidationException: when committed, if another writer changed what was replaced.
        """
        self._before_writing(df)
        row_filter = _parse_row_filter(overwrite_filter)
        isolation_level(self.table_metadata, Operation.OVERWRITE)
        with Cleanup(self), self.update_snapshot(snapshot_properties, branch).overwrite() as producer:
            producer._isolation_operation = Operation.OVERWRITE  # noqa: SLF001 - PyIceberg's own way to say it
            producer.delete_by_predicate(row_filter, case_sensitive)
            change = DeleteByFilter(self, row_filter, case_sensitive=case_sensitive, branch=branch, follow_rows=False)
            change.resolve()
            producer.apply(change)
            files = self._write(df)
            self.track(*(file.file_path for file in files))
            for file in files:
                producer.append_data_file(file)

    def append_data_files(
        self, files: Sequence[DataFile], *, snapshot_properties: Mapping[str, str] | None = None, branch: str | None = MAIN_BRANCH
    ) -> None:
        """Append encrypted data files that were written for this table; they are deleted if the commit certainly fails."""
        with Cleanup(self):
            self.track(*(file.file_path for file in files))
            update = self.update_snapshot(snapshot_properties, branch)
            merge = property_as_bool(self.table_metadata.properties, "commit.manifest-merge.enabled", default=False)
            with update.merge_append() if merge else update.fast_append() as producer:
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
        """Replace data files by others in one snapshot; deletion vectors of the replaced ones go with them."""
        with Cleanup(self):
            self.track(*(file.file_path for file in files))
            with self.update_snapshot(snapshot_properties, branch).overwrite() as producer:
                producer._isolation_operation = Operation.OVERWRITE  # noqa: SLF001 - PyIceberg's own way to say it
                producer.delete_by_predicate(_parse_row_filter(overwrite_filter))
                for file in replaced:
                    producer.delete_data_file(file)
                for file in files:
                    producer.append_data_file(file)

    def files_to_replace(self, overwrite_filter: BooleanExpression | str = ALWAYS_TRUE, branch: str | None = MAIN_BRANCH) -> list[DataFile]:
        """Return the data files all of whose live rows match the filter.

        Raises:
            PolicyError: only some rows of a file do.
        """
        scan = self.branch_scan(_parse_row_filter(overwrite_filter), case_sensitive=True, branch=branch)
        matched, cut = ([], []) if scan is None else scan.whole_files()
        if cut:
            msg = f"table {self._name()}: the filter matches some rows of {cut[0].file_path} and not others: use overwrite or delete"
            raise PolicyError(msg)
        return matched

    def delete(
        self,
        delete_filter: str | BooleanExpression,
        snapshot_properties: Mapping[str, str] | None = None,
        case_sensitive: bool = True,  # noqa: FBT001, FBT002
        branch: str | None = MAIN_BRANCH,
        _isolation_operation: Any = None,
    ) -> None:
        """Delete the rows that match, in one snapshot; none when no row does.

        Files all of whose rows match go by metadata alone. Of others the rest is rewritten (``write.delete.mode=copy-on-write``,
        the default) or a deletion vector is added (``merge-on-read``). Rows that the filter leaves undecided stay.

        Raises:
            PolicyError: settings or columns that do not allow it; nothing was changed.
            KeyUnavailableError: no KMS, or the master key cannot be had; nothing was written.
            ValidationException: when committed, under isolation level serializable, if another writer added rows that may match.
        """
        self.prepare_kek()
        row_filter = _parse_row_filter(delete_filter)
        operation = _isolation_operation or Operation.DELETE
        isolation_level(self.table_metadata, operation)
        with Cleanup(self), self.update_snapshot(snapshot_properties, branch).overwrite() as producer:
            producer._isolation_operation = operation  # noqa: SLF001 - PyIceberg's own way to say it
            producer.delete_by_predicate(row_filter, case_sensitive)
            change = DeleteByFilter(self, row_filter, case_sensitive=case_sensitive, branch=branch, follow_rows=True)
            producer.apply(change, pure_delete=True)

    def dynamic_partition_overwrite(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: not in this version."""
        del args, kwargs
        self._refuse("dynamic partition overwrite")

    def upsert(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: not in this version."""
        del args, kwargs
        self._refuse("upsert")

    def add_files(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: the files would be plain."""
        del args, kwargs
        msg = f"table {self._name()} is encrypted: add_files would take plain files into it; read them and append their rows"
        raise PolicyError(msg)

    def _stage(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()) -> Transaction:
        check_updates(self.table_metadata, updates, table=self._name())
        return super()._stage(updates, requirements)

    def _scan(self, row_filter: str | BooleanExpression = ALWAYS_TRUE, case_sensitive: bool = True) -> DataScan:  # noqa: FBT001, FBT002
        return DataScan(table_metadata=self.table_metadata, io=self.current_io(), row_filter=row_filter, case_sensitive=case_sensitive)

    def _before_writing(self, df: Any) -> None:
        """Refuse what can be refused before the first byte."""
        if not isinstance(df, (pa.Table, pa.RecordBatchReader)):
            msg = f"expected a pyarrow Table or RecordBatchReader, got {type(df).__name__}"
            raise PolicyError(msg)
        context = self.write_context()
        check_input(context.schema, df.schema, downcast_ns=context.downcast_ns)
        # Its constructor checks settings and makes no file.
        DataFileWriter(context, task_id=0, entropy=self.entropy)
        self.prepare_kek()

    def write_context(self) -> WriteContext:
        """Return what a writer of data files needs: no KMS client, no KEK."""
        metadata = self.encrypted_metadata()
        io = self.current_io()
        return WriteContext(
            schema=metadata.schema(),
            spec=metadata.spec(),
            sort_order=metadata.sort_order(),
            location=metadata.location,
            properties=metadata.properties,
            io=io.inner,
            data_key_length=names.data_key_length(metadata.properties),
            operation_id=str(uuid.uuid4()),
            downcast_ns=bool(Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE)),
        )

    def _write(self, df: pa.Table | pa.RecordBatchReader) -> list[DataFile]:
        batches = df.to_batches() if isinstance(df, pa.Table) else df
        return write_data_files(self.write_context(), batches, task_id=0, entropy=self.entropy)

    def branch_scan(self, row_filter: BooleanExpression, *, case_sensitive: bool, branch: str | None) -> DataScan | None:
        """Return a scan of a branch as it is staged; None when there is no such branch yet. Branch None is the main branch."""
        scan = self._scan(row_filter, case_sensitive)
        if branch is None:
            return scan
        if branch in self.table_metadata.refs:
            return scan.use_ref(branch)
        return scan if branch == MAIN_BRANCH else None

    @property
    def entropy(self) -> Entropy:
        """Where keys come from."""
        return self._table.encryption.entropy

    def new_data_location(self, name: str) -> str:
        """Return where a file that belongs to no one partition goes among the table's data."""
        return self._table.location_provider().new_data_location(name)

    def _name(self) -> str:
        return ".".join(self._table.name())

    def _refuse(self, what: str) -> NoReturn:
        msg = f"table {self._name()} is encrypted: {what} is not supported in this version; nothing was changed"
        raise PolicyError(msg)
