"""The REST catalog: encrypted tables on a server of the Iceberg REST protocol.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.rest.RestCatalog``. The server keeps metadata, and is trusted with it;
KMS settings are the client's alone (``catalog.rest.answer``). A server that loses keys is found out when a table is made: it is read
back after every create, register and commit. Scans are planned here: a server's plan has no keys. Views are PyIceberg's.

Not here: rules (``catalog.base``), commits (``catalog.rest.commit``), requests (``catalog.rest.requests``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from pyiceberg.catalog.rest import Capability, CreateTableRequest
from pyiceberg.catalog.rest import RestCatalog as IcebergRestCatalog
from pyiceberg.catalog.rest.auth import AUTH_MANAGER
from pyiceberg.exceptions import CommitStateUnknownException, NoSuchNamespaceError, NoSuchTableError, RESTError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from requests import RequestException

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog, without_kms
from icelock.catalog.create import FORMAT_VERSION
from icelock.catalog.rest.answer import TableAnswer, best_credentials, end_of
from icelock.catalog.rest.commit import RestCommits
from icelock.catalog.rest.form import other_form
from icelock.catalog.rest.http import may_be_done
from icelock.catalog.rest.names import RestNames
from icelock.catalog.rest.storage import Lent, VendedFileIO
from icelock.catalog.trust.new_made import check_new
from icelock.errors import CommitError, PolicyError
from icelock.io.checked_io import CheckedFileIO
from icelock.io.storage import open_storage
from icelock.metadata.checked_avro import checked_avro
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.guard import check_metadata
from icelock.table.kept import check_kept
from icelock.table.plain import PlainTable
from icelock.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyiceberg.catalog.rest import TableResponse
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier

_FIXED: Final = (names.ENCRYPTION_KEY_ID, names.DATA_KEY_LENGTH)


class RestCatalog(EncryptedCatalog, RestCommits):
    """PyIceberg's ``RestCatalog`` whose tables can be encrypted. Safe to share between threads."""

    reads_metadata_files: ClassVar[bool] = False
    warehouse_is_place: ClassVar[bool] = False
    # Those of MetastoreCatalog are for catalogs that keep rows.
    table_exists = IcebergRestCatalog.table_exists
    namespace_exists = IcebergRestCatalog.namespace_exists
    create_view = IcebergRestCatalog.create_view

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> IcebergTable:
        """Create a table, encrypted under the master key of ``encryption.key-id``, or of the catalog's ``table-default.encryption.key-id``.

        Raises:
            PolicyError: settings that cannot be; nothing was made.
            KeyUnavailableError: no KMS, or the KMS does not know the key; nothing was made.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
            CommitError: the table was made, but the server did not keep what makes it an encrypted one.
            IntegrityError: the table that was made has keys, snapshots or statistics (``catalog.trust.new_made``).
            CommitStateUnknownException: the server did not say whether the table was made.
        """
        wanted = self.check_create(identifier, properties or {}, location)
        if names.ENCRYPTION_KEY_ID not in wanted:
            made = IcebergRestCatalog.create_table(self, identifier, schema, location, partition_spec, sort_order, wanted)
            return self._made_plain(cast("IcebergTable", made))
        name = self._identifier_to_validated_tuple(identifier)
        request = self._create_request(name, schema, location, partition_spec, sort_order, wanted)
        try:
            first = self._ask_create(name, request)
        except (RequestException, RESTError) as e:
            if not may_be_done(e):
                raise
            raise CommitStateUnknownException(
                f"the REST server did not say whether table {'.'.join(name)} was made ({type(e).__name__}: {e}): look before you repeat"
            ) from e
        check_new(first.metadata, table=".".join(name), catalog=self.name)
        return self._read_back(name, wanted, request=request, first=first)

    def create_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        """Return a transaction that makes a table with what is staged in it; see ``TableCreation``. The server says where the table is."""
        wanted = self.check_create(identifier, properties or {}, location)
        if names.ENCRYPTION_KEY_ID in wanted:
            return self._transaction_of(self.stage_new_table(identifier, schema, location, partition_spec, sort_order, wanted))
        made = IcebergRestCatalog.create_table_transaction(self, identifier, schema, location, partition_spec, sort_order, wanted)
        return self._plain_allowed(made)

    def stage_new_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        wanted: Mapping[str, str],
    ) -> StagedTable:
        """Return a new encrypted table that the server has staged, at the place that it has chosen.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
            CommitError, IntegrityError: the server would not make what was asked for; there is no table.
        """
        name = self.free_name(identifier)
        request = self._create_request(name, schema, location, partition_spec, sort_order, wanted, stage=True)
        answer = self._ask_create(name, request)
        check_new(answer.metadata, table=".".join(name), catalog=self.name)
        self._check_made(name, answer.metadata, wanted, request)
        return self._staged_by_server(name, answer.metadata, answer, request)

    def _staged_again(self, name: Identifier, metadata: Any) -> StagedTable:
        """Let the server stage the same table again: it lends access to the storage with that."""
        request = CreateTableRequest(
            name=name[-1],
            location=metadata.location,
            table_schema=metadata.schema(),
            partition_spec=metadata.spec(),
            write_order=metadata.sort_order(),
            stage_create=True,
            properties={**metadata.properties, FORMAT_VERSION: str(metadata.format_version)},
        )
        return self._staged_by_server(name, metadata, self._ask_create(name, request), request)

    def _staged_by_server(self, name: Identifier, metadata: Any, answer: TableAnswer, request: CreateTableRequest) -> StagedTable:
        file = self.encryption.locations(metadata, table=".".join(name)).new_table_metadata_file_location()
        same = request.model_copy(update={"location": metadata.location})
        io = self._storage(name, answer, metadata.location, stage=partial(self._ask_create, name, same))
        return StagedTable(identifier=name, metadata=metadata, metadata_location=file, io=io, catalog=self)

    def free_name(self, identifier: str | Identifier) -> Identifier:
        """Return the name of a table that is not there, in a namespace that is.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        name = self._identifier_to_validated_tuple(identifier)
        if not self.namespace_exists(name[:-1]):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(name[:-1])}")
        if self.table_exists(name):
            raise TableAlreadyExistsError(f"Table {'.'.join(name)} already exists")
        return name

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> IcebergTable:
        """Make a table of a metadata file that is there; of an encrypted one every key must resolve and open.

        Raises:
            PolicyError: ``overwrite``, or the metadata breaks a rule.
            KeyUnavailableError, IntegrityError: a key is missing, cannot be opened, or was changed.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
            CommitError: the table was made, but the server did not keep what was in the file.
            CommitStateUnknownException: the server did not say whether the table was made.
        """
        name = self._identifier_to_validated_tuple(identifier)
        if overwrite:
            raise PolicyError(
                f"table {'.'.join(name)}: register_table with overwrite is not supported; drop the table first (its files stay)"
            )
        metadata = self.read_metadata_file(metadata_location)
        self.check_register(metadata, table=".".join(name), location=metadata_location)
        self._register(name, metadata_location)
        self.pins.gone(name)  # there was no table of this name
        return self._read_back(name, metadata.properties, metadata)

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = False) -> None:
        """Drop a table; with ``purge_requested`` as ``purge_table``: a server that has no keys cannot find the files."""
        if purge_requested:
            self.purge_table(identifier)
            return
        super().drop_table(identifier)

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop a table and delete its files: those of an encrypted one from here, with its keys; of another one the server does it.

        Raises:
            KeyUnavailableError, IntegrityError: the manifests cannot be read, or the metadata file that the server names is not the
                table's; nothing was dropped or deleted.
            PolicyError: the table says ``gc.enabled=false``; the same.
            OSError: the table is gone, but the storage did not delete all of its files; names those that are left.
        """
        if isinstance(self.load_table(identifier), Table):
            super().purge_table(identifier)
            return
        name = self._identifier_to_validated_tuple(identifier)
        known = self.pins.seen(name)
        RestNames.drop_table(self, name, purge_requested=True)
        self._check_left(name, known, "dropped")
        self.pins.forget(name)

    def _create_request(
        self,
        name: Identifier,
        schema: Schema | pa.Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Mapping[str, str],
        *,
        stage: bool = False,
    ) -> CreateTableRequest:
        first = self.new_metadata(
            schema=schema, location=location or "", partition_spec=partition_spec, sort_order=sort_order, properties=properties
        )
        return CreateTableRequest(
            name=name[-1],
            location=location.rstrip("/") if location else None,
            table_schema=first.schema(),
            partition_spec=first.spec(),
            write_order=first.sort_orders[0],
            stage_create=stage,
            properties=dict(properties),
        )

    def _read_back(
        self,
        name: Identifier,
        wanted: Mapping[str, str],
        sent: TableMetadata | None = None,
        request: CreateTableRequest | None = None,
        first: TableAnswer | None = None,
    ) -> IcebergTable:
        """Load a table that was just made and check that it is what was asked for; ``first`` is the answer to the request."""
        answer = self._ask_table(name)
        if sent is None:
            # Another client may have committed to it meanwhile.
            if first is None or first.location not in {entry.metadata_file for entry in answer.metadata.metadata_log}:
                check_new(answer.metadata, table=".".join(name), catalog=self.name)
            self._check_made(name, answer.metadata, wanted, request)
        else:
            check_kept(sent, answer.metadata, table=".".join(name), catalog=self.name)
        table = self._table(name, answer)
        self.pins.check(name, answer.metadata, answer.location, self.pins.seen(name))
        return table

    def _check_made(self, name: Identifier, made: TableMetadata, wanted: Mapping[str, str], request: CreateTableRequest | None) -> None:
        problem = ""
        if not isinstance(made, TableMetadataV3):
            problem = f"format version 3 was asked for, and catalog {self.name} made version {made.format_version}"
        for setting in _FIXED:
            if not problem and made.properties.get(setting) != wanted.get(setting):
                problem = f"{setting} is {made.properties.get(setting)!r} in catalog {self.name} instead of {wanted.get(setting)!r}"
        if problem:
            raise CommitError(
                f"table {'.'.join(name)}: {problem}: it cannot hold encrypted tables. The table at {made.location} has no data: "
                "drop it, and use another catalog"
            )
        problem = "" if request is None else other_form(request, made, wanted)
        if problem:
            raise CommitError(
                f"table {'.'.join(name)}: catalog {self.name} made it in a form of its own: {problem}. The table at {made.location} has no "
                "data: drop it, and ask for what the server makes, or use another catalog"
            )

    def _table(self, name: Identifier, answer: TableAnswer) -> IcebergTable:
        metadata, location, config = answer.metadata, answer.location, dict(answer.config)
        check_metadata(metadata, location=location)
        io = self._storage(name, answer, location)
        if isinstance(metadata, TableMetadataV3):
            return Table(name, metadata, location, io, self, config, encryption=self.encryption)
        return PlainTable(name, metadata, location, CheckedFileIO(io, checked_avro), self, config)

    def _storage(self, name: Identifier, answer: TableAnswer, place: str, *, stage: Callable[[], TableAnswer] | None = None) -> FileIO:
        """Return access to the storage at a place; ``stage`` asks for a table that the server may not have yet."""
        fixed = answer.config  # not the table's properties: metadata could send credentials elsewhere

        def lent(credentials: Mapping[str, str]) -> Lent:
            settings = {**fixed, **credentials}
            return Lent(io=self._load_file_io(settings, place), ends_ms=end_of(settings))

        def lend() -> Lent:
            try:
                return lent(self._credentials(name, place))
            except NoSuchTableError:
                if stage is None:
                    raise
                return lent(stage().storage_config(place))

        first = lent(best_credentials(answer.credentials, place))
        if first.ends_ms is None:
            return first.io
        return VendedFileIO(first, lend=lend, clock=self.encryption.clock)

    def _credentials(self, name: Identifier, place: str) -> Mapping[str, str]:
        if Capability.V1_LOAD_CREDENTIALS in self._supported_endpoints:
            answered = self._ask_credentials(name)
            if answered:
                return best_credentials(answered, place)
        return self._ask_table(name).storage_config(place)

    def _load_file_io(self, properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        settings = without_kms(self.storage_settings(properties or {}))
        if self._auth_manager is not None:
            settings[AUTH_MANAGER] = self._auth_manager
        return open_storage(settings, location)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> IcebergTable:
        # PyIceberg's answer to the creation of a plain table.
        del table_response
        self.pins.gone(identifier_tuple)  # there was no table of this name
        return self.load_table(identifier_tuple)

    def _response_to_staged_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> StagedTable:
        # PyIceberg's answer to the staging of a plain table, whose properties are the server's.
        self.encryption.check_locations(table_response.metadata.properties, table=".".join(identifier_tuple))
        return super()._response_to_staged_table(identifier_tuple, table_response)
