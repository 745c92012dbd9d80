"""Every public method that a user can reach, found by reflection: a class's names without underscore, and a module's ``__all__``."""

from __future__ import annotations

import inspect
from typing import Any

import icelock.maintenance
from icelock.catalog.hive.catalog import HiveCatalog
from icelock.catalog.sql.catalog import SqlCatalog
from icelock.table.changes.changelog import Changes
from icelock.table.commit.branches import ManageSnapshots
from icelock.table.commit.producer import EncryptedFastAppend, EncryptedMergeAppend
from icelock.table.commit.row_delta import EncryptedOverwrite, EncryptedReplacePartitions
from icelock.table.data_file_transaction import EncryptedUpdateSnapshot
from icelock.table.maintenance.maintenance_table import MaintenanceTable
from icelock.table.maintenance.removal.expire import ExpireSnapshots
from icelock.table.metadata_tables.inspect import InspectTable
from icelock.table.named_updates import NamedUpdateSchema, NamedUpdateSortOrder, NamedUpdateSpec
from icelock.table.new_table import CreateTransaction
from icelock.table.read.scan import DataScan, IncrementalAppendScan
from icelock.table.table import StaticTable, Table
from icelock.table.transaction import EncryptedTransaction

# Of these only what they have beyond another class is listed, or have their own way.
BASES = {"CreateTransaction": EncryptedTransaction, "IncrementalAppendScan": DataScan, "HiveCatalog": SqlCatalog}
# Methods that an inherited one leaves to the catalog's store: tried for each all the same.
BY_STORE = {"HiveCatalog": {"register_table", "rename_table", "free_name", "create_table", "commit_table", "turn"}}
CLASSES: dict[str, type[Any]] = {
    "Table": Table,
    "StaticTable": StaticTable,
    "Transaction": EncryptedTransaction,
    "CreateTransaction": CreateTransaction,
    "UpdateSnapshot": EncryptedUpdateSnapshot,
    "FastAppend": EncryptedFastAppend,
    "MergeAppend": EncryptedMergeAppend,
    "Overwrite": EncryptedOverwrite,
    "ReplacePartitions": EncryptedReplacePartitions,
    "UpdateSchema": NamedUpdateSchema,
    "UpdateSpec": NamedUpdateSpec,
    "UpdateSortOrder": NamedUpdateSortOrder,
    "ManageSnapshots": ManageSnapshots,
    "MaintenanceTable": MaintenanceTable,
    "ExpireSnapshots": ExpireSnapshots,
    "InspectTable": InspectTable,
    "DataScan": DataScan,
    "IncrementalAppendScan": IncrementalAppendScan,
    "Changes": Changes,
    "SqlCatalog": SqlCatalog,
    "HiveCatalog": HiveCatalog,
}
TO_SPARK = "DataScan.to_spark"


def methods_of(kind: type[Any]) -> set[str]:
    """Return the names of methods, properties and class methods; plain attributes of instances are not among them."""
    return {
        name
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and (callable(member) or isinstance(member, property) or inspect.isdatadescriptor(member))
    }


def _is_inherited(owner: str, kind: type[Any], name: str) -> bool:
    return owner in BASES and name not in BY_STORE.get(owner, ()) and getattr(BASES[owner], name, None) is getattr(kind, name)


def functions_of(module: Any) -> set[str]:
    """Return the functions that a module offers."""
    return {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}


def surface() -> set[str]:
    """Return Class.method of all, without Spark."""
    found = {f"{owner}.{name}" for owner, kind in CLASSES.items() for name in methods_of(kind) if not _is_inherited(owner, kind, name)}
    found.remove(TO_SPARK)
    return found | {f"maintenance.{name}" for name in functions_of(icelock.maintenance)} | {"icelock.load_catalog"}


def spark_surface() -> set[str]:
    """Return what there is for Spark: functions, the methods of the table writer, options and modes of reads and writes, procedures."""
    import icelock.spark  # noqa: PLC0415 - needs PySpark
    from icelock.spark.settings import options, write_options  # noqa: PLC0415
    from icelock.spark.statements.procedures import registry  # noqa: PLC0415
    from icelock.spark.table_writer import TableWriter  # noqa: PLC0415

    found = {f"spark.{name}" for name in functions_of(icelock.spark)} | {f"TableWriter.{name}" for name in methods_of(TableWriter)}
    found |= {f"read.{name}" for name in options.READ} | {f"write.{name}" for name in write_options.WRITE}
    found |= {f"call.{name}" for name in registry._PROCEDURES}
    return found | {
        TO_SPARK,
        "write.mode=append",
        "write.mode=overwrite",
        "write.mode=error",
        "write.mode=ignore",
        "readStream",
        "writeStream",
    }
