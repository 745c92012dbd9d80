"""What is staged in a transaction: updates, requirements, snapshots, new files and keys, on one version of the table.

Metadata and storage access follow what is staged. A requirement on a branch or tag is about what was committed before the transaction,
whatever is staged on top of it, and each ref gets one of its own: PyIceberg keeps only the first, so a second branch would be written
without a check.

Data files that are given to a commit must be new files of this table: a file that is listed twice has its rows twice. Files that a
``DataFileWriter`` has just written are, and are not checked: their names and keys are unique. All others, such as files of a scan's plan or
described by the caller, must lie where the table's files do, since a file of another table has that table's field ids and is deleted with
it; and the branch must not have them. Java checks for duplicates only in ``add_files``, and keeps one of two equal files of a commit.

Not here: partitions of given files (``table.commit.given_partition``), the commit (``table.commit.protocol``), what stages
(``table.data_file_transaction``, ``table.transaction``), the files' keys (``metadata.manifest_writer``), plain files
(``table.rows.plain_files``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, TableRequirement, TableUpdate

from icelock import properties as names
from icelock.arrow.write.context import ROW_GROUP_ROWS, WriteContext
from icelock.arrow.write.given import downcasts_ns
from icelock.errors import PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.io.file_io import EncryptingFileIO
from icelock.io.listing import delete_files
from icelock.keys.entropy import Entropy
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.metadata.updates import apply_updates
from icelock.plan.partition_set import PartitionSet
from icelock.table.commit.conflicts import check_same_names, check_still_fits
from icelock.table.commit.given_partition import check_partitions
from icelock.table.guard.rules import check_updates
from icelock.table.read.scan import DataScan
from icelock.table.state import OpenTable

_RETENTION: Final = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")


_DATA_FOLDERS: Final = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")


@dataclass(eq=False)
class Staged:
    """What a transaction has staged.

    Args:
        table: a copy of the transaction's own, which no other thread moves on.
        updates: committed together; those of a snapshot are rebuilt when the table has moved on.
        requirements: what must hold of the table that they are committed to.
        producers: of the staged snapshots, ``EncryptedProducer``.
        new_files: data files that were written for the commit, and are deleted if it certainly fails.
        unused_keks: minted for the commit, and not in the table's metadata yet.
        expected_head: the snapshot that a branch must have.
        cannot_lose: whether snapshots are made while no other writer can commit.
        checks: what must hold of a later version of the table that the commit is made on; each raises an error of icelock's.
    """

    table: OpenTable
    updates: tuple[TableUpdate, ...] = ()
    requirements: tuple[TableRequirement, ...] = ()
    producers: list[Any] = field(default_factory=list)
    new_files: list[str] = field(default_factory=list)
    unused_keks: tuple[EncryptedKey, ...] = ()
    expected_head: tuple[str, int | None] | None = None
    cannot_lose: bool = False
    checks: list[Callable[[TableMetadata], None]] = field(default_factory=list)
    _applied: tuple[Any, Any, TableMetadataV3] | None = field(default=None, init=False)
    _keyed_io: tuple[TableMetadataV3, EncryptingFileIO] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The table's name."""
        return ".".join(self.table.name())

    @property
    def committed(self) -> OpenTable:
        """The version that this is staged on."""
        return self.table

    @property
    def metadata(self) -> TableMetadataV3:
        """The table's metadata with the staged updates applied; computed once for each stage."""
        base = self.table.metadata
        if self._applied is None or self._applied[0] is not base or self._applied[1] is not self.updates:
            applied = apply_updates(base, self.updates, now_ms=self.table.encryption.clock)
            self._applied = (base, self.updates, cast("TableMetadataV3", applied))
        return self._applied[2]

    @property
    def io(self) -> EncryptingFileIO:
        """Storage access with the keys of the staged metadata."""
        metadata = self.metadata
        if self._keyed_io is None or self._keyed_io[0] is not metadata:
            self._keyed_io = (metadata, self.table.io_for(metadata, unused_keks=self.unused_keks))
        return self._keyed_io[1]

    @property
    def locations(self) -> LocationProvider:
        """Where new files go."""
        return self.table.location_provider()

    @property
    def entropy(self) -> Entropy:
        """Where keys come from."""
        return self.table.encryption.entropy

    @property
    def downcast_ns(self) -> bool:
        """Whether the client's settings round nanoseconds down to microseconds."""
        return downcasts_ns()

    def now_ms(self) -> int:
        """Return the time."""
        return self.table.encryption.clock()

    def prepare_kek(self, minted: tuple[EncryptedKey, ...] = ()) -> tuple[EncryptedKey, ...]:
        """Make sure that the KEK of this commit is available, minting it (one wrap, one unwrap) if the table has no live one.

        Returns the wrapped entries of KEKs minted for this commit; ``minted`` is what another process got for the same write, to reuse.

        Raises:
            KeyUnavailableError: no KMS, or the KMS refused.
        """
        self._use(minted)
        self._use(self.io.manager.prepare_kek())
        return self.unused_keks

    def _use(self, keks: tuple[EncryptedKey, ...]) -> None:
        if keks:
            self.unused_keks, self._keyed_io = keks, None

    def write_context(self) -> WriteContext:
        """Return what a writer of data files needs: no KMS client, no KEK."""
        metadata, encryption = self.metadata, self.table.encryption
        encryption.check_locations(metadata.properties, table=self.name)
        return WriteContext(
            schema=metadata.schema(),
            spec=metadata.spec(),
            sort_order=metadata.sort_order(),
            location=metadata.location,
            properties=encryption.for_paths(metadata.properties),
            io=self.io.inner,
            data_key_length=names.data_key_length(metadata.properties),
            operation_id=str(uuid.uuid4()),
            row_group_rows=ROW_GROUP_ROWS,
            downcast_ns=self.downcast_ns,
        )

    def branch_scan(self, row_filter: BooleanExpression, *, case_sensitive: bool, branch: str | None) -> DataScan | None:
        """Return a scan of a branch with the staged changes; None if there is no such branch. Branch None is the main branch."""
        scan = DataScan(table_metadata=self.metadata, io=self.io, row_filter=row_filter, case_sensitive=case_sensitive)
        if branch is None:
            return scan
        if branch in self.metadata.refs:
            return scan.use_ref(branch)
        return scan if branch == MAIN_BRANCH else None

    def check_new_files(self, files: Sequence[DataFile], branch: str | None) -> None:
        """Refuse files that are given twice, have no partition of this table, are not its, or are in the branch with its staged changes."""
        check_given_once(files, table=self.name)
        given = [file for file in files if not is_fresh(file)]
        for file in given:
            check_place(self.metadata, file, table=self.name)
        check_partitions(self.metadata, given, table=self.name)
        check_not_there(self.metadata, given, self.metadata.snapshot_by_name(branch or MAIN_BRANCH), self.io, table=self.name)

    def stage(self, updates: tuple[TableUpdate, ...], requirements: Iterable[TableRequirement] = ()) -> None:
        """Stage updates, as PyIceberg's transaction does, and check them.

        Raises:
            PolicyError: an update would break a rule of encrypted tables.
            CommitFailedException: a requirement does not hold for what is staged.
        """
        check_updates(self.metadata, updates, table=self.name)
        requirements = tuple(requirements)
        for requirement in requirements:
            requirement.validate(self.metadata)
        self.updates += updates
        known = {AssertRefSnapshotId, *map(type, self.requirements)}
        self.requirements += tuple(requirement for requirement in requirements if type(requirement) not in known)
        self._require_as_committed(requirement.ref for requirement in requirements if isinstance(requirement, AssertRefSnapshotId))

    def _require_as_committed(self, refs: Iterable[str]) -> None:
        """Require that refs are as they were committed, unless that is required already."""
        base = self.table.metadata
        # A table without snapshots has no refs: it suffices to require that it has no main branch yet.
        wanted = dict.fromkeys(refs if base.snapshots else (MAIN_BRANCH for _ in refs))
        known = {requirement.ref for requirement in self.requirements if isinstance(requirement, AssertRefSnapshotId)}
        for name in wanted:
            if name not in known:
                head = base.refs[name].snapshot_id if name in base.refs else None
                self.requirements += (AssertRefSnapshotId(ref=name, snapshot_id=head),)

    def retention_of(self, ref_name: str, kind: str = SnapshotRefType.BRANCH) -> dict[str, int | None]:
        """Return the retention settings of a ref of this kind, by PyIceberg's names; each None if there is no such ref."""
        ref = self.metadata.refs.get(ref_name)
        known = ref if ref is not None and ref.snapshot_ref_type == kind else None
        return {name: getattr(known, name, None) for name in _RETENTION}

    def catch_up(self) -> bool:
        """Follow the table to its catalog's version; False if there is no other one, or something is staged on this one."""
        if self.updates:
            return False
        fresh = self.table.catalog.load_table(self.table.name())
        if fresh.metadata_location == self.table.metadata_location:
            return False
        self.rebase(fresh)
        return True

    def rebase(self, fresh: IcebergTable) -> None:
        """Go on from a later version of the table, on which what was planned and written must mean the same.

        Raises:
            CommitError: it is another table, which has the name now.
            ValidationException: see ``still_fits``.
        """
        planned_on = self.table.metadata
        self.table.follow(fresh)
        self._check_head()
        check_still_fits(planned_on, self.table.metadata, table=self.name)
        for producer in self.producers:
            named = producer.named_columns(planned_on.schema())
            check_same_names(planned_on.schema(), self.table.metadata.schema(), named, table=self.name)

    def expect_head(self, branch: str, snapshot_id: int | None) -> None:
        """Require, now and when committed, that a branch still has the snapshot that its new rows were read from."""
        self.expected_head = branch, snapshot_id
        self._check_head()

    def _check_head(self) -> None:
        if self.expected_head is None:
            return
        branch, wanted = self.expected_head
        ref = self.table.metadata.refs.get(branch)
        found = None if ref is None else ref.snapshot_id
        if found != wanted:
            raise ValidationException(
                f"conflict: the rows that replace table {self.name} were read from its snapshot {wanted}, and another writer committed "
                f"snapshot {found}; read the table again and retry"
            )

    def drop_idle_producers(self) -> None:
        """Forget deletes that found nothing to do: the snapshots of the others tell whether a lost commit was made."""
        if self.updates:
            self.producers = [producer for producer in self.producers if not producer.idle]

    def track(self, *locations: str) -> None:
        """Remember files that were written for this transaction: they are deleted if its commit certainly fails."""
        self.new_files.extend(locations)

    def discard(self, *, files: int = 0, producers: int = 0) -> None:
        """Delete what was written, except for the first ``files`` files and ``producers`` snapshots."""
        for producer in self.producers[producers:]:
            producer._clean_all_uncommitted()
        del self.producers[producers:]
        delete_files(self.table.storage, self.new_files[files:])
        del self.new_files[files:]

    @contextmanager
    def discarding_on_error(self) -> Iterator[None]:
        """Delete what is written inside the ``with`` block, and forget its snapshots, if staging fails."""
        files, producers = len(self.new_files), len(self.producers)
        try:
            yield
        except BaseException:
            self.discard(files=files, producers=producers)
            raise


