"""The section of docs/operations.md on Spark's own statements; see ``sections``."""

from __future__ import annotations

from tools.operations.section import Section, row

SQL = Section(
    "Spark SQL",
    (
        row(
            "`CREATE TABLE AS`, `CREATE OR REPLACE TABLE AS`: a table and its rows in one commit",
            "spark.register/create table as",
            "spark.register/replace table as",
            remark="a table that is replaced keeps its key",
        ),
        row(
            "`INSERT INTO` a table or a branch, `INSERT OVERWRITE`, `REPLACE WHERE`, `TRUNCATE`",
            "spark.register/insert",
            "spark.register/insert into a branch",
            "spark.register/insert overwrite",
            "spark.register/replace where",
            "spark.register/truncate",
        ),
        row(
            "`UPDATE`, `DELETE`, `MERGE`, `MERGE WITH SCHEMA EVOLUTION`",
            "spark.register/update",
            "spark.register/delete",
            "spark.register/delete where",
            "spark.register/merge",
            "spark.register/merge with schema evolution",
        ),
        row(
            "`CREATE TABLE`, `ALTER TABLE`",
            "spark.register/create table",
            "spark.register/alter table",
            "spark.register/set properties",
        ),
        row(
            "`DROP TABLE`, `ALTER TABLE ... RENAME TO`, namespaces",
            "spark.register/drop table",
            "spark.register/rename table",
            "spark.register/create namespace",
            "spark.register/drop namespace",
        ),
        row("`DROP TABLE ... PURGE`", "spark.register/drop table purge"),
        row(
            "queries, `VERSION AS OF`, metadata tables, `SHOW`, `DESCRIBE`, `CACHE TABLE`",
            "spark.register/select",
            "spark.register/version as of",
            "spark.register/metadata tables",
            "spark.register/show",
            "spark.register/cache table",
            remark="what is cached is as Spark keeps it: plain, unless `spark.io.encryption.enabled`",
        ),
        row("a table without a key, empty or not", "spark.register/plain table", "spark.register/plain table, empty"),
        row("`UNSET TBLPROPERTIES` of the key", "spark.register/unset the key"),
        row("`CREATE VIEW` in the catalog", "spark.register/view", remark="temporary views and those of `spark_catalog` work"),
        row(
            "`CALL` of `rollback_to_snapshot`, `rollback_to_timestamp`, `set_current_snapshot`, `fast_forward`",
            "call.rollback_to_snapshot",
            "call.rollback_to_timestamp",
            "call.set_current_snapshot",
            "call.fast_forward",
        ),
        row(
            "`CALL` of `create_branch`, `create_tag`, `drop_branch`, `drop_tag`",
            "call.create_branch",
            "call.create_tag",
            "call.drop_branch",
            "call.drop_tag",
        ),
        row(
            "`CALL` of `add_partition_field`, `drop_partition_field`, `set_write_order`, `set_identifier_fields`, `drop_identifier_fields`",
            "call.add_partition_field",
            "call.drop_partition_field",
            "call.set_write_order",
            "call.set_identifier_fields",
            "call.drop_identifier_fields",
        ),
        row(
            "`CALL` of `ancestors_of`, `audit`, `create_changelog_view`, and of `remove_orphan_files` with `dry_run`",
            "call.ancestors_of",
            "call.audit",
            "call.create_changelog_view",
            "call.remove_orphan_files/dry run",
        ),
        row("`CALL` of `expire_snapshots`, `remove_orphan_files`", "call.expire_snapshots", "call.remove_orphan_files"),
        row(
            "`CALL` of `rewrite_data_files`, `rewrite_manifests`, `optimize`, `rotate`",
            "call.rewrite_data_files",
            "call.rewrite_manifests",
            "call.rotate",
            "call.optimize",
            "call.rewrite_data_files/z-order",
            remark="rows and row ids stay",
        ),
        row("`CALL` of `convert` of an encrypted table", "call.convert", remark="[it is for plain tables](how-to/convert.md)"),
        row("`CALL` of `add_files`", "call.add_files", remark="the rows are written again, encrypted"),
        row(
            "`CALL` of `cherrypick_snapshot`, arguments that icelock does not have, `remove_orphan_files` for files of the last day",
            "call.cherrypick_snapshot",
            "call.expire_snapshots/arguments",
            "call.rewrite_data_files/strategy",
            "call.rewrite_manifests/arguments",
            "call.rewrite_position_delete_files/arguments",
            "call.remove_orphan_files/young files",
        ),
    ),
)
