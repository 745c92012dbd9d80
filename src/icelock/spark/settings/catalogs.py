"""Catalogs, tables and scans by the names that Spark users give, and which of their settings go to executors. Driver only.

Executors get settings of the storage, by an allow-list (docs/threat-model.md, "Spark"): a catalog's properties hold its credentials and the
KMS's settings. A FileIO class of the user's own (``py-io-impl``) may need more settings: the catalog property
``icelock.spark.executor-properties`` lists prefixes of properties to send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.refs import SnapshotRefType

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.configuration import configured, not_configured, read_configuration
from icelock.catalog.load import load_configured
from icelock.catalog.tables_below import name_hint
from icelock.errors import PolicyError
from icelock.spark.settings.options import CHANGES, TOLD, ReadOptions, TableName
from icelock.spark.settings.rpc import check_rpc
from icelock.spark.settings.session import Settings
from icelock.table.changes.appends import AppendedFiles
from icelock.table.changes.bounds import Bounds
from icelock.table.plain import AnyTable, PlainTable
from icelock.table.read.scan import DataScan
from icelock.table.refs import no_such_ref
from icelock.table.table import Table

# PyIceberg's names (pyiceberg/io/__init__.py). "client." are credentials and region that S3 and other AWS clients share.
_PREFIXES: Final = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "oss.", "client.", "py-io-impl", names.LIMITS_PREFIX)
_NEVER: Final = ("encryption.", "kms.", "py-kms-impl", "credential", "token", "uri", "header.", "auth", "rest.", "oauth2")


def open_catalog(name: str, properties: Mapping[str, str] | None, *, known: tuple[str, ...] = ()) -> EncryptedCatalog:
    """Load a catalog by properties, or (None) by PyIceberg's configuration alone; ``known`` are the registered ones, for the message.

    No such catalog, invalid settings, or a catalog that other processes do not see is a PolicyError.
    """
    config = read_configuration()
    if properties is None and not configured(config, name):
        registered = ", ".join(known) or "none"
        raise PolicyError(f"no catalog {name!r}: register(...) was given {registered}, and {not_configured(config, name)}")
    catalog = load_configured(config, name, properties or {})
    if catalog.one_process:
        catalog.close()
        raise PolicyError(
            f"catalog {name} is in the memory of one process, and Spark plans in several: use type sql with a uri such as sqlite:///lake.db"
        )
    return catalog


def open_table(settings: Settings, name: TableName) -> Table:
    """Load a table of format version 3, and its catalog; errors as ``catalog_of`` and ``table_of``."""
    return table_of(catalog_of(settings, name), name)


def catalog_of(settings: Settings, name: TableName) -> EncryptedCatalog:
    """Load the catalog of a table; errors as ``open_catalog``, and a PolicyError for one that refuses plain RPC."""
    given = settings.catalogs.get(name.catalog)
    check_rpc(settings, name, given or {})  # before anything is asked of the catalog
    catalog = open_catalog(name.catalog, given, known=tuple(settings.catalogs))
    check_rpc(settings, name, catalog.properties)
    return catalog


def table_of(catalog: EncryptedCatalog, name: TableName) -> Table:
    """Load a table of format version 3 from an open catalog; one below is a PolicyError, none a NoSuchTableError."""
    table = any_table_of(catalog, name)
    if isinstance(table, PlainTable):
        raise PolicyError(
            f"table {name} has format version {table.format_version}, so it is not encrypted, and icelock's functions change encrypted "
            "tables only: in a classic session SQL's INSERT and DELETE write to it, as far as PyIceberg does"
        )
    return table


def any_table_of(catalog: EncryptedCatalog, name: TableName, *, hint: bool = True) -> AnyTable:
    """Load a table, encrypted or plain, from an open catalog; none is a NoSuchTableError.

    ``hint``: its message may ask the catalog for the names beside it.
    """
    try:
        return catalog.load_table(name.identifier, hint=False)
    except NoSuchTableError as e:
        near = (_of_a_table(catalog, name) or name_hint(catalog, ".".join(name.identifier))) if hint else ""
        raise NoSuchTableError(f"there is no table {name}{near or '; create it first, by create_table or CREATE TABLE'}") from e


def _of_a_table(catalog: EncryptedCatalog, name: TableName) -> str:
    """Return what to do about a name below a table's: statements alone know its changes, its metadata tables and versions by name."""
    front, last = name.identifier[:-1], name.identifier[-1]
    if len(front) < 2 or not catalog.table_exists(front):  # noqa: PLR2004 - a namespace and a table
        return ""
    whole = ".".join((name.catalog, *front))
    if last.lower() == CHANGES:
        return f"; what changed in table {whole} is read by spark.read.format('icelock').load('{whole}.{CHANGES}'), or table.changes(...)"
    return (
        f"; of table {whole} there are {last!r} and the like in statements of a classic session only: elsewhere "
        "use table.changes(...) and table.inspect in plain Python, and options for versions: branch, tag, snapshot-id, as-of-timestamp"
    )


