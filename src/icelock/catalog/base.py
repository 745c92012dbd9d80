"""``EncryptedCatalog``: the public methods of every catalog, and its rules, over a ``Store`` for each service.

A commit: 1 wait for the table's turn; 2 compare the current table with pins and with the caller's copy; 3 check the updates and the table
that they make; 4 let the service commit; 5 read the table back, and compare it with what was sent.

Not here: loading, dropping and renaming (``catalog.named``), creating (``catalog.create``), what a service does (``catalog.commit.store``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.catalog import LOCATION, MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, TableProperties
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, AssertCreate, update_table_metadata
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool

from icelock import properties as names
from icelock.catalog.commit.loadable import check_loadable
from icelock.catalog.commit.outcome import check_new, has_commit, lacks, not_there, still_needed, waits
from icelock.catalog.commit.store import Change
from icelock.catalog.commit.switch import make_encrypted, make_plain
from icelock.catalog.create import TableCreation, check_format_of_files, makes_version_3
from icelock.catalog.named import check_names
from icelock.errors import CommitError, IcelockError, KeyUnavailableError, PolicyError
from icelock.io.file_io import storage_of
from icelock.io.listing import delete_files
from icelock.keys.rewrap import keks_under
from icelock.metadata.table_metadata import TableMetadataV3, as_encrypted, is_encrypted
from icelock.metadata.updates import AddEncryptionKeyUpdate, MoveManifestListUpdate, apply_updates
from icelock.table.commit.protocol import DoubtfulConflictError, Stage, given_up
from icelock.table.guard.key_rotation import KeyRotation
from icelock.table.guard.plain_origin import PlainOrigin
from icelock.table.guard.rules import check_change, check_metadata, check_updates
from icelock.table.guard.snapshots import check_kept, check_keys, check_manifest_lists, check_sealing
from icelock.table.maintenance.removal.deletable import Home
from icelock.table.maintenance.removal.expire import check_gc
from icelock.table.maintenance.removal.plain_files import purgeable_with_plain
from icelock.table.table import Table

logger = logging.getLogger(__name__)

_METADATA_PATHS = (TableProperties.WRITE_METADATA_PATH, TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL)
_TABLE_ONLY = ("encryption.", "kms.", "icelock.")


class EncryptedCatalog(TableCreation):
    """First among the bases of a concrete catalog, before PyIceberg's; what its service does is in its ``Store``."""

    def check_register(self, metadata: TableMetadata, *, table: str, location: str) -> None:
        """Check the metadata file of a table that is to be registered: rules hold, every key resolves, and the KMS opens it.

        Raises:
            PolicyError: the metadata breaks a rule, its location is not possible, or it is a plain table's and may not be
                (``catalog.new_properties``).
            IntegrityError: a key entry was changed.
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

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Add a table whose metadata file is there; of an encrypted one every key must resolve and open.

        Raises:
            PolicyError: ``overwrite``, or the metadata breaks a rule.
            KeyUnavailableError, IntegrityError: a key is missing, cannot be opened, or was changed.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
            CommitFailedException: the catalog refused the table; nothing was made.
            CommitError: the same, or the table was made, but the catalog did not keep what is in the file.
            CommitStateUnknownException: the catalog did not say whether the table was made.
        """
        if overwrite:
            raise PolicyError(f"table {identifier}: register_table with overwrite is not supported; drop the table first (its files stay)")
        name = self.free_name(identifier)
        table = ".".join(name)
        metadata = self.read_metadata_file(metadata_location)
        self.check_register(metadata, table=table, location=metadata_location)
        io = self._load_file_io(location=metadata_location)
        self._store.forget(name)  # another client may have dropped a table of this name
        self._store.register(StagedTable(identifier=name, metadata=metadata, metadata_location=metadata_location, io=io, catalog=self))
        made = self.load_table(name)
        check_kept(metadata, made.metadata, table=table, catalog=self.name)
        return made

    def commit_table(self, table: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> CommitTableResponse:
        """Commit updates in the table's turn, checked before and after.

        Raises:
            PolicyError: an update would break a rule of encrypted tables, or adds rows to a plain table that may not take any
                (``catalog.new_properties``); nothing was committed.
            KeyUnavailableError: a key id would not resolve; nothing was committed.
            IntegrityError: the catalog's table is not what was pinned, is older than what was seen, or has other keys, or a new manifest
                list is not on storage as it was written; nothing was committed. Or a REST server changed a KEK with the commit, which the
                message says.
            CommitFailedException: a requirement is not met, another writer committed first, or the catalog refused; nothing was changed.
            TableAlreadyExistsError, NoSuchTableError, RESTError: the catalog refused; nothing was changed.
            CommitError: the catalog did not keep what was committed, or could not be asked; the commit was made.
            CommitStateUnknownException: the catalog did not say what became of the commit, and its table does not tell, or it says that the
                commit was made, and has a table without it; nothing was deleted.
        """
        new = any(isinstance(requirement, AssertCreate) for requirement in requirements)
        plain = not is_encrypted(table.metadata)
        if plain and not new and any(isinstance(update, AddSnapshotUpdate) for update in updates):
            known = self.pins.is_plain(table.name(), table.metadata.table_uuid)
            self.new_tables.check_plain_write(table=".".join(table.name()), known=known)
        try:
            metadata, location = self._commit(table, requirements, updates, new=new)
        except DoubtfulConflictError as e:
            if plain:  # PyIceberg's transaction would take it for a refusal, and delete what may be there
                raise given_up(e) from e.__cause__
            raise
        # Both were checked when they were made.
        response = CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)
        if new:
            self.pins.gone(table.name())  # there was no table of this name
            if plain and not is_encrypted(metadata):
                self.pins.made_plain(table.name(), metadata.table_uuid)  # which was allowed: see ``_check_first_commit``
        self._check_kept(response, table, updates, new=new)
        return response

    def _commit(
        self, table: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...], *, new: bool
    ) -> tuple[TableMetadata, str]:
        """Commit in the table's turn; return its metadata and metadata file. ``new``: the commit makes the table."""
        name = table.name()
        with self.turn(name) as turn:
            turn.stage = Stage.PREPARING
            base = turn.base(new=new)
            if base is None and not new:
                raise NoSuchTableError(f"table {'.'.join(name)} was dropped or renamed meanwhile: nothing is committed")
            now = table if base is None else base  # the table as it is now decides, not the copy that the caller holds
            if any(isinstance(update, MoveManifestListUpdate) for update in updates):
                self.check_replaces_snapshots(".".join(name))
            check_sealing(table.metadata, now.metadata, updates, table=".".join(name), same_keks=self.encryption.same_keks)
            check_updates(now.metadata, updates, table=".".join(name), rotation=_rotation(requirements))
            if base is None:
                self._check_first_commit(updates, table=".".join(name))
            self._check_manifest_lists(table, updates)
            staged = self._stage_commit(base, name, requirements, updates)
            if base is not None and staged.metadata is base.metadata:
                return base.metadata, base.metadata_location
            return turn.make(Change(base=base, staged=staged, requirements=requirements, updates=updates, config=now.config))

    def _stage_commit(
        self, base: IcebergTable | None, name: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> StagedTable:
        """Return the table that a commit makes of ``base``; nothing is written."""
        if base is not None:
            staged = self._stage_on(base, requirements, updates)
        elif makes_version_3(updates):
            staged = self.stage_first_commit(name, requirements, updates)
        else:
            staged = self._stage_first_plain(name, requirements, updates)
        before, table = None if base is None else base.metadata, ".".join(name)
        check_change(before, staged.metadata, table=table, rotation=_rotation(requirements))
        if is_encrypted(staged.metadata):
            check_format_of_files(staged.metadata.properties, table=table)
        check_loadable(before, staged.metadata, updates, location=staged.metadata_location, table=table)
        return staged

    def _stage_first_plain(self, name: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> StagedTable:
        """Do as PyIceberg does for a table that does not exist."""
        for requirement in requirements:
            requirement.validate(None)
        metadata = update_table_metadata(MetastoreCatalog._empty_table_metadata(), updates, enforce_validation=True)
        location = load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location()
        io = self._load_file_io(properties=metadata.properties, location=location)
        return StagedTable(identifier=name, metadata=metadata, metadata_location=location, io=io, catalog=self)

    def check_replaces_snapshots(self, table: str) -> None:
        """Refuse, as a PolicyError, to replace manifest lists where the service cannot do it; nothing is asked of the service."""
        if not self._store.replaces_snapshots:
            raise PolicyError(
                f"table {table} is of a REST server, whose protocol cannot replace the manifest list of a snapshot: nothing was changed. "
                "Use level 'data', and expire older snapshots and tags: then nothing needs an older key"
            )

    def check_converts(self, table: IcebergTable) -> None:
        """Refuse, as a PolicyError, to convert a plain table whose service cannot do it; nothing is asked of the service."""
        self._store.check_converts(table.name())

    def commit_conversion(self, plain: IcebergTable, empty: TableMetadataV3, updates: tuple[Any, ...]) -> TableMetadata:
        """Make an encrypted table of a plain one, in the table's turn; return its metadata (``table.maintenance.conversion.convert``).

        ``plain`` is the version that was converted, ``empty`` the encrypted table without snapshots; ``updates`` give it its keys and one.

        Raises:
            CommitFailedException: the table has moved on since, or the catalog refused; nothing was changed.
            Exception: as ``commit_table``.
        """
        return make_encrypted(self, plain, empty, updates)

    def commit_undo(self, encrypted: IcebergTable, plain: TableMetadata) -> TableMetadata:
        """Make a table that was converted what it was before, in its turn, and return its metadata.

        Who asks for it: ``table.maintenance.conversion.undo_conversion``. What this client knows of the table by having seen it encrypted
        is forgotten. ``encrypted`` is the version that is given up.

        Raises:
            CommitFailedException: the table has moved on since, or the catalog refused; nothing was changed.
            Exception: as ``commit_table``.
        """
        return make_plain(self, encrypted, plain)

    def create_namespace(self, namespace: str | Identifier, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace.

        Raises:
            PolicyError: ``encryption.*``, ``kms.*`` or ``icelock.*`` properties, which have no effect there, an invalid location, or a name
                that a folder cannot have.
        """
        self._check_namespace(properties or {}, namespace)
        check_names(self.identifier_to_tuple(namespace))
        self._iceberg.create_namespace(namespace, dict(properties or {}))

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Mapping[str, str] | None = None
    ) -> PropertiesUpdateSummary:
        """Set and remove properties of a namespace.

        Raises:
            PolicyError: see ``create_namespace``; removing is allowed.
        """
        self._check_namespace(updates or {}, namespace)
        summary: PropertiesUpdateSummary = self._iceberg.update_namespace_properties(namespace, removals, dict(updates or {}))
        return summary

    def _check_namespace(self, properties: Mapping[str, str], namespace: str | Identifier) -> None:
        for name in properties:
            if name.lower().startswith(_TABLE_ONLY):
                raise PolicyError(
                    f"namespace {namespace}: {name} has no effect on a namespace; set {names.ENCRYPTION_KEY_ID} on each table"
                )
        if LOCATION in properties:
            self._check_given_location(properties[LOCATION], what=f"{LOCATION} of namespace {namespace}")

    def purge_table(self, identifier: str | Identifier, *, drop_unreadable: bool = False) -> None:
        """Drop the table and delete its own files (``table.maintenance.removal.deletable``), reading its manifests with its keys.

        With ``drop_unreadable`` manifest lists and manifests that cannot be read, since a key or file is lost, do not keep it from that:
        files that only they name are left, and the log says where.

        Raises:
            KeyUnavailableError, IntegrityError: the manifests cannot be read, or a REST server names a metadata file that is not the
                table's; nothing was dropped or deleted.
            PolicyError: the table says ``gc.enabled=false``; the same.
            CommitStateUnknownException: the catalog says that the table was dropped, but has it, or does not say; nothing was deleted.
            OSError: the table is gone, but the storage did not delete all of its files; names those that are left.
        """
        table = self.load_table(identifier)
        check_gc(table.metadata, table=".".join(table.name()))
        unreadable: set[str] | None = set() if drop_unreadable else None
        try:
            files = purgeable_with_plain(table, unreadable=unreadable)
        except (IcelockError, OSError) as e:
            e.add_note("Nothing was dropped or deleted. If keys or files are lost for good: purge_table(..., drop_unreadable=True).")
            raise
        self._drop(table.name(), uuid=table.metadata.table_uuid)
        if unreadable:
            logger.warning(
                "table %s was purged, but %d of its manifest lists and manifests could not be read (%s); files that only they name are "
                "left, below %s or where the table's properties put data files",
                ".".join(table.name()),
                len(unreadable),
                ", ".join(sorted(unreadable)[:5]),
                table.location(),
            )
        left = delete_files(table.io, files)
        if left:
            raise OSError(f"table {'.'.join(table.name())} was dropped, but {len(left)} of its files are left: {', '.join(sorted(left))}")

    def _stage_on(self, current: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> StagedTable:
        """Do as PyIceberg does for a table that exists, without its deep copy of the metadata."""
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = apply_updates(current.metadata, updates, now_ms=self.encryption.clock, metadata_location=current.metadata_location)
        return self._staged_as(current, metadata)

    def _staged_as(self, current: IcebergTable, metadata: TableMetadata) -> StagedTable:
        """Return the next version of a table, with this metadata."""
        provider = self.encryption.locations(metadata, table=".".join(current.name()))
        location = provider.new_table_metadata_file_location(MetastoreCatalog._parse_metadata_version(current.metadata_location) + 1)
        same = all(metadata.properties.get(name) == current.metadata.properties.get(name) for name in _METADATA_PATHS)
        if same and metadata.location == current.metadata.location:
            # The catalog says where the table's metadata is; a location in a file that was edited does not move it.
            location = f"{current.metadata_location.rpartition('/')[0]}/{location.rpartition('/')[2]}"
        io = self._load_file_io(location=location)
        return StagedTable(identifier=current.name(), metadata=metadata, metadata_location=location, io=io, catalog=self)

    def _as_kept(self, sent: TableMetadata, kept: TableMetadata) -> TableMetadata:
        """Return what was sent; if the same KEKs were wrapped anew since, with the entries that they have now."""
        if not isinstance(sent, TableMetadataV3) or not isinstance(kept, TableMetadataV3):
            return sent
        theirs = {kek.key_id: kek for kek in keks_under(kept.encryption_keys, kept.properties.get(names.ENCRYPTION_KEY_ID))}
        keys = [theirs.get(key.key_id, key) for key in sent.encryption_keys]
        try:
            same = keys != sent.encryption_keys and self.encryption.same_keks(sent, kept)
        except KeyUnavailableError:
            same = False
        return sent.model_copy(update={"encryption_keys": keys}) if same else sent

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete metadata files that the log no longer has, if the table says so, and only those beside the file that the commit replaced.

        That file is the only one in the log that the catalog has named; other entries can come from anybody who can write to storage.
        """
        name, default = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED, TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT
        if not property_as_bool(metadata.properties, name, default) or not metadata.metadata_log:
            return
        home = Home(location=metadata.location, metadata_location=metadata.metadata_log[-1].metadata_file)
        origin = PlainOrigin.of(metadata.properties)
        kept = {*(entry.metadata_file for entry in metadata.metadata_log), None if origin is None else origin.location}
        gone = {entry.metadata_file for entry in base.metadata_log} - kept
        left = delete_files(io, home.owned_metadata(gone))
        if left:
            logger.warning("older metadata files could not be deleted: %s", ", ".join(sorted(left)))

    def _check_manifest_lists(self, table: IcebergTable, updates: tuple[Any, ...]) -> None:
        snapshots: list[Any] = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
        snapshots += [update for update in updates if isinstance(update, MoveManifestListUpdate)]  # it has a list and a key id, too
        encrypted = as_encrypted(table.metadata)
        if not snapshots or encrypted is None:
            return
        keys = [update.encryption_key for update in updates if isinstance(update, AddEncryptionKeyUpdate)]
        metadata = encrypted.model_copy(update={"encryption_keys": [*encrypted.encryption_keys, *keys]})
        self._check_new_lists(table.name(), metadata, table.io, snapshots)

    def _check_new_lists(self, name: Identifier, metadata: TableMetadata, io: FileIO, snapshots: Iterable[Any]) -> None:
        manager = self.encryption.manager(metadata, table=".".join(name))
        try:
            check_manifest_lists(snapshots, manager=manager, io=storage_of(io))
        except IcelockError:
            raise
        except Exception as e:
            raise CommitFailedException(
                f"table {'.'.join(name)}: a new manifest list cannot be checked ({e!r}); nothing was changed"
            ) from e

    def _check_kept(self, sent: CommitTableResponse, table: IcebergTable, updates: tuple[Any, ...], *, new: bool) -> None:
        """Read the table back and check that it has the commit; ``new``: the commit created it."""
        name, moves = ".".join(table.name()), self._store.replaces_snapshots
        failure: Exception | None = None
        for seconds in waits(sent.metadata.properties):
            time.sleep(seconds)
            try:
                kept = self.load_table(table.name())
                if has_commit(sent, kept, updates, before=table.metadata_location):
                    needed = self._as_kept(still_needed(sent, kept, moves=moves), kept.metadata)
                    check_kept(needed, kept.metadata, table=name, catalog=self.name, same_keks=self.encryption.same_keks)
                    if new and kept.metadata_location == sent.metadata_location:
                        check_new(kept.metadata, table=name, catalog=self.name, sent=sent.metadata)
                    without = lacks(sent, kept, updates, before=table.metadata_location, new=new, moves=moves)
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


def _rotation(requirements: tuple[Any, ...]) -> KeyRotation | None:
    return next((requirement for requirement in requirements if isinstance(requirement, KeyRotation)), None)
