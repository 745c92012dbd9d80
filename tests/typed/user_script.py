"""What users write by the documentation, typed: mypy and pyright read it strictly (``test_user_script``), and nobody runs it.

Each documented call is in here, on what the calls before it return, without a cast, an ``Any`` or an ignored line.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, StringType
from pyspark.sql import DataFrame, SparkSession

import icelock
import icelock.metrics
import icelock.spark
from icelock.errors import KmsError, KmsErrorKind
from icelock.kms import KmsClient
from icelock.maintenance import (
    audit,
    convert,
    leftovers,
    optimize_tables,
    remove_leftovers,
    remove_plain,
    undo_conversion,
)
from icelock.testing import KmsContract

lake = {"type": "sql", "uri": "sqlite:///lake.db", "warehouse": "file:///lake/warehouse"}
keys = {"encryption.kms-type": "local", "kms.local.path": "keyring.json", "kms.local.key-file": "keyring.key"}
orders = pa.table({"id": [1, 2, 3], "card": ["4000-1", "4000-2", "4000-3"]})


def open_lake() -> icelock.Catalog:
    catalog = icelock.load_catalog("lake", **lake, **keys)
    icelock.load_catalog("lake", type="rest", uri="https://catalog.example.com/api", warehouse="lake", **keys)
    icelock.load_catalog("lake", type="glue", warehouse="s3://bucket/warehouse", **{"glue.region": "eu-west-1"}, **keys)
    catalog.create_namespace("shop")
    catalog.create_namespace_if_not_exists("shop", {"owner": "sales"})
    catalog.update_namespace_properties("shop", removals={"owner"}, updates={"team": "sales"})
    owner: str | None = catalog.load_namespace_properties("shop").get("team")
    print(catalog.name, owner, catalog.namespace_exists("shop"), [".".join(name) for name in catalog.list_namespaces()])
    catalog.drop_namespace("old")
    return catalog


def tables(catalog: icelock.Catalog) -> icelock.Table:
    table: icelock.Table = catalog.create_table("shop.orders", schema=orders.schema, properties={"encryption.key-id": "lake-key"})
    table = catalog.create_table_if_not_exists("shop.orders", table.schema(), partition_spec=PartitionSpec())
    if catalog.table_exists("shop.orders"):
        table = catalog.load_table(("shop", "orders"))
    table = catalog.register_table("shop.orders", table.metadata_location)
    table = catalog.rename_table("shop.orders", "shop.sales")
    catalog.purge_table("shop.sales", drop_unreadable=True)
    catalog.drop_table("shop.sales")
    with catalog.create_table_transaction("shop.orders", orders.schema, properties={"encryption.key-id": "orders"}) as tx:
        tx.append(orders)
    catalog.create_or_replace_table_transaction("shop.orders", orders.schema).commit_transaction()
    replaced = catalog.replace_table_transaction("shop.orders", orders.schema, partition_spec=PartitionSpec())
    replaced.append(orders)
    made: icelock.Table = replaced.commit_transaction()
    catalog.close()
    return made if catalog.list_tables("shop") else table


def describe(table: icelock.Table) -> str:
    snapshot = table.current_snapshot()
    newest = 0 if snapshot is None else snapshot.snapshot_id
    before = table.snapshot_as_of_timestamp(datetime.now(UTC) - timedelta(days=1))
    named = table.snapshot_by_name("audit") or table.snapshot_by_id(newest) or before
    ages: list[int] = [one.timestamp_ms for one in table.snapshots()] + [entry.timestamp_ms for entry in table.history()]
    columns = [(field.name, str(field.field_type)) for field in table.schema().fields]
    places: tuple[str, ...] = (table.location(), table.metadata_location, ".".join(table.name()))
    shape = (table.format_version, len(table.schemas()), len(table.specs()), len(table.sort_orders()), table.last_sequence_number)
    key: str | None = table.properties.get("encryption.key-id") if table.encrypted else None
    heads = {name: ref.snapshot_id for name, ref in table.refs().items()}
    print(table.spec().fields, table.sort_order().fields, table.name_mapping(), table.metadata.table_uuid)
    table.refresh()
    print(table.io)
    return f"{named}{max(ages)}{columns}{places}{shape}{key}{heads}"


def read(table: icelock.Table) -> int:
    scan = table.scan(row_filter="id >= 2", selected_fields=("card",), snapshot_id=1, limit=10)
    scan = scan.filter("card = '4000-2'").select("card").use_ref("audit").with_case_sensitive(case_sensitive=False)
    for batch in scan.to_arrow_batch_reader():
        print(batch.num_rows)
    scan.to_duckdb("cards").execute("select 1")
    print(scan.to_pandas().shape, scan.to_polars().describe(), table.to_polars().collect().height)
    print(scan.projection().column_names, [task.file.file_path for task in scan.plan_files()])
    appended = table.incremental_append_scan(from_snapshot_id_exclusive=1, selected_fields=("id",))
    changes = table.changes(start_snapshot_id=1, identifier_fields=["id"], net_changes=True)
    for batch in changes.to_arrow_batch_reader():
        print(batch.num_rows, changes.schema.names)
    print(table.inspect.files().num_rows, table.inspect.snapshots().num_rows, table.inspect.entries(snapshot_id=1).num_rows)
    print(table.inspect.partitions().num_rows, table.inspect.manifests().num_rows, table.inspect.refs().num_rows)
    print(table.inspect.history().num_rows, table.inspect.metadata_log_entries().num_rows, table.inspect.all_files().num_rows)
    cards, added, changed = scan.to_arrow(), appended.to_arrow(), changes.to_arrow()
    print(cards["card"], added.schema, changed.num_rows)
    return scan.count() + appended.count()


def change(table: icelock.Table) -> None:
    table.append(orders)
    table.append(orders.to_reader(), snapshot_properties={"job": "nightly"}, branch="side")
    table.overwrite(orders, overwrite_filter="day = '2026-11-28'")
    table.delete("id < 10")
    table.dynamic_partition_overwrite(orders)
    result = table.upsert(orders, join_cols=["id"])
    total: int = result.rows_updated + result.rows_inserted
    table.add_files(["s3://bucket/plain.parquet"], reencrypt=True)
    with table.transaction() as tx:
        tx.delete("id = 3")
        tx.upsert(orders, ["id"])
        tx.overwrite(orders)
        tx.dynamic_partition_overwrite(orders)
        tx.add_files(["plain.parquet"], reencrypt=True)
        tx.set_properties({"owner": "sales"})
        tx.remove_properties("owner")
        with tx.update_schema() as update:
            update.add_column("note", StringType())
        current = tx.table_metadata.current_snapshot_id
        if current is not None:
            tx.manage_snapshots().create_tag(current, f"v{total}").commit()


def evolve(table: icelock.Table) -> None:
    with table.update_schema() as schema:
        schema.add_column("note", StringType(), doc="free text").rename_column("card", "number").delete_column("old")
        schema.update_column("id", LongType(), required=True).move_first("id").set_identifier_fields("id")
        schema.union_by_name(orders.schema).make_column_optional("note").move_after("note", "number").move_before("number", "note")
    with table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_day").add_identity("city").rename_field("at_day", "day").remove_field("city")
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform()).desc("at", IdentityTransform(), NullOrder.NULLS_LAST)
    print(SortDirection.ASC)
    with table.manage_snapshots() as refs:
        refs.create_branch(1, "audit", max_ref_age_ms=1000).create_tag(1, "v1").remove_tag("v0").remove_branch("old")
        refs.fast_forward_branch("main", "audit").replace_branch("audit", "main").set_current_snapshot(1)
        refs.rollback_to_snapshot(1).rollback_to_timestamp(datetime.now(UTC))


def maintain(table: icelock.Table, catalog: icelock.Catalog, newer: KmsClient) -> None:
    compacted = table.maintenance.compact(sort_by="city, id desc", options={"target-file-size-bytes": "268435456"}, dry_run=True)
    print(compacted.rewritten_files, compacted.added_files, compacted.removed_delete_files, compacted.snapshots)
    deletes = table.maintenance.rewrite_deletes(into="data")
    print(deletes.vectors, deletes.removed_delete_files, deletes.rewritten_files)
    manifests = table.maintenance.rewrite_manifests(spec_id=0, rewrite_if=lambda manifest: manifest.manifest_length < 100_000)
    print(manifests.replaced, manifests.created, manifests.kept, manifests.entries)
    expired = table.maintenance.expire_snapshots().older_than(datetime.now(UTC) - timedelta(days=7)).retain_last(3).commit()
    print(len(expired.snapshots), len(expired.keys), expired.deleted, expired.left)
    table.maintenance.expire_snapshots().by_id(1).by_ids([2, 3]).drop_unreadable().commit()
    rotated = table.maintenance.rotate("wrap", to_key="lake-key-2027", kms=newer)
    print(rotated.level, [table.maintenance.rotate(level="all", dry_run=True), table.maintenance.rotate("kek")])
    for step in table.maintenance.optimize(within=timedelta(hours=2), dry_run=True).steps:
        print(step.name, step.outcome.value, step.found, step.why)
    for optimized in optimize_tables(catalog, "shop", within=timedelta(hours=2)):
        print(optimized.table)
    for file in leftovers(table).files:
        print(file.kind.value, file.content.value, file.size, file.path)
    print(len(remove_leftovers(table).files))
    report = audit(catalog, "shop.orders", depth=["bytes", "foreign"])
    print(report.verdict.value, [finding.code for one in report.tables for finding in one.findings], report.to_json()["verdict"])
    print(report.tables[0].keks[0].lost.files)
    converted = convert(catalog.load_table("shop.plain"), key_id="lake-key", progress_file="orders.progress")
    print(converted.key_id, remove_plain(table, dry_run=True).files, undo_conversion(table).lost_snapshots)


def by_spark(spark: SparkSession, rows: DataFrame, table: icelock.Table) -> int | None:
    icelock.spark.register(spark, catalogs={"lake": {**lake, **keys}})
    rows.write.format("icelock").mode("overwrite").option("overwrite-mode", "dynamic").save("lake.shop.orders")
    name = "lake.shop.orders"
    icelock.spark.read(spark, name, columns=["id"], row_filter="id > 2", branch="audit").filter("id >= 2").show()
    icelock.spark.read(spark, name, start_snapshot_id=1).count()
    icelock.spark.read(spark, table.scan(row_filter="id > 2")).show()
    table.scan().to_spark(spark)
    icelock.spark.sql(spark, "select count(*) from lake.shop.orders").show()
    views: tuple[str, ...] = icelock.spark.attach(spark, "lake.shop", prefix="shop_")
    writer = icelock.spark.write_to(rows, name).tableProperty("encryption.key-id", "lake-key").partitionedBy("months(at)", "carrier")
    writer.using("icelock").create()
    writer.replace()
    writer.createOrReplace()
    icelock.spark.write_to(rows, name).options(**{"streaming-query-id": "orders", "streaming-epoch-id": 7}).append()
    icelock.spark.write_to(rows, name).option("branch", "audit").overwrite("true")
    icelock.spark.write_to(rows, name).overwritePartitions()
    gone = icelock.spark.delete(spark, name, "id > 7")
    icelock.spark.upsert(rows, name, ["id"], batch=("orders", 7))
    merged = (
        icelock.spark.merge(spark, name, rows, on="t.id = s.id")
        .when_matched_delete(condition="s.gone")
        .when_matched_update({"total": "t.total + s.total"})
        .when_not_matched_insert({"id": "s.id"})
        .when_not_matched_by_source_delete(condition="t.old")
        .when_not_matched_by_source_update({"total": "0"})
        .with_schema_evolution()
        .of_batch("orders", 7)
        .execute()
    )
    print(gone.snapshot_id, gone.rows_deleted, merged.rows_updated, merged.rows_inserted, views)
    icelock.spark.add_files(spark, name, ["/old/2012.parquet"], reencrypt=True)
    icelock.spark.compact(spark, name, where="id > 7")
    icelock.spark.rewrite_deletes(spark, name, into="data")
    icelock.spark.rotate(spark, name, "data")
    icelock.spark.optimize(spark, "lake.shop", within=timedelta(hours=2))
    icelock.spark.convert(spark, name, key_id="lake-key", copy_to="lake.secure.orders")
    print(icelock.spark.audit(spark, name, depth="bytes").verdict.value)
    return merged.rows_deleted


def observed(table: icelock.Table) -> int:
    with icelock.metrics.measure() as done:
        table.append(orders)
    since: icelock.metrics.Metrics = icelock.metrics.snapshot()
    icelock.metrics.reset()
    return done.kms_calls + done.files_written + since.bytes_read


class TeamKms:
    """A key service of one's own, by docs/how-to/custom-kms.md."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._url = properties["kms.team.url"]

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        if wrapping_key_id != "lake-key":
            raise KmsError("no such key", kind=KmsErrorKind.MISSING, key_id=wrapping_key_id)
        return key

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return self.wrap_key(wrapped_key, wrapping_key_id)


class TestTeamKms(KmsContract):
    """Its tests."""


def main() -> None:
    catalog = open_lake()
    table = tables(catalog)
    static: icelock.Table = icelock.StaticTable.from_metadata(table.metadata_location, keys, kms=TeamKms({}))
    try:
        print(icelock.__version__, describe(table), read(static))
        change(table)
    except icelock.IntegrityError as error:
        print(error)
    except (icelock.PolicyError, icelock.KeyUnavailableError, icelock.CommitError, icelock.FormatError) as error:
        print(str(error))
    print(observed(table))
    evolve(table)
    maintain(table, catalog, TeamKms({"kms.team.url": "https://keys.example.com"}))
