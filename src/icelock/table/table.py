"""``Table`` and ``StaticTable``: PyIceberg's tables whose files are encrypted.

A table holds one version: its metadata, the metadata file, and storage access with that version's keys; ``refresh`` and commits replace
all three together. Methods that would hand encrypted files to a reader without keys are refused.

Not here: what a commit does (``table.transaction``), how tables are loaded (``catalog``).
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import StaticTable as IcebergStaticTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.typedef import Identifier

from icelock import properties as names
from icelock.errors import CommitError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.io.checked_io import CheckedFileIO
from icelock.io.file_io import EncryptingFileIO
from icelock.io.storage import open_storage
from icelock.kms.client import KmsClient
from icelock.metadata.entry_reader import checked_avro
from icelock.metadata.table_metadata import TableMetadataV3, is_encrypted, name_mapping_of, read_metadata
from icelock.table.commit.branches import ManageSnapshots
from icelock.table.described import DescribedTable
from icelock.table.encryption import TableEncryption
from icelock.table.guard.rules import check_metadata, refuse_plain, refuse_statistics
from icelock.table.named_updates import NamedUpdateSpec
from icelock.table.other_readers import NoOtherReaders
from icelock.table.read.readable import ReadableTable
from icelock.table.reported_changes import ReportedChanges
from icelock.table.transaction import EncryptedTransaction

if TYPE_CHECKING:
    from icelock.table.maintenance.maintenance_table import MaintenanceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """One version of a table, replaced as a whole."""

    metadata: TableMetadataV3  # of a static table it may be of version 1 or 2
    location: str
    io: EncryptingFileIO

    def is_before(self, other: _Version) -> bool:
        """Whether ``other`` was committed on top of this version."""
        return any(entry.metadata_file == self.location for entry in other.metadata.metadata_log)


class Table(DescribedTable, ReadableTable, NoOtherReaders, ReportedChanges, IcebergTable):  # type: ignore[misc]  # PyIceberg's return nothing
    """A table of format version 3, encrypted or plain; a plain one can only be read (there is no plaintext writer).

    Safe to share between threads: every scan and every transaction has one version, and versions only go forward.
    """

    is_new = False
    """Whether the catalog does not have the table yet."""

    def __init__(
        self,
        identifier: Identifier,
        metadata: TableMetadata,
        metadata_location: str,
        io: FileIO,
        catalog: Catalog,
        config: Mapping[str, str] | None = None,
        *,
        encryption: TableEncryption,
    ) -> None:
        self.encryption = encryption
        self.storage = io
        self._lock = threading.Lock()
        self._version = _Version(metadata=cast("TableMetadataV3", metadata), location=metadata_location, io=cast("EncryptingFileIO", io))
        super().__init__(identifier, metadata, metadata_location, io, catalog, dict(config or {}))
        self.io = self.encryption.wrap(io, metadata, table=".".join(identifier))  # the bare one of a plain table

    @property
    def metadata(self) -> TableMetadataV3:
        """The metadata of this version."""
        return self._version.metadata

    @metadata.setter
    def metadata(self, metadata: TableMetadata) -> None:
        self._version = replace(self._version, metadata=cast("TableMetadataV3", metadata))

    @property
    def metadata_location(self) -> str:
        """The metadata file."""
        return self._version.location

    @metadata_location.setter
    def metadata_location(self, location: str) -> None:
        self._version = replace(self._version, location=location)

    @property
    def io(self) -> EncryptingFileIO:
        """Storage access with the keys of this version."""
        return self._version.io

    @io.setter
    def io(self, io: FileIO) -> None:
        self._version = replace(self._version, io=cast("EncryptingFileIO", io))

    def at_one_version(self) -> Table:
        """Return another object for the present version, which other users of this one do not move on."""
        return copy.copy(self)

    def io_for(self, metadata: TableMetadata, *, unused_keks: tuple[EncryptedKey, ...] = ()) -> EncryptingFileIO:
        """Return storage access with the keys of ``metadata``; ``unused_keks`` were minted for a commit. Refused for a plain table."""
        if not is_encrypted(metadata):
            refuse_plain(".".join(self.name()))
        return self.encryption.wrap(self.storage, metadata, table=".".join(self.name()), unused_keks=unused_keks)  # type: ignore[return-value]

    def location_provider(self) -> LocationProvider:
        """Return what chooses the paths of new files; see ``TableEncryption.check_locations``."""
        return self.encryption.locations(self.metadata, table=".".join(self.name()))

    def transaction(self) -> EncryptedTransaction:
        """Return a transaction that stages changes and commits them together."""
        return EncryptedTransaction(self)

    def refresh(self) -> Table:
        """Load the current metadata and its keys from the catalog.

        Raises:
            CommitError: it is another table, which has its name now.
        """
        before = self._version
        fresh = self._loaded(self.catalog.load_table(self._identifier))
        with self._lock:
            # A thread that began later may have finished earlier.
            if self._version is before or not fresh.is_before(self._version):
                self._version = fresh
        return self

    def follow(self, fresh: IcebergTable) -> None:
        """Become the version of a table that the catalog loaded.

        Raises:
            CommitError: it is another table, which has its name now.
        """
        self._version = self._loaded(fresh)

    def advance(self, other: Table) -> None:
        """Become the version of another object of this table, unless this one is newer."""
        with self._lock:
            if not other._version.is_before(self._version):
                self._version = other._version

    def _loaded(self, fresh: IcebergTable) -> _Version:
        was, now = self.metadata.table_uuid, fresh.metadata.table_uuid
        if was != now:
            raise CommitError(
                f"table {'.'.join(self.name())} was dropped and created again meanwhile (uuid {was}, now {now}): "
                "nothing is committed to it; load the new table"
            )
        self.storage = getattr(fresh, "storage", self.storage)  # a REST server lends credentials anew
        return self._made(fresh.metadata, fresh.metadata_location)

    def _at_once(self) -> tuple[TableMetadata, FileIO]:
        version = self._version
        return version.metadata, version.io

    def _do_commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None:
        super()._do_commit(updates, requirements)
        self._version = self._made(self.metadata, self.metadata_location)

    def _made(self, metadata: TableMetadata, location: str) -> _Version:
        io = self.encryption.wrap(self.storage, metadata, table=".".join(self.name()))
        return _Version(metadata=cast("TableMetadataV3", metadata), location=location, io=cast("EncryptingFileIO", io))

    def _autocommit(self) -> EncryptedTransaction:
        return EncryptedTransaction(self, autocommit=True)

    def update_spec(self, case_sensitive: bool = True) -> UpdateSpec:
        """Return a builder of a new partition spec."""
        return NamedUpdateSpec(self._autocommit(), case_sensitive=case_sensitive)

    def update_schema(self, allow_incompatible_changes: bool = False, case_sensitive: bool = True) -> UpdateSchema:
        """Return a builder of a new schema."""
        name_mapping_of(self.metadata)  # refuses one that is not JSON
        return self._autocommit().update_schema(allow_incompatible_changes, case_sensitive)

    def update_sort_order(self, case_sensitive: bool = True) -> UpdateSortOrder:
        """Return a builder of a new sort order."""
        return self._autocommit().update_sort_order(case_sensitive)

    def manage_snapshots(self) -> ManageSnapshots:
        """Return a builder that creates and moves branches and tags."""
        return self._autocommit().manage_snapshots()

    def update_statistics(self) -> NoReturn:
        """Refused: statistics files are plain."""
        refuse_statistics(".".join(self.name()))

    @property
    def maintenance(self) -> MaintenanceTable:  # type: ignore[override]  # PyIceberg's would leave the keys behind
        """Compaction, expiry of snapshots, and other work that changes no row."""
        from icelock.table.maintenance.maintenance_table import MaintenanceTable  # noqa: PLC0415 - not with every table that is loaded

        return MaintenanceTable(self)


class StaticTable(Table, IcebergStaticTable):  # type: ignore[misc]  # likewise
    """A table read from its metadata file, without a catalog; it cannot be written or refreshed."""

    def refresh(self) -> NoReturn:
        """Refused: a static table is one version."""
        raise PolicyError("a static table cannot be refreshed: load the new metadata file")

    def transaction(self) -> NoReturn:
        """Refused: there is no catalog to commit to."""
        raise PolicyError(f"{self.metadata_location} was loaded as a static table: there is no catalog to commit to; load it through one")

    @property
    def maintenance(self) -> NoReturn:
        """Refused: there is no catalog to commit to."""
        self.transaction()

    def _autocommit(self) -> NoReturn:
        self.transaction()

    @classmethod
    def from_metadata(
        cls, metadata_location: str, properties: Mapping[str, str] | None = None, *, kms: KmsClient | None = None
    ) -> StaticTable:
        """Load a table from a metadata file, or from a table folder with a ``version-hint.text``.

        ``properties`` hold storage and KMS settings, as a catalog's would; ``kms`` is a client to use instead of settings.

        Raises:
            FormatError: the file is not table metadata of version 1 to 3.
            IntegrityError: the metadata has keys but no key id.
            PolicyError: misspelt settings, or encryption below version 3.
        """
        settings = dict(properties or {})
        encryption = TableEncryption.from_properties(settings, owner="StaticTable", kms=kms)
        if not metadata_location.endswith((".metadata.json", ".metadata.json.gz")):
            metadata_location = cls._metadata_location_from_version_hint(metadata_location, settings)
        stored = open_storage(settings, metadata_location).new_input(metadata_location)
        metadata = read_metadata(stored, names.limit(settings, names.LIMIT_METADATA_BYTES))
        check_metadata(metadata, location=metadata_location)
        io = open_storage(settings, metadata_location)
        return cls(
            identifier=("static-table", metadata_location),
            metadata=metadata,
            metadata_location=metadata_location,
            io=io if isinstance(metadata, TableMetadataV3) else CheckedFileIO(io, checked_avro),
            catalog=NoopCatalog("static-table"),
            encryption=encryption,
        )
