"""What every catalog of encrypted tables does, as a mixin over one of PyIceberg's.

Load: metadata is parsed by our model and checked. Commit: guard on the updates and on what would be committed; afterwards the
catalog's answer is compared with what was sent. v1 and v2 tables pass through to PyIceberg unchanged.

Not here: making tables (``catalog.create``), where a catalog keeps its rows (``catalog.sql.catalog``).
"""

from __future__ import annotations

import logging
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

from pyiceberg.catalog import LOCATION, PropertiesUpdateSummary
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import StagedTable, TableProperties
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import AddSnapshotUpdate, AssertCreate
from pyiceberg.utils.properties import property_as_bool

from icelock import properties as names
from icelock.catalog.commit.loadable import check_loadable
from icelock.catalog.commit.missing import missing_part
from icelock.catalog.commit.outcome import has_commit, not_there, waits
from icelock.catalog.create import TableCreation, check_format_of_files, makes_version_3
from icelock.catalog.new_properties import NewProperties
from icelock.catalog.trust.metadata_cache import MetadataCache
from icelock.catalog.trust.new_made import check_new
from icelock.catalog.trust.pins_tables import PinnedTables
from icelock.errors import CommitError, IcelockError, PolicyError
from icelock.io.checked_io import CheckedFileIO
from icelock.io.file_io import storage_of
from icelock.io.limits import read_all
from icelock.io.listing import delete_files
from icelock.io.storage import open_storage
from icelock.metadata.checked_avro import checked_avro
from icelock.metadata.table_metadata import TableMetadataV3, as_encrypted, decode_metadata, is_encrypted
from icelock.metadata.updates import AddEncryptionKeyUpdate, apply_updates
from icelock.table.commit.protocol import DoubtfulConflictError, given_up
from icelock.table.encryption import TableEncryption
from icelock.table.guard import check_change, check_keys, check_manifest_lists, check_metadata, check_updates
from icelock.table.kept import check_kept
from icelock.table.maintenance.deletable import Home, purgeable
from icelock.table.maintenance.expire import check_gc
from icelock.table.plain import PlainTable
from icelock.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.io import FileIO
    from pyiceberg.table import CommitTableResponse
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier

logger = logging.getLogger(__name__)

_METADATA_PATHS = (TableProperties.WRITE_METADATA_PATH, TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL)
_TABLE_ONLY = ("encryption.", "kms.", "icelock.")


