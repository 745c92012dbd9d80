"""The Hive catalog: encrypted tables that Java Iceberg's Hive catalog shares, both ways.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.hive.HiveCatalog``. Needs the extra ``hive`` (thrift).

The row in the metastore has the table's key id, key length and the hash of its metadata file; they are written on every
create, register and commit and compared on every load, so a metadata file that was edited, exchanged or rolled back is
refused (``catalog.hive.parameters``).

Not here: rules (``catalog.base``), commits (``catalog.hive.store``), locks (``catalog.hive.lock``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pyiceberg.catalog.hive import DEFAULT_PROPERTIES
from pyiceberg.catalog.hive import HiveCatalog as IcebergHiveCatalog
from pyiceberg.table import Table as IcebergTable

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.hive.client import MetastoreClient
from icelock.catalog.hive.parameters import check_row
from icelock.catalog.hive.store import HiveStore, metadata_location
from icelock.table.guard import check_metadata


class HiveCatalog(EncryptedCatalog, IcebergHiveCatalog):
    """PyIceberg's ``HiveCatalog`` whose tables can be encrypted. Safe to share between threads."""

    _store: HiveStore
    table_defaults: ClassVar[Mapping[str, str]] = DEFAULT_PROPERTIES

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._require_hash = names.flag(properties, names.HIVE_REQUIRE_HASH, default=True)

    def _make_store(self) -> HiveStore:
        return HiveStore(self)

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> MetastoreClient:
        return MetastoreClient(properties)

    def _convert_iceberg_into_hive(self, table: IcebergTable) -> Any:
        return self._store.new_row(table)

    def _convert_hive_into_iceberg(self, table: Any) -> IcebergTable:
        identifier = (table.dbName, table.tableName)
        location = metadata_location(table)
        metadata, digest = self._read(location)
        # The row first: what a file says that was exchanged does not matter.
        name = ".".join(identifier)
        check_row(table.parameters, metadata, table=name, location=location, file_digest=digest, require_hash=self._require_hash)
        check_metadata(metadata, location=location)
        return self.table_of(identifier, metadata, location)