def changed_table_of(catalog: EncryptedCatalog, name: TableName) -> AnyTable | None:
    """Load the table whose changes a name means; None: the name is a table's own, or may be. Errors as ``any_table_of``."""
    if not name.may_be_of_changes or catalog.table_exists(name.identifier):
        return None
    return any_table_of(catalog, replace(name, identifier=name.identifier[:-1]))


def scan_of(table: AnyTable, options: ReadOptions) -> DataScan:
    """Return the scan that the options ask for; no such snapshot, branch, tag or column, or options of changes, are a PolicyError."""
    if options.of_changes:
        raise PolicyError(
            f"{', '.join(TOLD)} are options of what changed in a table: spark.read.format('icelock').load('{options.table}.{CHANGES}')"
        )
    scan = table.scan(selected_fields=options.columns or ("*",), snapshot_id=_snapshot_id(table, options))
    refs = ((SnapshotRefType.BRANCH, options.branch), (SnapshotRefType.TAG, options.tag), (None, options.ref))
    named = [(kind, ref) for kind, ref in refs if ref is not None]
    for kind, ref in named:
        check_ref(table, ref, kind, options.table)
    if options.between:
        scan = AppendedFiles.within(scan, bounds_of(options))
    for _, ref in named:
        scan = scan.use_ref(ref)
    try:
        scan.projection()
    except ValueError as e:
        if isinstance(e, PolicyError) and "option columns" in str(e):
            raise
        columns = ", ".join(scan.full_schema.column_names)
        raise PolicyError(f"option columns: {e}; table {options.table} has {columns}") from e
    return scan


def bounds_of(options: ReadOptions) -> Bounds:
    """Return the start and the end that the options give."""
    return Bounds(
        start=options.start_snapshot_id, end=options.end_snapshot_id, since=options.start_ms, until=options.end_ms, branch=options.branch
    )


def _snapshot_id(table: AnyTable, options: ReadOptions) -> int | None:
    if options.as_of_ms is None:
        return options.snapshot_id
    found = table.snapshot_as_of_timestamp(options.as_of_ms)
    if found is not None:
        return found.snapshot_id
    history = table.history()
    first = f"its first snapshot is of {history[0].timestamp_ms}" if history else "it has no snapshots"
    raise PolicyError(f"table {options.table} had no snapshot at {options.as_of_ms} (ms since 1970); {first}")


def check_ref(table: AnyTable, ref: str, kind: SnapshotRefType | None, name: TableName) -> None:
    """Check that a table has a branch or tag (None: either); else it is a PolicyError that lists those that it has."""
    refs = table.metadata.refs
    found = refs.get(ref)
    if found is None:
        raise PolicyError(f"table {name} {no_such_ref(refs, ref, kind or SnapshotRefType.BRANCH)}")
    if kind is not None and found.snapshot_ref_type != kind:
        raise PolicyError(f"{ref!r} of table {name} is a {found.snapshot_ref_type}, not a {kind}: use the option {found.snapshot_ref_type}")


def executor_properties(storage: Mapping[str, str], catalog: Mapping[str, str]) -> dict[str, str]:
    """Return those of a table's FileIO properties (``storage``) that executors get; ``catalog`` are the catalog's properties.

    ``icelock.spark.executor-properties`` that asks for key or catalog settings is a PolicyError.
    """
    more = tuple(prefix for prefix in (part.strip() for part in catalog.get(names.SPARK_EXECUTOR_PROPERTIES, "").split(",")) if prefix)
    bad = [prefix for prefix in more if prefix.startswith(_NEVER) or any(never.startswith(prefix) for never in _NEVER)]
    if bad:
        raise PolicyError(
            f"{names.SPARK_EXECUTOR_PROPERTIES} names {', '.join(map(repr, bad))}: settings of keys and catalogs never go to executors"
        )
    return {name: value for name, value in storage.items() if name.startswith(_PREFIXES + more)}
