"""What is staged in a transaction: the metadata that its updates lead to, and storage access with the keys of that metadata.

A requirement on a branch or tag is about what was committed before the transaction, whatever is staged on top of it, and there is one for
each: PyIceberg keeps the first of all, so that a second branch would be written without a look at it.

Not here: commit and retries (``table.commit.protocol``), what is staged (``table.data_file_transaction``, ``table.transaction``).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table import ALWAYS_TRUE, DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE, Transaction
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.utils.config import Config

from icelock import properties as names
from icelock.arrow.write.writer import WriteContext
from icelock.errors import PolicyError
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.commit.new_files import check_new_files
from icelock.table.commit.protocol import CommitProtocol
from icelock.table.commit.update_snapshot import EncryptedUpdateSnapshot
from icelock.table.guard import check_updates
from icelock.table.scan import DataScan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate, UpdatesAndRequirements

    from icelock.format.encrypted_key import EncryptedKey
    from icelock.io.file_io import EncryptingFileIO
    from icelock.keys.entropy import Entropy
    from icelock.metadata.manifest import DataFile
    from icelock.table.table import Table

_RETENTION: Final = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")


class Staging(CommitProtocol):
    """A transaction's metadata, keys and storage access; they follow what is staged."""

    _table: Table

    def __init__(self, table: Table, autocommit: bool = False) -> None:
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
            raise PolicyError(f"table {self._name()}: encryption needs format version 3, not {metadata.format_version}")
        return metadata

    def current_io(self) -> EncryptingFileIO:
        """Return storage access with the keys of the staged metadata."""
        metadata = self.encrypted_metadata()
        if self._keyed_io is None or self._keyed_io[0] is not metadata:
            self._keyed_io = (metadata, self._table.io_for(metadata, spare=self._spare))
        return self._keyed_io[1]

    def prepare_kek(self, minted: tuple[EncryptedKey, ...] = ()) -> tuple[EncryptedKey, ...]:
        """Make sure that the KEK of this commit can be had, minting it (one wrap, one unwrap) when the table has no live one.

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

    def write_context(self) -> WriteContext:
        """Return what a writer of data files needs: no KMS client, no KEK."""
        metadata = self.encrypted_metadata()
        self._table.encryption.check_locations(metadata.properties, table=".".join(self._table.name()))
        io = self.current_io()
        return WriteContext(
            schema=metadata.schema(),
            spec=metadata.spec(),
            sort_order=metadata.sort_order(),
            location=metadata.location,
            properties=self._table.encryption.for_paths(metadata.properties),
            io=io.inner,
            data_key_length=names.data_key_length(metadata.properties),
            operation_id=str(uuid.uuid4()),
            downcast_ns=self._downcast_ns,
        )

    @property
    def _downcast_ns(self) -> bool:
        return bool(Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE))

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

    def _stage(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()) -> Transaction:
        check_updates(self.table_metadata, updates, table=self._name())
        refs = [requirement for requirement in requirements if isinstance(requirement, AssertRefSnapshotId)]
        for requirement in refs:
            requirement.validate(self.table_metadata)
        super()._stage(updates, tuple(requirement for requirement in requirements if requirement not in refs))
        self._requirements += self._as_committed(requirement.ref for requirement in refs)
        return self

    def _set_ref_snapshot(
        self,
        snapshot_id: int,
        ref_name: str,
        type: str,  # noqa: A002 - likewise
        max_ref_age_ms: int | None = None,
        max_snapshot_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
    ) -> UpdatesAndRequirements:
        # A ref that moves keeps what it says of how long it and its snapshots are kept; PyIceberg forgets it.
        kept = self.kept_settings(ref_name, type)
        return super()._set_ref_snapshot(
            snapshot_id,
            ref_name,
            type,
            max_ref_age_ms=max_ref_age_ms or kept["max_ref_age_ms"],
            max_snapshot_age_ms=max_snapshot_age_ms or kept["max_snapshot_age_ms"],
            min_snapshots_to_keep=min_snapshots_to_keep or kept["min_snapshots_to_keep"],
        )

    def kept_settings(self, ref_name: str, kind: str = SnapshotRefType.BRANCH) -> dict[str, int | None]:
        """Return what a ref of this kind says of retention, by PyIceberg's names; nothing if it is not there."""
        ref = self.table_metadata.refs.get(ref_name)
        known = ref if ref is not None and ref.snapshot_ref_type == kind else None
        return {name: getattr(known, name, None) for name in _RETENTION}

    def _as_committed(self, refs: Iterable[str]) -> tuple[AssertRefSnapshotId, ...]:
        """Return the requirements that refs are as they were committed, but for those that are there."""
        base = self._table.metadata
        # A table without snapshots has no ref but the main branch to be; that it has none yet says the same of all.
        wanted = dict.fromkeys(refs if base.snapshots else (MAIN_BRANCH for _ in refs))
        known = {requirement.ref for requirement in self._requirements if isinstance(requirement, AssertRefSnapshotId)}
        heads = {name: base.refs[name].snapshot_id if name in base.refs else None for name in wanted if name not in known}
        return tuple(AssertRefSnapshotId(ref=name, snapshot_id=head) for name, head in heads.items())

    def _scan(self, row_filter: str | BooleanExpression = ALWAYS_TRUE, case_sensitive: bool = True) -> DataScan:
        return DataScan(table_metadata=self.table_metadata, io=self.current_io(), row_filter=row_filter, case_sensitive=case_sensitive)

    def name_of_table(self) -> str:
        """Return the table's name, for messages."""
        return self._name()

    def check_new_files(self, files: Sequence[DataFile], branch: str | None) -> None:
        """Check that data files can be added to a branch as it is staged (``table.commit.new_files``).

        Raises:
            PolicyError: a file that is given twice, that is there, or that is another table's.
        """
        head = self.table_metadata.snapshot_by_name(branch or MAIN_BRANCH)
        check_new_files(self.table_metadata, files, head, self.current_io(), table=self._name())

    def _name(self) -> str:
        return ".".join(self._table.name())