def is_fresh(file: DataFile) -> bool:
    """Whether a file was just written for a commit, and is in no commit yet."""
    return bool(getattr(file, "fresh", False))


def check_given_once(files: Iterable[DataFile], *, table: str) -> None:
    """Refuse a file that is given twice."""
    seen: set[str] = set()
    for file in files:
        if file.file_path in seen:
            raise PolicyError(f"table {table}: {file.file_path} is given twice, so its rows would be duplicated: give it once")
        seen.add(file.file_path)


def check_place(metadata: TableMetadata, file: DataFile, *, table: str) -> None:
    """Refuse a file that lies neither below the table's location nor where its properties put data files."""
    folders = [metadata.location, *(metadata.properties[name] for name in _DATA_FOLDERS if name in metadata.properties)]
    if not any(file.file_path.startswith(f"{folder.rstrip('/')}/") for folder in folders):
        raise PolicyError(
            f"table {table}: {file.file_path} is not at the table's location ({metadata.location}), so it belongs to another table and has "
            "its field ids and key: read its rows and append them"
        )


def check_not_there(metadata: TableMetadata, files: Sequence[DataFile], head: Snapshot | None, io: FileIO, *, table: str) -> None:
    """Refuse files that a branch has; manifests whose partitions rule them out are not read."""
    if not files or head is None:
        return
    partitions = PartitionSet()
    for file in files:
        partitions.add(file)
    wanted = {file.file_path for file in files}
    for manifest in head.manifests(io):
        if manifest.content != ManifestContent.DATA or not partitions.may_hold(manifest, metadata):
            continue
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            if entry.data_file.file_path in wanted:
                raise PolicyError(f"table {table} has {entry.data_file.file_path} already, so its rows would be duplicated: leave it out")
