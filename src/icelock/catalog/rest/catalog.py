"""The REST catalog: encrypted tables on a server of the Iceberg REST protocol.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.rest.RestCatalog``. The server keeps metadata, and is trusted with it;
KMS settings are the client's alone (``catalog.rest.answer``). A server that loses keys is found out when a table is made: it is read
back after every create, register and commit. Scans are planned here: a server's plan has no keys. Views are PyIceberg's.

Not here: rules (``catalog.base``), tables (``catalog.rest.store``), commits (``catalog.rest.commit``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from pyiceberg.catalog.rest import TableResponse
from pyiceberg.catalog.rest.auth import AUTH_MANAGER
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import Identifier

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.named import without_kms
from icelock.catalog.rest.requests import RestRequests
from icelock.catalog.rest.store import RestStore
from icelock.io.storage import open_storage
from icelock.table.table import Table


class RestCatalog(EncryptedCatalog, RestRequests):
    """PyIceberg's ``RestCatalog`` whose tables can be encrypted. Safe to share between threads."""

    _store: RestStore
    reads_metadata_files: ClassVar[bool] = False
    warehouse_is_place: ClassVar[bool] = False
    # Other processes cannot be kept out, so Java's four retries are too few.
    commit_retries: Final = 20

    def _make_store(self) -> RestStore:
        return RestStore(self)

    def supports_server_side_planning(self) -> bool:
        """Return False, whatever ``scan-planning-mode`` says: tables are planned here, and a server's plan has no keys."""
        return False

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
        self._drop(self._identifier_to_validated_tuple(identifier), purge=True)

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
