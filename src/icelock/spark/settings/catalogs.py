"""Catalogs, tables and scans by the names that Spark users give. Driver only: catalogs and KMS clients are made here.

Not here: planning (``spark.driver.plan_read``), options (``spark.settings.options``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.refs import SnapshotRefType

from icelock.catalog.configuration import configured, not_configured, read_configuration
from icelock.catalog.load import load_catalog
from icelock.errors import PolicyError
from icelock.spark.settings.options import ReadOptions, TableName
from icelock.spark.settings.rpc import check_wire
from icelock.table.commit.branches import no_such_ref
from icelock.table.table import Table

if TYPE_CHECKING:
    from icelock.catalog.base import EncryptedCatalog
    from icelock.spark.settings.session import Settings
    from icelock.table.scan import DataScan


def open_catalog(name: str, properties: Mapping[str, str] | None, *, known: tuple[str, ...] = ()) -> EncryptedCatalog:
    """Load a catalog from given properties, or (None) from PyIceberg's configuration.

    Raises:
        PolicyError: there is no such catalog, its settings cannot be, or it is one of this process alone.
    """
    if properties is None:
        config = read_configuration()
        if not configured(config, name):
            registered = ", ".join(known) or "none"
            raise PolicyError(f"no catalog {name!r}: register(...) was given {registered}, and {not_configured(config, name)}")
    catalog = load_catalog(name, **(properties or {}))
    if catalog.one_process:
        catalog.close()
        raise PolicyError(
            f"catalog {name} is in memory of one process, and Spark plans in several: use type sql with a uri such as sqlite:///lake.db"
        )
    return catalog


def open_table(settings: Settings, name: TableName) -> Table:
    """Load a table of format version 3.

    Raises:
        PolicyError: no such catalog, a table below version 3, or keys would cross the network in the clear where that is refused.
        NoSuchTableError: no such table.
    """
    return table_of(catalog_of(settings, name), name)


def catalog_of(settings: Settings, name: TableName) -> EncryptedCatalog:
    """Load the catalog of a table.

    Raises:
        PolicyError: no such catalog, or keys would cross the network in the clear where that is refused.
    """
    given = settings.catalogs.get(name.catalog)
    check_wire(settings, name, given or {})  # before anything is asked of the catalog
    catalog = open_catalog(name.catalog, given, known=tuple(settings.catalogs))
    check_wire(settings, name, catalog.properties)
    return catalog


def table_of(catalog: EncryptedCatalog, name: TableName) -> Table:
    """Load a table of format version 3 from an open catalog.

    Raises:
        PolicyError: a table below version 3.
        NoSuchTableError: no such table.
    """
    try:
        table = catalog.load_table(name.identifier)
    except NoSuchTableError as e:
        raise NoSuchTableError(
            f"there is no table {name}; create it first: catalog.create_table({'.'.join(name.identifier)!r}, schema, properties=...)"
        ) from e
    if not isinstance(table, Table):
        raise PolicyError(
            f"table {name} has format version {table.format_version}, so it is not encrypted: read it with Iceberg's own Spark runtime"
        )
    return table


def scan_of(table: Table, options: ReadOptions) -> DataScan:
    """Return the scan that the options ask for, with the asked columns.

    Raises:
        PolicyError: no such snapshot, branch, tag or column, or nothing as old as asked for.
    """
    scan = table.scan(selected_fields=options.columns or ("*",), snapshot_id=_snapshot_id(table, options))
    for kind, ref in ((SnapshotRefType.BRANCH, options.branch), (SnapshotRefType.TAG, options.tag)):
        if ref is not None:
            check_ref(table, ref, kind, options.table)
            scan = scan.use_ref(ref)
    try:
        scan.projection()
    except ValueError as e:
        if isinstance(e, PolicyError) and "option columns" in str(e):
            raise
        columns = ", ".join(scan.full_schema.column_names)
        raise PolicyError(f"option columns: {e}; table {options.table} has {columns}") from e
    return scan


def _snapshot_id(table: Table, options: ReadOptions) -> int | None:
    if options.as_of_ms is None:
        return options.snapshot_id
    found = table.snapshot_as_of_timestamp(options.as_of_ms)
    if found is not None:
        return found.snapshot_id
    history = table.history()
    first = f"its first snapshot is of {history[0].timestamp_ms}" if history else "it has no snapshots"
    raise PolicyError(f"table {options.table} had no snapshot at {options.as_of_ms} (ms since 1970); {first}")


def check_ref(table: Table, ref: str, kind: SnapshotRefType, name: TableName) -> None:
    """Check that a table has a branch or tag.

    Raises:
        PolicyError: it has not; names those that it has.
    """
    refs = table.metadata.refs
    found = refs.get(ref)
    if found is None:
        raise PolicyError(f"table {name} {no_such_ref(refs, ref, kind)}")
    if found.snapshot_ref_type != kind:
        raise PolicyError(f"{ref!r} of table {name} is a {found.snapshot_ref_type}, not a {kind}: use the option {found.snapshot_ref_type}")
