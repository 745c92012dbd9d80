"""Plain tables of versions 1 and 2: PyIceberg's own, with two checks.

1. In a catalog that has a KMS they take rows only if the client says that they are plain (``catalog.new_properties``).
2. PyIceberg loads the class ``write.py-location-provider.impl`` of a table's properties whenever it writes. Properties lie on storage, or
   come from a REST server, so the client must name the class too (``table.encryption.check_locations``); reading needs none.

``scan`` is PyIceberg's. Engines read by ``engine_scan``, which is the scan of encrypted tables without keys: it knows equality deletes and
SQL's rules for nulls.

Not here: encrypted tables and plain ones of version 3 (``table.table``).
"""

from __future__ import annotations

import copy
from typing import Any, Self

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table, Transaction
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.update.snapshot import UpdateSnapshot

from icelock.errors import PolicyError
from icelock.metadata.table_metadata import unshared
from icelock.table.described import CATALOG, DescribedTable
from icelock.table.scan import DataScan
from icelock.table.table import Table as EncryptedTable


class PlainTable(DescribedTable, Table):
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

    def at_one_version(self) -> Self:
        """Return another object for the present version, which other users of this one do not move on.

        Its schemas and specs are its own: PyIceberg's writers serialize them, while threads that share them may look into them.
        """
        made = copy.copy(self)
        made.metadata = unshared(self.metadata)
        return made

    def transaction(self) -> PlainTransaction:
        """Return a new transaction."""
        return PlainTransaction(self)


AnyTable = EncryptedTable | PlainTable


def engine_scan(table: AnyTable, selected_fields: tuple[str, ...] = ("*",), snapshot_id: int | None = None) -> DataScan:
    """Return a scan for engines: of all rows, of the current snapshot or another."""
    if isinstance(table, EncryptedTable):
        return table.scan(selected_fields=selected_fields, snapshot_id=snapshot_id)
    return DataScan(
        table_metadata=table.metadata,
        io=table.io,
        row_filter=AlwaysTrue(),
        selected_fields=selected_fields,
        snapshot_id=snapshot_id,
        options={CATALOG: table.catalog.name},
        table_identifier=table.name(),
    )


class PlainTransaction(Transaction):
    """PyIceberg's ``Transaction`` on a ``PlainTable``. Its writes begin with one of these methods."""

    _table: PlainTable

    def update_snapshot(self, *args: Any, **kwargs: Any) -> UpdateSnapshot:
        """Return PyIceberg's builder of snapshots, after ``PlainTable.check_write``."""
        self._table.check_write()
        return super().update_snapshot(*args, **kwargs)

    def commit_transaction(self) -> Table:
        """Commit as PyIceberg does; manifests of a commit that a rule refused are deleted too: the table may be an encrypted one by now."""
        try:
            return super().commit_transaction()
        except PolicyError:
            for producer in self._snapshot_producers:
                producer._clean_all_uncommitted()  # noqa: SLF001 - PyIceberg cleans up for its own two errors only
            raise

    def dynamic_partition_overwrite(self, *args: Any, **kwargs: Any) -> None:
        """Replace partitions as PyIceberg does, after ``PlainTable.check_write``."""
        self._table.check_write()
        super().dynamic_partition_overwrite(*args, **kwargs)


def check_loaded(given: object) -> None:
    """Refuse, as a PolicyError, what is given for a table and is none, such as its name."""
    if not hasattr(given, "metadata"):
        load = f"catalog.load_table({given!r})" if isinstance(given, str) else "catalog.load_table(name)"
        raise PolicyError(f"expected a table, got a {type(given).__name__}: {load} loads one")
