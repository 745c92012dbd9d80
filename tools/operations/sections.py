"""The rows of docs/operations.md: what a user wants to do, and the recipes that prove what comes of it.

Every recipe that changes something or is refused is in one row; ``test_page`` sees to it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the page; all its recipes have the same outcome."""

    what: str
    recipes: tuple[str, ...]
    remark: str = ""


@dataclass(frozen=True)
class Section:
    """A table of the page."""

    title: str
    rows: tuple[Row, ...]


def row(what: str, *recipes: str, remark: str = "") -> Row:
    return Row(what, recipes, remark)


SECTIONS = (
    Section(
        "Make, find and drop tables",
        (
            row("`create_table`, `create_table_if_not_exists`", "SqlCatalog.create_table", "SqlCatalog.create_table_if_not_exists"),
            row(
                "`create_table_transaction`, `create_or_replace_table_transaction`: a table with its first rows in one commit",
                "SqlCatalog.create_table_transaction",
                "SqlCatalog.create_or_replace_table_transaction",
                "SqlCatalog.resume_create_transaction",
                "CreateTransaction.commit_transaction",
            ),
            row(
                "`replace_table_transaction`: other columns, partitions and rows in one commit",
                "SqlCatalog.replace_table_transaction",
                "SqlCatalog.create_or_replace_table_transaction/there",
                remark="history, branches, tags, key and location stay",
            ),
            row(
                "create with `encryption.*` and format version 1 or 2, with version 3 and no key id, with a misspelt setting",
                "SqlCatalog.create_table/version 2",
                "SqlCatalog.create_table/version 3 without key",
                "SqlCatalog.create_table/misspelt",
                "SqlCatalog.create_table_transaction/version 2",
                remark="`PolicyError`",
            ),
            row("create a table that is there", "SqlCatalog.create_table/there", remark="`TableAlreadyExistsError`"),
            row("replace with another key id", "SqlCatalog.replace_table_transaction/other key"),
            row(
                "`load_table`, `list_tables`, `table_exists`", "SqlCatalog.load_table", "SqlCatalog.list_tables", "SqlCatalog.table_exists"
            ),
            row("load a table that is not there", "SqlCatalog.load_table/not there", remark="`NoSuchTableError`"),
            row("`register_table`", "SqlCatalog.register_table", remark="every key must resolve and open"),
            row(
                "`register_table` of metadata whose key id was edited out, or with `overwrite`",
                "SqlCatalog.register_table/edited",
                "SqlCatalog.register_table/overwrite",
            ),
            row("`rename_table`, `drop_table`", "SqlCatalog.rename_table", "SqlCatalog.drop_table"),
            row("`purge_table`", "SqlCatalog.purge_table", remark="manifests are opened by the decrypting reader"),
            row(
                "namespaces: create, drop, set properties",
                "SqlCatalog.create_namespace",
                "SqlCatalog.drop_namespace",
                "SqlCatalog.update_namespace_properties",
            ),
            row(
                "encryption settings on a namespace",
                "SqlCatalog.create_namespace/key",
                "SqlCatalog.update_namespace_properties/key",
                remark="tables do not inherit them",
            ),
            row(
                "views",
                "SqlCatalog.create_view",
                "SqlCatalog.drop_view",
                "SqlCatalog.list_views",
                "SqlCatalog.load_view",
                "SqlCatalog.register_view",
                "SqlCatalog.view_exists",
                remark="PyIceberg's catalogs have none",
            ),
        ),
    ),
    Section(
        "Read",
        (
            row(
                "`scan`: filter, projection, limit, `count`, `to_arrow`, batches, `to_pandas`, `to_polars`",
                "Table.scan",
                "DataScan.count",
                "DataScan.to_arrow",
                "DataScan.to_arrow_batch_reader",
                "DataScan.to_pandas",
                "DataScan.to_polars",
                "Table.to_polars",
            ),
            row(
                "time travel by snapshot id, timestamp, branch, tag",
                "DataScan.pinned",
                "DataScan.use_ref",
                "Table.snapshot_as_of_timestamp",
                "Table.snapshot_by_name",
            ),
            row("`incremental_append_scan`", "Table.incremental_append_scan", "IncrementalAppendScan.to_arrow"),
            row(
                "`inspect`: files, entries, manifests, partitions, snapshots, refs, history",
                "InspectTable.files",
                "InspectTable.entries",
                "InspectTable.manifests",
                "InspectTable.all_files",
                remark="key metadata is null in all of them",
            ),
            row("Daft, Bodo", "Table.to_bodo", "Table.to_daft", remark="they read Parquet themselves and have no keys"),
            row("`to_duckdb`, `to_ray` without DuckDB or Ray", "DataScan.to_duckdb", "DataScan.to_ray", remark="with them, as `to_arrow`"),
        ),
    ),
    Section(
        "Write rows",
        (
            row(
                "`append`: Arrow tables and batches, to a branch, with snapshot properties, as Avro",
                "Table.append",
                "Table.append/batches",
                "Table.append/branch",
                "Table.append/properties",
                "Transaction.append",
                "Transaction.append/avro",
                "Transaction.append/merged manifests",
            ),
            row(
                "`overwrite`: the whole table, or what a filter matches",
                "Table.overwrite",
                "Table.overwrite/filter",
                "Transaction.overwrite",
                "Transaction.overwrite/merge-on-read",
            ),
            row(
                "`dynamic_partition_overwrite`",
                "Table.dynamic_partition_overwrite",
                "Transaction.dynamic_partition_overwrite",
                remark="any partition transform",
            ),
            row(
                "`delete` by filter, copy-on-write (default) or merge-on-read (`write.delete.mode`)",
                "Table.delete",
                "Table.delete/whole files",
                "Transaction.delete",
                "Transaction.delete/merge-on-read",
                remark="row ids are kept; merge-on-read writes deletion vectors",
            ),
            row(
                "`upsert` by key columns, copy-on-write (default) or merge-on-read (`write.merge.mode`)",
                "Table.upsert",
                "Transaction.upsert",
                "Transaction.upsert/merge-on-read",
                remark="updated rows keep their row ids",
            ),
            row(
                "`add_files` with `reencrypt=True`",
                "Table.add_files/reencrypt",
                "Transaction.add_files/reencrypt",
                remark="rows are written again; the plain files stay where they are",
            ),
            row("`add_files` as it is", "Table.add_files", "Transaction.add_files", remark="it would take plain files in"),
            row("several operations in one `transaction`", "Transaction.commit_transaction/several", remark="one commit, or none"),
            row("rows that do not fit the table", "Table.append/other columns"),
        ),
    ),
    Section(
        "Change the table",
        (
            row(
                "`update_schema`: add, drop, rename, move, widen, document columns, defaults, identifier fields",
                "UpdateSchema.add_column",
                "UpdateSchema.commit",
                "UpdateSchema.delete_column",
                "UpdateSchema.make_column_optional",
                "UpdateSchema.move_after",
                "UpdateSchema.move_before",
                "UpdateSchema.move_first",
                "UpdateSchema.rename_column",
                "UpdateSchema.set_default_value",
                "UpdateSchema.set_identifier_fields",
                "UpdateSchema.union_by_name",
                "UpdateSchema.update_column",
                remark="defaults and comments are plain in metadata.json ([threat model](threat-model.md))",
            ),
            row(
                "`update_spec`",
                "UpdateSpec.add_field",
                "UpdateSpec.add_identity",
                "UpdateSpec.commit",
                "UpdateSpec.remove_field",
                "UpdateSpec.rename_field",
            ),
            row("`update_sort_order`", "UpdateSortOrder.asc", "UpdateSortOrder.commit", "UpdateSortOrder.desc"),
            row(
                "set and remove properties",
                "Transaction.set_properties",
                "Transaction.remove_properties",
                "SqlCatalog.commit_table",
            ),
            row(
                "set or remove `encryption.key-id`, `encryption.data-key-length`; a misspelt `encryption.*`",
                "Transaction.set_properties/key",
                "Transaction.set_properties/key length",
                "Transaction.set_properties/misspelt",
                "Transaction.remove_properties/key",
                "SqlCatalog.commit_table/key",
                remark="they are fixed when the table is made",
            ),
            row("ORC as file format", "Transaction.set_properties/ORC", remark="Iceberg has no encryption for it"),
            row(
                "branches and tags: create, remove, fast-forward, replace; roll back",
                "ManageSnapshots.commit",
                "ManageSnapshots.create_branch",
                "ManageSnapshots.create_tag",
                "ManageSnapshots.fast_forward_branch",
                "ManageSnapshots.remove_branch",
                "ManageSnapshots.remove_tag",
                "ManageSnapshots.replace_branch",
                "ManageSnapshots.rollback_to_snapshot",
                "ManageSnapshots.rollback_to_timestamp",
                "ManageSnapshots.set_current_snapshot",
            ),
            row("`cherrypick_snapshot`", "ManageSnapshots.cherrypick_snapshot"),
            row("another location", "Transaction.update_location", remark="files are where manifests say"),
            row("another format version than 3", "Transaction.upgrade_table_version/other", remark="it cannot hold keys"),
            row(
                "statistics files",
                "Table.update_statistics",
                "Transaction.update_statistics",
                remark="Iceberg has no encrypted form of them; Java's are listed",
            ),
        ),
    ),
    Section(
        "Maintain",
        (
            row(
                "`maintenance.expire_snapshots`",
                "ExpireSnapshots.commit",
                remark="key entries that nothing needs go along",
            ),
            row("`icelock.maintenance.leftovers`", "maintenance.leftovers", remark="lists files and keys that nothing needs"),
            row("`icelock.maintenance.remove_leftovers`", "maintenance.remove_leftovers"),
        ),
    ),
    Section(
        "Spark",
        (
            row(
                "`icelock.spark.read`, `sql`, `attach`, `scan.to_spark`",
                "spark.read",
                "spark.read/native",
                "spark.read/python",
                "spark.sql",
                "spark.attach",
                "DataScan.to_spark",
            ),
            row("`icelock.spark.sql` with a statement that is no query", "spark.sql/insert"),
            row(
                '`spark.read.format("icelock")`: columns, filters, snapshot id, timestamp, branch, tag',
                "read.as-of-timestamp",
                "read.branch",
                "read.columns",
                "read.snapshot-id",
                "read.table",
                "read.tag",
            ),
            row(
                "`df.write`, modes `append` and `overwrite`, whole tables, by filter, dynamic, to a branch",
                "write.branch",
                "write.mode=append",
                "write.mode=overwrite",
                "write.overwrite-filter",
                "write.overwrite-mode",
                "write.table",
                "write.validate-from-snapshot-id",
            ),
            row(
                "`icelock.spark.write_to`: create, replace, createOrReplace, append, overwrite, overwritePartitions",
                "TableWriter.append",
                "TableWriter.create",
                "TableWriter.createOrReplace",
                "TableWriter.createOrReplace/there",
                "TableWriter.overwrite",
                "TableWriter.overwrite/all",
                "TableWriter.overwritePartitions",
                "TableWriter.replace",
                remark="rows and table in one commit",
            ),
            row(
                "`icelock.spark.delete`, `upsert`, `merge`, `add_files` with `reencrypt=True`",
                "spark.delete",
                "spark.merge",
                "spark.upsert",
                "spark.add_files/reencrypt",
            ),
            row(
                "Spark SQL: `INSERT`, `UPDATE`, `DELETE`, `MERGE`, `CREATE TABLE AS`",
                "spark.register/insert",
                "spark.register/update",
                "spark.register/delete",
                "spark.register/merge",
                "spark.register/create table as",
            ),
            row("Spark SQL: `ALTER TABLE`", "spark.register/alter table"),
            row("Spark SQL: queries", "spark.register/select"),
            row("Spark SQL: a table without a key", "spark.register/plain table"),
            row("`icelock.spark.add_files` as it is", "spark.add_files", remark="it would take plain files in"),
            row(
                "create a table that is there, replace one that is not, create with format version 2, a name that is none",
                "TableWriter.create/there",
                "TableWriter.replace/not there",
                "TableWriter.create/version 2",
                "spark.write_to/not a name",
            ),
            row("modes `error` and `ignore`", "write.mode=error", "write.mode=ignore", remark="Spark has them for files only"),
            row("streaming", "readStream", "writeStream", remark="not in this version"),
        ),
    ),
    Section(
        "Steps for engines that write files themselves",
        (
            row(
                "add, replace and remove data files that were written for the table",
                "Transaction.append_data_files",
                "Transaction.change_rows",
                "Transaction.overwrite_data_files",
                "Transaction.overwrite_with_data_files",
                "Transaction.replace_partitions",
                "FastAppend.append_data_file",
                "FastAppend.commit",
                "MergeAppend.append_data_file",
                "MergeAppend.commit",
                "Overwrite.append_data_file",
                "Overwrite.apply",
                "Overwrite.commit",
                "Overwrite.delete_data_file",
                "ReplacePartitions.append_data_file",
                "ReplacePartitions.apply",
                "ReplacePartitions.commit",
                "ReplacePartitions.delete_data_file",
                remark="each file's key metadata is checked",
            ),
            row("a file without key metadata", "Transaction.append_data_files/plain", remark="it is plain"),
            row(
                "PyIceberg's own delete producer and manifest output, and writing to its `StagedTable`",
                "SqlCatalog.stage_new_table/append",
                "UpdateSnapshot.delete",
                "FastAppend.delete_data_file",
                "MergeAppend.delete_data_file",
                "FastAppend.new_manifest_output",
                "MergeAppend.new_manifest_output",
                "Overwrite.new_manifest_output",
                "ReplacePartitions.new_manifest_output",
            ),
        ),
    ),
)
