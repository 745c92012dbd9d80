"""Plain tables of versions 1 and 2: PyIceberg's own, with two checks.

1. In a catalog that has a KMS they take rows only if the client says that they are plain (``catalog.new_properties``).
2. PyIceberg loads the class ``write.py-location-provider.impl`` of a table's properties whenever it writes. Properties lie on storage, or
   come from a REST server, so the client must name the class too (``table.encryption.check_locations``); reading needs none.

Not here: encrypted tables and plain ones of version 3 (``table.table``).
"""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.update.snapshot import UpdateSnapshot


class PlainTable(Table):
    """PyIceberg's ``Table`` in one of icelock's catalogs."""

    def check_locations(self) -> None:
        """Check who names the class that chooses file paths; see ``TableEncryption.check_locations``."""
        self.catalog.encryption.check_locations(self.metadata.properties, table=".".join(self.name()))  # type: ignore[attr-defined]  # an EncryptedCatalog

    def check_write(self) -> None:
        """Refuse rows if the catalog writes encrypted tables and the client did not say that this one is plain; see ``check_locations``."""
        catalog: Any = self.catalog  # an EncryptedCatalog
        known = catalog.pins.is_plain(self.name(), self.metadata.table_uuid)
        catalog.new_tables.check_plain_write(table=".".join(self.name()), known=known)
        self.check_locations()

    def location_provider(self) -> LocationProvider:
        """Return what chooses the paths of new files; see ``check_locations``."""
        self.check_locations()
        return super().location_provider()

    def transaction(self) -> PlainTransaction:
        """Return a new transaction."""
        return PlainTransaction(self)


class PlainTransaction(Transaction):
    """PyIceberg's ``Transaction`` on a ``PlainTable``. Its writes begin with one of these methods."""

    _table: PlainTable

    def update_snapshot(self, *args: Any, **kwargs: Any) -> UpdateSnapshot:
        """Return PyIceberg's builder of snapshots, after ``PlainTable.check_write``."""
        self._table.check_write()
        return super().update_snapshot(*args, **kwargs)

    def dynamic_partition_overwrite(self, *args: Any, **kwargs: Any) -> None:
        """Replace partitions as PyIceberg does, after ``PlainTable.check_write``."""
        self._table.check_write()
        super().dynamic_partition_overwrite(*args, **kwargs)
