"""What every catalog of encrypted tables does, as a mixin over one of PyIceberg's.

Create: guard, then a trial wrap so that an unknown master key fails before anything is written. Load: metadata is parsed by
our model and checked. Commit: guard on the updates and on what would be committed; afterwards the catalog's answer is
compared with what was sent. v1 and v2 tables pass through to PyIceberg unchanged.

Not here: where a catalog keeps its rows (``catalog.sql``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyiceberg.catalog import MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder, assign_fresh_sort_order_ids

from icelock import properties as names
from icelock.arrow.write_options import file_format
from icelock.errors import KmsError, PolicyError
from icelock.metadata.table_metadata import TableMetadataV3, read_metadata
from icelock.table.encryption import TableEncryption
from icelock.table.guard import check_kept, check_keys, check_metadata, check_new_table, check_updates, is_encrypted
from icelock.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table import CommitTableResponse, StagedTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier

FORMAT_VERSION = "format-version"
VERSION: Final = 3
_TRIAL_LENGTH = 16
_TABLE_ONLY = ("encryption.", "kms.", "icelock.")


class EncryptedCatalog(MetastoreCatalog):
    """Mixin, first among the bases of a concrete catalog."""

    def __init__(self, name: str, **properties: str) -> None:
        self.encryption = TableEncryption.from_properties(_without_aliases(properties), owner=f"catalog {name}")
        super().__init__(name, **properties)

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
        io = load_file_io(properties=self.properties, location=metadata_location)
        return read_metadata(io.new_input(metadata_location))

    def check_register(self, metadata: TableMetadata, *, table: str, location: str) -> None:
        """Check the metadata file of a table that is to be registered: rules hold, every key resolves, the KMS opens it.

        Raises:
            PolicyError, IntegrityError: the metadata breaks a rule, or a key entry was changed.
            KeyUnavailableError: an entry is missing, no KMS is configured, or the KMS does not open a KEK.
        """
        check_metadata(metadata, location=location)
        check_keys(metadata, table=table)
        if not isinstance(metadata, TableMetadataV3) or not is_encrypted(metadata):
            return
        manager = self.encryption.manager(metadata, table=table)
        key_ids = [snapshot.key_id for snapshot in metadata.snapshots if snapshot.key_id is not None]
        for key_id in key_ids:
            manager.open_manifest_list_key(key_id)
        if not key_ids:
            self._trial_wrap(metadata.properties, table=table)

    def table_of(self, identifier: Identifier, metadata: TableMetadata, metadata_location: str) -> IcebergTable:
        """Return the table object of metadata that was checked: ours for version 3, PyIceberg's below."""
        io = self._load_file_io(_storage_properties(metadata.properties), metadata_location)
        if isinstance(metadata, TableMetadataV3):
            return Table(identifier, metadata, metadata_location, io, self, encryption=self.encryption)
        return IcebergTable(identifier, metadata, metadata_location, io, self)

    def check_create(self, identifier: str | Identifier, properties: Mapping[str, str]) -> dict[str, str]:
        """Check what a new table asks for and return its properties with the format version filled in.

        Raises:
            PolicyError: settings that cannot be.
            KeyUnavailableError: no KMS, or the KMS does not know the key (after one trial wrap).
        """
        table = ".".join(self.identifier_to_tuple(identifier))
        wanted = {key: str(value) for key, value in properties.items()}
        encrypted = names.ENCRYPTION_KEY_ID in wanted
        version = _version(wanted.get(FORMAT_VERSION, str(VERSION) if encrypted else "2"), table=table)
        check_new_table(wanted, version, table=table)
        if encrypted:
            check_file_format(wanted, table=table)
            self._trial_wrap(wanted, table=table)
        elif version == VERSION:
            msg = (
                f"table {table}: icelock makes format-version 3 tables encrypted only: set {names.ENCRYPTION_KEY_ID}, or make it with Java"
            )
            raise PolicyError(msg)
        return {**wanted, FORMAT_VERSION: str(version)}

    def new_metadata(
        self,
        *,
        schema: Schema | pa.Schema,
        location: str,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str],
    ) -> TableMetadataV3:
        """Return the first metadata of an encrypted table; it has no keys yet."""
        converted = self._convert_schema_if_needed(schema, VERSION)
        if not isinstance(schema, Schema):
            # An Arrow schema has no ids; specs and orders count its columns from 1.
            converted = assign_fresh_schema_ids(converted)
        converted.check_format_version_compatibility(VERSION)
        fresh = assign_fresh_schema_ids(converted)
        spec = assign_fresh_partition_spec_ids(partition_spec, converted, fresh)
        order = assign_fresh_sort_order_ids(sort_order, converted, fresh)
        return TableMetadataV3(
            location=location,
            last_column_id=fresh.highest_field_id,
            current_schema_id=fresh.schema_id,
            schemas=[fresh],
            partition_specs=[spec],
            default_spec_id=spec.spec_id,
            last_partition_id=spec.last_assigned_field_id,
            sort_orders=[order],
            default_sort_order_id=order.order_id,
            properties={key: value for key, value in properties.items() if key != FORMAT_VERSION},
        )

    def first_metadata_location(self, metadata: TableMetadata) -> str:
        """Return where the first metadata file of a new table goes."""
        return load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location()

    def commit_table(self, table: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> CommitTableResponse:
        """Commit updates, checked before and after.

        Raises:
            PolicyError: an update would break a rule of encrypted tables; nothing was committed.
            KeyUnavailableError: a key id would not resolve; nothing was committed.
            CommitFailedException: another writer was first.
            CommitError: the catalog did not keep what was committed.
        """
        name = ".".join(table.name())
        check_updates(table.metadata, updates, table=name)
        response = super().commit_table(table, requirements, updates)  # type: ignore[safe-super]  # the concrete catalog is next
        try:
            self._check_kept(response.metadata, table=name)
        except Exception as e:
            # The commit was made: the transaction must not delete its files.
            e.outcome_known = False  # type: ignore[attr-defined]
            raise
        return response

    def create_namespace(self, namespace: str | Identifier, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace.

        Raises:
            PolicyError: ``encryption.*``, ``kms.*`` or ``icelock.*`` properties, which mean nothing there.
        """
        check_namespace_properties(properties or {}, namespace=namespace)
        super().create_namespace(namespace, dict(properties or {}))  # type: ignore[safe-super]  # likewise

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Mapping[str, str] | None = None
    ) -> PropertiesUpdateSummary:
        """Set and remove properties of a namespace.

        Raises:
            PolicyError: see ``create_namespace``; removing is allowed.
        """
        check_namespace_properties(updates or {}, namespace=namespace)
        return super().update_namespace_properties(namespace, removals, dict(updates or {}))  # type: ignore[safe-super]  # likewise

    def create_table_transaction(self, *args: Any, **kwargs: Any) -> Any:
        """Stage a plain table as PyIceberg does; staged creation of encrypted ones is not in this version."""
        properties = kwargs.get("properties") or (args[5] if len(args) > 5 else {})  # noqa: PLR2004 - PyIceberg's sixth argument
        if any(key.startswith("encryption.") for key in properties) or str(properties.get(FORMAT_VERSION, "2")) == str(VERSION):
            self._refuse_staged(args[0] if args else kwargs.get("identifier", "?"))
        return super().create_table_transaction(*args, **kwargs)

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop the table and delete its files, reading its manifests with its keys.

        Raises:
            KeyUnavailableError, IntegrityError: the manifests cannot be read; nothing was dropped or deleted.
        """
        table = self.load_table(identifier)
        if not isinstance(table, Table):
            super().purge_table(identifier)
            return
        files = _all_files(table)
        self.drop_table(identifier)
        for location in files:
            table.storage.delete(location)

    def _update_and_stage_table(
        self, current_table: IcebergTable | None, table_identifier: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> StagedTable:
        # The table as it is now decides, not the copy that the caller holds.
        name = ".".join(table_identifier)
        if current_table is not None:
            check_updates(current_table.metadata, updates, table=name)
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        check_keys(staged.metadata, table=name)
        if is_encrypted(staged.metadata):
            check_file_format(staged.metadata.properties, table=name)
        return staged

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        ToOutputFile.table_metadata(metadata, io.new_output(metadata_path))

    def _load_file_io(self, properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        return load_file_io({**_storage_properties(self.properties), **(properties or {})}, location)

    def _check_kept(self, sent: TableMetadata, *, table: str) -> None:
        kept = self.load_table(table).metadata
        # Another writer may have gone on in between; then its metadata has our keys or the check at its commit failed.
        if not isinstance(kept, TableMetadataV3) or kept.last_sequence_number == getattr(sent, "last_sequence_number", None):
            check_kept(sent, kept, table=table, catalog=self.name)

    def _trial_wrap(self, properties: Mapping[str, str], *, table: str) -> None:
        key_id = properties[names.ENCRYPTION_KEY_ID]
        try:
            self.encryption.kms().wrap_key(self.encryption.entropy.random_bytes(_TRIAL_LENGTH), key_id)
        except KmsError as e:
            msg = f"table {table} cannot be made with master key {key_id!r}: {e}"
            raise KmsError(msg, kind=e.kind, key_id=key_id) from e

    def _refuse_staged(self, identifier: Any) -> NoReturn:
        msg = f"table {identifier}: staged creation of encrypted tables is not in this version; use create_table, then append"
        raise PolicyError(msg)


def check_namespace_properties(properties: Mapping[str, str], *, namespace: str | Identifier) -> None:
    """Refuse encryption settings on a namespace: tables do not inherit them, so they would promise what is not done.

    Raises:
        PolicyError: names the property.
    """
    for name in properties:
        if name.lower().startswith(_TABLE_ONLY):
            msg = f"namespace {namespace}: {name} has no effect on a namespace; set {names.ENCRYPTION_KEY_ID} on each table"
            raise PolicyError(msg)


def check_file_format(properties: Mapping[str, str], *, table: str) -> None:
    """Refuse file formats and Parquet options that an encrypted table cannot have.

    Raises:
        PolicyError: names the property.
    """
    try:
        file_format(properties)
    except PolicyError as e:
        msg = f"table {table}: {e}"
        raise PolicyError(msg) from e
    if properties.get("write.parquet.page-version", "v1").lower() != "v1":
        msg = f"table {table}: write.parquet.page-version must be v1: encrypted v2 pages do not cross between Java and Arrow"
        raise PolicyError(msg)


def _version(value: str, *, table: str) -> int:
    if value not in {"1", "2", "3"}:
        msg = f"table {table}: format-version is {value!r}; it must be 1, 2 or 3"
        raise PolicyError(msg)
    return int(value)


def _storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Leave out what the storage does not need: KMS settings stay with the catalog."""
    return {key: value for key, value in properties.items() if not key.startswith(("encryption.", "kms.", "py-kms-impl"))}


def _without_aliases(properties: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in properties.items() if value is not None}


def _all_files(table: Table) -> list[str]:
    locations: dict[str, None] = {}
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in locations:
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                    locations[entry.data_file.file_path] = None
            locations[manifest.manifest_path] = None
        locations[snapshot.manifest_list] = None
    for statistics in (*table.metadata.statistics, *table.metadata.partition_statistics):
        locations[statistics.statistics_path] = None
    for previous in table.metadata.metadata_log:
        locations[previous.metadata_file] = None
    locations[table.metadata_location] = None
    return list(locations)