class EncryptedCatalog(PinnedTables, TableCreation):
    """Mixin, first among the bases of a concrete catalog."""

    # Whether each process that loads the catalog has one of its own.
    one_process: ClassVar[bool] = False
    # Whether a table's metadata is read from the file at its metadata_location, and not from an answer that says where that file is.
    reads_metadata_files: ClassVar[bool] = True

    def __init__(self, name: str, **properties: str) -> None:
        self.encryption = TableEncryption.from_properties(_without_aliases(properties), owner=f"catalog {name}")
        self._recent = MetadataCache()
        self._plain_tables = set()
        self._check_warehouse(name, properties)
        super().__init__(name, **properties)
        # After a REST server has had its say.
        self.new_tables = NewProperties.of(name, self.properties, built_in=self.table_defaults)

    def load_from_metadata(self, identifier: Identifier, metadata_location: str) -> IcebergTable:
        """Read and check a metadata file and return its table.

        Raises:
            FormatError: not table metadata of version 1 to 3.
            IntegrityError, PolicyError: see ``table.guard.check_metadata``.
        """
        metadata = self.read_metadata_file(metadata_location)
        check_metadata(metadata, location=metadata_location)
        return self.table_of(identifier, metadata, metadata_location)

    def read_metadata_file(self, metadata_location: str) -> TableMetadata:
        """Read and parse a metadata file; what it says is not checked.

        Raises:
            FormatError: not table metadata of version 1 to 3.
        """
        return self._read(metadata_location)[0]

    def _read(self, location: str) -> tuple[TableMetadata, bytes]:
        """Return what a metadata file holds, and the SHA-256 of its bytes."""
        limit = names.limit(self.properties, names.LIMIT_METADATA_BYTES)
        with self._load_file_io(location=location).new_input(location).open() as stream:
            data = read_all(stream, location, limit=limit, name=names.LIMIT_METADATA_BYTES)
        digest = sha256(data).digest()
        metadata = self._recent.get(digest)
        if metadata is None:
            metadata = decode_metadata(data, location=location, limit=limit)
            self._recent.put(digest, metadata)
        return metadata, digest

    def check_register(self, metadata: TableMetadata, *, table: str, location: str) -> None:
        """Check the metadata file of a table that is to be registered: rules hold, every key resolves, the KMS opens it.

        Raises:
            PolicyError, IntegrityError: the metadata breaks a rule, its place is none, or a key entry was changed; or it is a plain
                table's, where those are not made (``catalog.new_properties``).
            KeyUnavailableError: an entry is missing, no KMS is configured, or the KMS does not open a KEK.
        """
        self._check_given_location(location, what=f"the metadata file of table {table}")
        check_metadata(metadata, location=location)
        check_keys(metadata, table=table)
        encrypted = as_encrypted(metadata)
        if encrypted is None:
            self.new_tables.check_plain({}, table=table, pinned=self.pins.is_pinned_plain(table))
            return
        manager = self.encryption.manager(metadata, table=table)
        key_ids = [snapshot.key_id for snapshot in encrypted.snapshots if snapshot.key_id is not None]
        for key_id in key_ids:
            manager.open_manifest_list_key(key_id)
        if not key_ids:
            self._trial_wrap(metadata.properties, table=table)

    def table_of(self, identifier: Identifier, metadata: TableMetadata, metadata_location: str) -> IcebergTable:
        """Return the table object of metadata that was checked: ours for version 3, PyIceberg's in essence below."""
        # Not by the table's properties, as PyIceberg does: who writes metadata.json could send the client's credentials elsewhere.
        io = self._load_file_io(location=metadata_location)
        if isinstance(metadata, TableMetadataV3):
            return Table(identifier, metadata, metadata_location, io, self, encryption=self.encryption)
        return PlainTable(identifier, metadata, metadata_location, CheckedFileIO(io, checked_avro), self)

    def commit_table(self, table: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> CommitTableResponse:
        """Commit updates, checked before and after.

        Raises:
            PolicyError: an update would break a rule of encrypted tables, or brings rows to a plain table that takes none
                (``catalog.new_properties``); nothing was committed.
            KeyUnavailableError: a key id would not resolve; nothing was committed.
            IntegrityError: a new manifest list is not on storage as it was written; nothing was committed.
            CommitFailedException: another writer was first.
            CommitError: the catalog did not keep what was committed, or could not be asked; the commit was made.
            CommitStateUnknownException: the catalog says that the commit was made, but has a table without it; nothing was deleted.
        """
        name = ".".join(table.name())
        check_updates(table.metadata, updates, table=name)
        new = any(isinstance(requirement, AssertCreate) for requirement in requirements)
        plain = not is_encrypted(table.metadata)
        if plain and not new and any(isinstance(update, AddSnapshotUpdate) for update in updates):
            self.new_tables.check_plain_write(table=name, known=self.pins.is_plain(table.name(), table.metadata.table_uuid))
        self._check_manifest_lists(table, updates)
        try:
            response = super().commit_table(table, requirements, updates)  # type: ignore[safe-super]  # the concrete catalog is next
        except DoubtfulConflictError as e:
            if plain:  # PyIceberg's transaction would take it for a refusal, and delete what may be there
                raise given_up(e) from e.__cause__
            raise
        if new:
            self.pins.gone(table.name())  # there was no table of this name
            if plain and not is_encrypted(response.metadata):
                self.pins.made_plain(table.name(), response.metadata.table_uuid)  # which was allowed: see ``_check_first_commit``
        self._check_kept(response, table, updates, new=new)
        return response

    def create_namespace(self, namespace: str | Identifier, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace.

        Raises:
            PolicyError: ``encryption.*``, ``kms.*`` or ``icelock.*`` properties, which mean nothing there, or a location that is no place.
        """
        self._check_namespace(properties or {}, namespace)
        super().create_namespace(namespace, dict(properties or {}))  # type: ignore[safe-super]  # likewise

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Mapping[str, str] | None = None
    ) -> PropertiesUpdateSummary:
        """Set and remove properties of a namespace.

        Raises:
            PolicyError: see ``create_namespace``; removing is allowed.
        """
        self._check_namespace(updates or {}, namespace)
        return super().update_namespace_properties(namespace, removals, dict(updates or {}))  # type: ignore[safe-super]  # likewise

    def _check_namespace(self, properties: Mapping[str, str], namespace: str | Identifier) -> None:
        check_namespace_properties(properties, namespace=namespace)
        if LOCATION in properties:
            self._check_given_location(properties[LOCATION], what=f"{LOCATION} of namespace {namespace}")

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop the table and delete its own files (``table.maintenance.deletable``), reading its manifests with its keys.

        Raises:
            KeyUnavailableError, IntegrityError: the manifests cannot be read, or a REST server names a metadata file that is not the
                table's; nothing was dropped or deleted.
            PolicyError: the table says ``gc.enabled=false``; the same.
            CommitStateUnknownException: the catalog says that the table was dropped, but has it; nothing was deleted.
            OSError: the table is gone, but the storage did not delete all of its files; names those that are left.
        """
        table = self.load_table(identifier)
        check_gc(table.metadata, table=".".join(table.name()))
        files = purgeable(table)
        self.drop_table(identifier)
        self._check_gone(table)
        left = delete_files(table.io, files)
        if left:
            raise OSError(f"table {'.'.join(table.name())} was dropped, but {len(left)} of its files are left: {', '.join(sorted(left))}")

    def _check_gone(self, dropped: IcebergTable) -> None:
        """Look whether a table that was dropped is gone, before its files are deleted; another one of its name may be there."""
        name = ".".join(dropped.name())
        try:
            if self.load_table(dropped.name()).metadata.table_uuid != dropped.metadata.table_uuid:
                return
            why = "but still has it"
        except NoSuchTableError:
            return
        except Exception as e:  # noqa: BLE001 - whatever it was, nobody knows
            why = f"but does not say whether it still has it ({e})"
        raise CommitStateUnknownException(
            f"catalog {self.name} says that table {name} was dropped, {why}; none of its files was deleted: look, and purge it again"
        )

    def _update_and_stage_table(
        self, current_table: IcebergTable | None, table_identifier: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> StagedTable:
        # The table as it is now decides, not the copy that the caller holds.
        name = ".".join(table_identifier)
        if current_table is not None:
            check_updates(current_table.metadata, updates, table=name)
        else:
            self._check_first_commit(updates, table=name)
        if current_table is None and makes_version_3(updates):
            staged = self.stage_first_commit(table_identifier, requirements, updates)
        elif current_table is None:
            staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        else:
            staged = self._stage_on(current_table, requirements, updates)
        base = None if current_table is None else current_table.metadata
        check_change(base, staged.metadata, table=name)
        if is_encrypted(staged.metadata):
            check_format_of_files(staged.metadata.properties, table=name)
        check_loadable(base, staged.metadata, updates, location=staged.metadata_location, table=name)
        return staged

    def _stage_on(self, current: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> StagedTable:
        """Do as PyIceberg does for a table that exists, without its deep copy of the metadata."""
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = apply_updates(current.metadata, updates, now_ms=self.encryption.clock, metadata_location=current.metadata_location)
        provider = self.encryption.locations(metadata, table=".".join(current.name()))
        location = provider.new_table_metadata_file_location(self._parse_metadata_version(current.metadata_location) + 1)
        same = all(metadata.properties.get(name) == current.metadata.properties.get(name) for name in _METADATA_PATHS)
        if same and metadata.location == current.metadata.location:
            # Where the table's metadata lies is known from the catalog; a location in a file that was changed does not move it.
            location = f"{current.metadata_location.rpartition('/')[0]}/{location.rpartition('/')[2]}"
        io = self._load_file_io(location=location)
        return StagedTable(identifier=current.name(), metadata=metadata, metadata_location=location, io=io, catalog=self)

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        ToOutputFile.table_metadata(metadata, io.new_output(metadata_path))

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete metadata files that went from the log, where the table says so: those beside the file that the commit replaced.

        That file is the one name in the log that is the catalog's; the others may have been written by whoever can write to storage.
        """
        name, default = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED, TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT
        if not property_as_bool(metadata.properties, name, default) or not metadata.metadata_log:
            return
        home = Home(location=metadata.location, metadata_location=metadata.metadata_log[-1].metadata_file)
        gone = {entry.metadata_file for entry in base.metadata_log} - {entry.metadata_file for entry in metadata.metadata_log}
        left = delete_files(io, home.owned_metadata(gone))
        if left:
            logger.warning("older metadata files could not be deleted: %s", ", ".join(sorted(left)))

    def _load_file_io(self, properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        return open_storage({**without_kms(self.properties), **(properties or {})}, location)

    def _check_manifest_lists(self, table: IcebergTable, updates: tuple[Any, ...]) -> None:
        snapshots = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
        encrypted = as_encrypted(table.metadata)
        if not snapshots or encrypted is None:
            return
        keys = [update.encryption_key for update in updates if isinstance(update, AddEncryptionKeyUpdate)]
        metadata = encrypted.model_copy(update={"encryption_keys": [*encrypted.encryption_keys, *keys]})
        manager = self.encryption.manager(metadata, table=".".join(table.name()))
        try:
            check_manifest_lists(snapshots, manager=manager, io=storage_of(table.io))
        except IcelockError:
            raise
        except Exception as e:
            raise CommitFailedException(
                f"table {'.'.join(table.name())}: a new manifest list cannot be looked at ({e!r}); nothing was changed"
            ) from e

    def _check_kept(self, sent: CommitTableResponse, table: IcebergTable, updates: tuple[Any, ...], *, new: bool) -> None:
        """Read the table back; ``new`` says that the commit has made it."""
        name = ".".join(table.name())
        failure: Exception | None = None
        for seconds in waits(sent.metadata.properties):
            time.sleep(seconds)
            try:
                kept = self.load_table(table.name())
                if has_commit(sent, kept, updates, before=table.metadata_location):
                    check_kept(_still_needed(sent, kept), kept.metadata, table=name, catalog=self.name)
                    if new and kept.metadata_location == sent.metadata_location:
                        check_new(kept.metadata, table=name, catalog=self.name, sent=sent.metadata)
                    without = _without(sent, kept, updates, before=table.metadata_location, new=new)
                    if not without:
                        return
                    failure = not_there(name, catalog=self.name, found=f"{kept.metadata_location}, where {without}")
                else:
                    failure = not_there(name, catalog=self.name, found=kept.metadata_location)
            except IcelockError:
                raise
            except NoSuchTableError:
                if not new:
                    return  # dropped or renamed since
                failure = not_there(name, catalog=self.name, found="no table")
            except Exception as e:  # noqa: BLE001 - whatever it was, the next look may do
                failure = e
        if isinstance(failure, CommitStateUnknownException):
            raise failure
        raise CommitError(
            f"table {name}: the commit was made, but the catalog could not be asked whether it kept it: {failure}; do not repeat it"
        ) from failure


def _still_needed(sent: CommitTableResponse, kept: IcebergTable) -> TableMetadata:
    """Return what was sent; when another writer has gone on since, with keys only that a snapshot still there needs."""
    metadata = sent.metadata
    if not isinstance(metadata, TableMetadataV3) or kept.metadata_location == sent.metadata_location:
        return metadata
    there = {snapshot.snapshot_id for snapshot in kept.metadata.snapshots}
    needed = {snapshot.key_id for snapshot in metadata.snapshots if snapshot.snapshot_id in there}
    needed |= {key.encrypted_by_id for key in metadata.encryption_keys if key.key_id in needed}
    return metadata.model_copy(update={"encryption_keys": [key for key in metadata.encryption_keys if key.key_id in needed]})


def _without(sent: CommitTableResponse, kept: IcebergTable, updates: tuple[Any, ...], *, before: str, new: bool) -> str:
    """Say what of a commit a table that was read back is without. A REST server's answer may have been another writer's already."""
    log = sent.metadata.metadata_log
    followed = kept.metadata_location != sent.metadata_location or (not new and bool(log) and log[-1].metadata_file != before)
    return missing_part(updates, sent.metadata, kept.metadata, followed=followed, new=new)


def check_namespace_properties(properties: Mapping[str, str], *, namespace: str | Identifier) -> None:
    """Refuse encryption settings on a namespace: tables do not inherit them, so they would promise what is not done.

    Raises:
        PolicyError: names the property.
    """
    for name in properties:
        if name.lower().startswith(_TABLE_ONLY):
            raise PolicyError(f"namespace {namespace}: {name} has no effect on a namespace; set {names.ENCRYPTION_KEY_ID} on each table")


def without_kms(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what the storage does not need: KMS settings stay with the catalog."""
    left_out = ("encryption.", "kms.", "py-kms-impl", names.TABLE_DEFAULT_PREFIX, names.TABLE_OVERRIDE_PREFIX)
    return {key: value for key, value in properties.items() if not key.startswith(left_out)}


def _without_aliases(properties: Mapping[str, Any]) -> dict[str, str]:
    names.check_nested(properties)
    return {key: str(value) for key, value in properties.items() if value is not None}
