"""Creating tables: checks before anything is written, the first metadata, and transactions that create or replace a table in one commit.

An encrypted table starts from metadata of version 3 without keys. A transaction that creates one (``table.new_table``) commits at once
all updates that lead to it, and what was staged; nothing is visible before. Replacing keeps the table (``table.new_table``).

Not here: how a service adds a table (``catalog.commit.store``), which tables may be plain (``catalog.new_properties``).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import StagedTable
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder, assign_fresh_sort_order_ids
from pyiceberg.table.update import AssignUUIDUpdate, SetPropertiesUpdate, UpgradeFormatVersionUpdate
from pyiceberg.typedef import Identifier

from icelock import properties as names
from icelock import telemetry
from icelock.arrow.write.options import check_file_format
from icelock.catalog.commit.loadable import check_form
from icelock.catalog.commit.store import TableForm
from icelock.catalog.named import NamedTables, check_names
from icelock.errors import KeyUnavailableError, PolicyError
from icelock.io.file_io import storage_of
from icelock.kms import ask
from icelock.metadata.canonical_json import canonical_json
from icelock.metadata.fresh_ids import fresh_schema, fresh_spec
from icelock.metadata.table_metadata import TableMetadataV3, is_encrypted, parse_metadata
from icelock.metadata.updates import apply_updates
from icelock.table.guard.plain_origin import check_origin_set
from icelock.table.guard.rules import check_new_table
from icelock.table.new_table import CreateTransaction, UncommittedTable, stage_replacement
from icelock.table.table import Table
from icelock.table.transaction import EncryptedTransaction

FORMAT_VERSION: Final = names.FORMAT_VERSION
_TRIAL_LENGTH: Final = 16


class TableCreation(NamedTables):
    """Base of ``catalog.base.EncryptedCatalog``."""

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create a table, encrypted under the master key of ``encryption.key-id``, or of the catalog's ``table-default.encryption.key-id``.

        Without either it would be plain: see ``catalog.new_properties``.

        Raises:
            PolicyError: settings, column types or a location that are not possible; nothing was created.
            KeyUnavailableError: no KMS, or the KMS does not know the key; nothing was created.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
            CommitFailedException, CommitError: the catalog refused the table, or keeps no encrypted tables.
            IntegrityError: the new table has keys, snapshots or statistics (``catalog.commit.outcome``).
            CommitStateUnknownException: the catalog did not answer; nothing was deleted.
        """
        with telemetry.on_table("catalog", "create", self._given_name(identifier).split("."), self.name):
            wanted = self.check_create(identifier, properties or {}, location)
            form = TableForm(schema=schema, location=location, partition_spec=partition_spec, sort_order=sort_order, properties=wanted)
            if names.ENCRYPTION_KEY_ID in wanted:
                made = cast("Table", self._store.create(self._store.name_of(identifier), form))
            else:
                made = self._create_plain(identifier, form)
        key_id = wanted.get(names.ENCRYPTION_KEY_ID)
        telemetry.event("catalog", logging.INFO, "create", catalog=self.name, table=".".join(made.name()), key_id=key_id)
        return made

    def _create_plain(self, identifier: str | Identifier, form: TableForm) -> Table:
        self._store.before_plain(identifier)
        place = self._store.place(self._store.name_of(identifier), form.location)
        made: Table = self._iceberg.create_table(
            identifier, form.schema, place, form.partition_spec, form.sort_order, dict(form.properties)
        )
        self.pins.gone(made.name())  # there was no table of this name
        self.pins.made_plain(made.name(), made.metadata.table_uuid)
        return made

    def create_table_if_not_exists(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create a table, or return the one that is there; a plain one takes rows of this catalog if ``icelock.plain=true`` says so.

        Raises:
            PolicyError, KeyUnavailableError, NoSuchNamespaceError, CommitError, CommitStateUnknownException: as ``create_table``.
        """
        given = dict(properties or {})
        table = super().create_table_if_not_exists(identifier, schema, location, partition_spec, sort_order, given)
        if names.flag(given, names.PLAIN, default=False) and not is_encrypted(table.metadata):
            self.pins.made_plain(table.name(), table.metadata.table_uuid)
        return cast("Table", table)

    def _check_first_commit(self, updates: tuple[Any, ...], *, table: str) -> None:
        """Check that a first commit creates an encrypted table, or one that may be plain.

        Raises:
            PolicyError: see ``NewProperties.check_plain``.
        """
        keyed = any(isinstance(update, SetPropertiesUpdate) and names.ENCRYPTION_KEY_ID in update.updates for update in updates)
        uuids = {update.uuid for update in updates if isinstance(update, AssignUUIDUpdate)}
        if not keyed and not (uuids and uuids <= self._plain_tables):
            self.new_tables.check_plain({}, table=table, pinned=self.pins.is_pinned_plain(table))

    def check_create(self, identifier: str | Identifier, properties: Mapping[str, str], location: str | None = None) -> dict[str, str]:
        """Check the settings of a new table; return its properties, with the catalog's defaults and overrides and the format version.

        Raises:
            PolicyError: settings or a location that are not possible, or a plain table that is not allowed (``catalog.new_properties``).
            KeyUnavailableError: no KMS, or the KMS does not know the key (after one trial wrap).
        """
        table = self._given_name(identifier)
        if location is not None:
            self._check_given_location(location, what=f"location of table {table}")
        wanted = self.new_tables.of_new(properties, table=table)
        encrypted = names.ENCRYPTION_KEY_ID in wanted
        version = _version(wanted.get(FORMAT_VERSION, str(names.ENCRYPTED_VERSION) if encrypted else "2"), table=table)
        check_origin_set({}, wanted, table=table)
        check_new_table(wanted, version, table=table)
        self.encryption.check_locations(wanted, table=table)
        if encrypted:
            check_format_of_files(wanted, table=table)
            self._trial_wrap(wanted, table=table)
        elif version == names.ENCRYPTED_VERSION:
            raise PolicyError(
                f"table {table}: icelock makes format-version 3 tables encrypted only: set {names.ENCRYPTION_KEY_ID}, or make it with Java"
            )
        else:
            self.new_tables.check_plain(properties, table=table, pinned=self.pins.is_pinned_plain(table))
        return {**wanted, FORMAT_VERSION: str(version)}

    def _given_name(self, identifier: str | Identifier) -> str:
        """Return the name of a new table, for messages."""
        parts = self.identifier_to_tuple(identifier) if isinstance(identifier, (str, tuple, list)) else ()
        if not parts or not all(isinstance(part, str) for part in parts) or not parts[-1].strip():
            raise PolicyError(f"{identifier!r} is not the name of a table: write namespace.table, such as db.orders")
        check_names(parts)
        return ".".join(parts)

    def new_metadata(
        self,
        *,
        schema: Schema | pa.Schema,
        location: str,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str],
    ) -> TableMetadataV3:
        """Return the first metadata of an encrypted table, without keys."""
        given = self._given(schema)
        fresh = fresh_schema(given)
        spec = fresh_spec(partition_spec, given, fresh)
        order = assign_fresh_sort_order_ids(sort_order, given, fresh)
        check_form(spec, order, fresh)
        return TableMetadataV3(
            location=location,
            last_updated_ms=self.encryption.clock(),
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

    def stage_new_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        wanted: Mapping[str, str],
    ) -> StagedTable:
        """Return a new encrypted table, of which nothing is written yet; ``wanted`` are its checked properties.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        form = TableForm(schema=schema, location=location, partition_spec=partition_spec, sort_order=sort_order, properties=wanted)
        return self._store.stage(self.free_name(identifier), form)

    def create_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        """Return a transaction that creates a table with all that is staged in it; nothing is visible before its commit.

        For an encrypted table it is a ``CreateTransaction``, whose ``commit_transaction`` returns the table; for a plain one PyIceberg's.

        Raises:
            PolicyError: settings that are not possible; nothing was created.
            KeyUnavailableError: no KMS, or the KMS does not know the key; nothing was created.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        wanted = self.check_create(identifier, properties or {}, location)
        if names.ENCRYPTION_KEY_ID in wanted:
            return self._transaction_of(self.stage_new_table(identifier, schema, location, partition_spec, sort_order, wanted))
        place = self._store.place(self._store.name_of(identifier), location)
        plain = self._iceberg.create_table_transaction(identifier, schema, place, partition_spec, sort_order, wanted)
        self._plain_tables.add(plain.table_metadata.table_uuid)  # that it may be plain is decided now, not when it commits
        return plain

    def resume_create_transaction(self, identifier: str | Identifier, staged_metadata: bytes) -> CreateTransaction:
        """Return a transaction that creates the table whose first metadata another process staged (``CreateTransaction.staged_metadata``).

        Raises:
            FormatError: not table metadata of version 3.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        name = self.free_name(identifier)
        metadata = parse_metadata(staged_metadata, location=f"the staged metadata of table {'.'.join(name)}")
        return self._transaction_of(self._store.stage_again(name, metadata))

    def replace_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> EncryptedTransaction:
        """Return a transaction that replaces schema, partitions, order and rows of an encrypted table in one commit.

        The table keeps its uuid, key, location, snapshots, other branches and tags, and properties that are not given.

        Raises:
            PolicyError: a plain table, another location or master key, or settings that are not possible; nothing was staged.
            NoSuchTableError: as PyIceberg.
        """
        table = self.load_table(identifier)
        name = ".".join(table.name())
        if not isinstance(table, Table) or not is_encrypted(table.metadata):
            raise PolicyError(
                f"table {name} is plain, and icelock replaces encrypted tables only: icelock convert makes it an encrypted one; or drop "
                "it, and create one of that name"
            )
        if location is not None and location.rstrip("/") != table.location().rstrip("/"):
            raise PolicyError(
                f"table {name} is encrypted: moving it from {table.location()} to {location} is not supported; leave the location out"
            )
        wanted = self.new_tables.of_replaced(properties or {}, table=name)
        if _version(wanted.pop(FORMAT_VERSION, str(names.ENCRYPTED_VERSION)), table=name) != names.ENCRYPTED_VERSION:
            raise PolicyError(f"table {name} is encrypted: its format version stays {names.ENCRYPTED_VERSION}")
        check_format_of_files({**table.properties, **wanted}, table=name)
        transaction = table.transaction()
        stage_replacement(transaction.staged, self._given(schema), partition_spec, sort_order, wanted)
        return transaction

    def create_or_replace_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        """Return a transaction that replaces the table if it exists now, and creates it otherwise.

        Raises:
            PolicyError, KeyUnavailableError, NoSuchNamespaceError: as the two methods.
        """
        make = self.replace_table_transaction if self.table_exists(identifier) else self.create_table_transaction
        return make(identifier, schema, location, partition_spec, sort_order, properties)

    def stage_first_commit(self, identifier: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> StagedTable:
        """Return the table that a first commit creates, in format version 3.

        Raises:
            CommitFailedException: a requirement demands an existing table.
            FormatError: the updates leave out something that a table needs.
        """
        for requirement in requirements:
            requirement.validate(None)
        # PyIceberg upgrades to version 2 at most; the empty metadata is of version 3.
        rest = [update for update in updates if not isinstance(update, UpgradeFormatVersionUpdate)]
        metadata = apply_updates(_empty_metadata(), rest, now_ms=self.encryption.clock)
        text = canonical_json(metadata)
        return self._staged_first(identifier, parse_metadata(text, location=f"the first metadata of table {'.'.join(identifier)}"))

    def _transaction_of(self, staged: StagedTable) -> CreateTransaction:
        new = UncommittedTable(
            staged.name(), staged.metadata, staged.metadata_location, storage_of(staged.io), self, encryption=self.encryption
        )
        return new.transaction()

    def _staged_first(self, name: Identifier, metadata: Any) -> StagedTable:
        """Return the first version of an encrypted table, staged."""
        location = self.encryption.locations(metadata, table=".".join(name)).new_table_metadata_file_location()
        # PyIceberg's StagedTable has methods that write: this io lets them make no plain file.
        io = self.encryption.wrap(self._load_file_io(location=location), metadata, table=".".join(name))
        return StagedTable(identifier=name, metadata=metadata, metadata_location=location, io=io, catalog=self)

    def _given(self, schema: Schema | pa.Schema) -> Schema:
        """Return a schema as given, with distinct ids."""
        converted = self._convert_schema_if_needed(schema, names.ENCRYPTED_VERSION)
        if not isinstance(schema, Schema):
            # An Arrow schema has no ids; specs and orders count its columns from 1.
            converted = assign_fresh_schema_ids(converted)
        converted.check_format_version_compatibility(names.ENCRYPTED_VERSION)
        return converted

    def _trial_wrap(self, properties: Mapping[str, str], *, table: str) -> None:
        key_id = properties[names.ENCRYPTION_KEY_ID]
        try:
            ask.wrapped(self.encryption.kms(), self.encryption.entropy.random_bytes(_TRIAL_LENGTH), key_id)
        except KeyUnavailableError as e:
            raise ask.restated(e, f"table {table} cannot be created with master key {key_id!r}: {e}") from e


def makes_version_3(updates: tuple[Any, ...]) -> bool:
    """Whether a first commit creates a table of format version 3."""
    return any(isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == names.ENCRYPTED_VERSION for update in updates)


def check_format_of_files(properties: Mapping[str, str], *, table: str) -> None:
    """Refuse file formats and Parquet options that an encrypted table cannot have.

    Raises:
        PolicyError: names the table and the property.
    """
    try:
        check_file_format(properties)
    except PolicyError as e:
        raise PolicyError(f"table {table}: {e}") from e


def _empty_metadata() -> TableMetadataV3:
    """Return empty metadata, the base for a first commit; not a valid table."""
    return TableMetadataV3.model_construct(
        location="",
        table_uuid=uuid.uuid4(),
        last_updated_ms=0,
        last_column_id=0,
        schemas=[],
        current_schema_id=-1,
        partition_specs=[],
        default_spec_id=-1,
        last_partition_id=None,
        sort_orders=[],
        default_sort_order_id=-1,
    )


def _version(value: str, *, table: str) -> int:
    if value not in {"1", "2", "3"}:
        raise PolicyError(f"table {table}: format-version is {value!r}; it must be 1, 2 or 3")
    return int(value)
