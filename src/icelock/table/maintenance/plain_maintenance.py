"""``table.maintenance`` of a plain table of version 1 or 2."""

from __future__ import annotations

from typing import Any

from pyiceberg.table.maintenance import MaintenanceTable as IcebergMaintenance

from icelock.table.maintenance.maintenance_table import MaintenanceTable


class PlainMaintenance(MaintenanceTable):
    """PyIceberg's expiry, which leaves files on storage; the other methods are refused, as they are for encrypted tables."""

    def expire_snapshots(self) -> Any:
        """Return PyIceberg's builder of an expiry."""
        table: Any = self.tbl
        return IcebergMaintenance(table).expire_snapshots()
