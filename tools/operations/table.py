"""Recipes of tables, their scans, what they show, and their maintenance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, StringType

import icelock
from icelock import maintenance
from icelock.plan.planner import Planner
from tests.lakes.sqlite import people
from tools.operations.place import Place
from tools.operations.recipe import Outcome, Recipe, Use, recipes


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


TABLE = [
    *recipes(
        "Table",
        Outcome.READS,
        {
            "advance": lambda p: p.table.advance(p.table),
            "at_one_version": lambda p: p.table.at_one_version(),
            "changes": lambda p: p.table.changes(start_snapshot_id=p.first).to_arrow(),
            "current_snapshot": lambda p: p.table.current_snapshot().snapshot_id,
            "encrypted": lambda p: p.table.encrypted,
            "follow": lambda p: p.table.follow(p.table),
            "format_version": lambda p: p.table.format_version,
            "history": lambda p: p.table.history(),
            "incremental_append_scan": lambda p: p.table.incremental_append_scan(from_snapshot_id_exclusive=p.first).to_arrow(),
            "inspect": lambda p: p.table.inspect,
            "io": lambda p: p.table.io,
            "io_for": lambda p: p.table.io_for(p.table.metadata),
            "last_partition_id": lambda p: p.table.last_partition_id(),
            "last_sequence_number": lambda p: p.table.last_sequence_number,
            "location": lambda p: p.table.location(),
            "location_provider": lambda p: p.table.location_provider(),
            "maintenance": lambda p: p.table.maintenance,
            "manage_snapshots": lambda p: p.table.manage_snapshots(),
            "metadata": lambda p: p.table.metadata,
            "metadata_location": lambda p: p.table.metadata_location,
            "name": lambda p: p.table.name(),
            "name_mapping": lambda p: p.table.name_mapping(),
            "properties": lambda p: p.table.properties,
            "refresh": lambda p: p.table.refresh(),
            "refs": lambda p: p.table.refs(),
            "scan": lambda p: p.table.scan().to_arrow(),
            "schema": lambda p: p.table.schema(),
            "schemas": lambda p: p.table.schemas(),
            "snapshot_as_of_timestamp": lambda p: p.table.snapshot_as_of_timestamp(2**53),
            "snapshot_by_id": lambda p: p.table.snapshot_by_id(p.first),
            "snapshot_by_name": lambda p: p.table.snapshot_by_name("first"),
            "snapshots": lambda p: p.table.snapshots(),
            "sort_order": lambda p: p.table.sort_order(),
            "sort_orders": lambda p: p.table.sort_orders(),
            "spec": lambda p: p.table.spec(),
            "specs": lambda p: p.table.specs(),
            "to_polars": lambda p: p.table.to_polars().collect(),
            "transaction": lambda p: p.table.transaction(),
            "update_schema": lambda p: p.table.update_schema(),
            "update_sort_order": lambda p: p.table.update_sort_order(),
            "update_spec": lambda p: p.table.update_spec(),
        },
    ),
    *recipes(
        "Table",
        Outcome.ENCRYPTED,
        {
            "add_files/reencrypt": lambda p: p.table.add_files([p.plain_file], reencrypt=True),
            "append": lambda p: p.table.append(p.other()),
            "append/batches": lambda p: p.table.append(p.other().to_reader()),
            "append/branch": lambda p: p.table.append(p.other(), branch="side"),
            "append/properties": lambda p: p.table.append(p.other(), snapshot_properties={"job": "nightly"}),
            "delete": lambda p: p.table.delete("id = 3"),
            "delete/whole files": lambda p: p.table.delete("id >= 0"),
            "dynamic_partition_overwrite": lambda p: p.table.dynamic_partition_overwrite(p.other()),
            "overwrite": lambda p: p.table.overwrite(p.other()),
            "overwrite/filter": lambda p: p.table.overwrite(p.other(), overwrite_filter="id < 4"),
            "upsert": lambda p: p.table.upsert(updated(), join_cols=["id"]),
        },
    ),
    *recipes(
        "Table",
        Outcome.REFUSED,
        {
            "add_files": lambda p: p.table.add_files([p.plain_file]),
            "to_bodo": lambda p: p.table.to_bodo(),
            "to_daft": lambda p: p.table.to_daft(),
            "update_statistics": lambda p: p.table.update_statistics(),
            "append/other columns": lambda p: p.table.append(pa.table({"nope": [1]})),
        },
    ),
]


def updated() -> pa.Table:
    """Rows of which some are in the table with another name, some are new."""
    rows = people(5, 20).to_pylist()
    return pa.Table.from_pylist([{**row, "name": f"{row['name']}-new"} for row in rows], people().schema)


INSPECT = recipes(
    "InspectTable",
    Outcome.READS,
    {
        "all_data_files": lambda p: no_keys(p.table.inspect.all_data_files()),
        "all_delete_files": lambda p: no_keys(p.table.inspect.all_delete_files()),
        "all_files": lambda p: no_keys(p.table.inspect.all_files()),
        "all_manifests": lambda p: no_keys(p.table.inspect.all_manifests()),
        "data_files": lambda p: no_keys(p.table.inspect.data_files()),
        "delete_files": lambda p: no_keys(p.table.inspect.delete_files()),
        "entries": lambda p: no_keys(p.table.inspect.entries()),
        "files": lambda p: no_keys(p.table.inspect.files()),
        "history": lambda p: no_keys(p.table.inspect.history()),
        "manifests": lambda p: no_keys(p.table.inspect.manifests()),
        "metadata_log_entries": lambda p: no_keys(p.table.inspect.metadata_log_entries()),
        "partitions": lambda p: no_keys(p.table.inspect.partitions()),
        "refs": lambda p: no_keys(p.table.inspect.refs()),
        "snapshots": lambda p: no_keys(p.table.inspect.snapshots()),
    },
)


def no_keys(table: pa.Table) -> None:
    """J-05: a column of key metadata is empty, wherever it is."""
    for row in table.to_pylist():
        assert "key_metadata" not in row or row["key_metadata"] is None
        assert row.get("data_file", {}).get("key_metadata") is None


SCAN = [
    *recipes(
        "DataScan",
        Outcome.READS,
        {
            "count": lambda p: p.table.scan().count(),
            "filter": lambda p: p.table.scan().filter("id > 3").to_arrow(),
            "full_schema": lambda p: p.table.scan().full_schema,
            "has_own_schema": lambda p: p.table.scan(snapshot_id=p.first).has_own_schema,
            "iter_tasks": lambda p: list(p.table.scan().iter_tasks()),
            "pinned": lambda p: p.table.scan().pinned(p.first).to_arrow(),
            "plan_files": lambda p: p.table.scan().plan_files(),
            "projection": lambda p: p.table.scan().projection(),
            "read_context": lambda p: p.table.scan().read_context(),
            "planner": lambda p: p.table.scan().planner(Planner).plan_files(p.table.current_snapshot().manifests(p.table.io)),
            "scan_tasks": lambda p: p.table.scan().scan_tasks(),
            "select": lambda p: p.table.scan().select("id").to_arrow(),
            "snapshot": lambda p: p.table.scan().snapshot(),
            "to_arrow": lambda p: p.table.scan().to_arrow(),
            "to_arrow_batch_reader": lambda p: p.table.scan().to_arrow_batch_reader().read_all(),
            "to_duckdb": lambda p: p.table.scan().to_duckdb("t").sql("select * from t").fetchall(),
            "to_pandas": lambda p: p.table.scan().to_pandas(),
            "to_polars": lambda p: p.table.scan().to_polars(),
            "update": lambda p: p.table.scan().update(limit=3).to_arrow(),
            "use_ref": lambda p: p.table.scan().use_ref("first").to_arrow(),
            "with_case_sensitive": lambda p: p.table.scan(row_filter="ID > 3").with_case_sensitive(case_sensitive=False).to_arrow(),
        },
    ),
    Recipe("DataScan.to_ray", lambda p: p.table.scan().to_ray(), Outcome.REFUSED, (ModuleNotFoundError, NotInstalledError)),
]

INCREMENTAL = recipes(
    "IncrementalAppendScan",
    Outcome.READS,
    {
        "count": lambda p: since(p).count(),
        "from_snapshot_id_exclusive": lambda p: p.table.incremental_append_scan().from_snapshot_id_exclusive(p.first).to_arrow(),
        "from_snapshot_id_inclusive": lambda p: p.table.incremental_append_scan().from_snapshot_id_inclusive(p.first).to_arrow(),
        "plan_files": lambda p: since(p).plan_files(),
        "projection": lambda p: since(p).projection(),
        "scan_tasks": lambda p: since(p).scan_tasks(),
        "to_arrow": lambda p: since(p).to_arrow(),
        "to_arrow_batch_reader": lambda p: since(p).to_arrow_batch_reader().read_all(),
        "to_duckdb": lambda p: since(p).to_duckdb("t").sql("select * from t").fetchall(),
        "to_snapshot_id_inclusive": lambda p: since(p).to_snapshot_id_inclusive(unnamed(p)).to_arrow(),
    },
)


CHANGES = recipes(
    "Changes",
    Outcome.READS,
    {
        "columns": lambda p: p.table.changes(selected_fields=("id",)).columns,
        "read_context": lambda p: p.table.changes().read_context(p.table.schema()),
        "schema": lambda p: p.table.changes(start_snapshot_id=p.first).schema,
        "end": lambda p: p.table.changes(start_snapshot_id=p.first).end,
        "together": lambda p: list(p.table.changes(start_snapshot_id=p.first).together()),
        "sides": lambda p: p.table.changes(start_snapshot_id=p.first).sides(),
        "to_arrow": lambda p: p.table.changes(start_snapshot_id=p.first, net_changes=True).to_arrow(),
        "to_arrow_batch_reader": lambda p: p.table.changes(identifier_fields=["id"]).to_arrow_batch_reader().read_all(),
        "to_pandas": lambda p: p.table.changes(updates=False).to_pandas(),
    },
)


def since(place: Place) -> Any:
    """Return a scan of what was appended after the first snapshot."""
    return place.table.incremental_append_scan(from_snapshot_id_exclusive=place.first)


def deleted_by_vector(place: Place) -> None:
    """Delete a row by a vector."""
    place.table.transaction().set_properties({"write.delete.mode": "merge-on-read"}).commit_transaction()
    place.table.delete("id = 3")


def into_the_data(place: Place) -> None:
    """Delete a row by a vector, and take it out of the data."""
    deleted_by_vector(place)
    assert place.table.maintenance.rewrite_deletes(into="data").added_files


def removed(place: Place) -> None:
    found = maintenance.remove_leftovers(place.table, older_than=timedelta(0))
    assert found.files


def optimized(place: Place) -> None:
    done = maintenance.optimize_tables(place.catalog, ".".join(place.table.name()), options={"min-input-files": "2", "expire": "false"})
    assert not done[0].failed


MAINTENANCE = [
    *recipes(
        "MaintenanceTable",
        Outcome.READS,
        {
            "expire_snapshots": lambda p: p.table.maintenance.expire_snapshots(),
            "compact/dry run": lambda p: p.table.maintenance.compact(dry_run=True),
            "optimize/dry run": lambda p: p.table.maintenance.optimize(dry_run=True),
            "rewrite_deletes/dry run": lambda p: p.table.maintenance.rewrite_deletes(dry_run=True),
            "rotate/dry run": lambda p: p.table.maintenance.rotate(dry_run=True),
            "rewrite_manifests/dry run": lambda p: p.table.maintenance.rewrite_manifests(dry_run=True),
        },
    ),
    *recipes(
        "MaintenanceTable",
        Outcome.ENCRYPTED,
        {
            "compact": lambda p: p.table.maintenance.compact(options={"rewrite-all": "true"}),
            "compact/sorted": lambda p: p.table.maintenance.compact(sort_by="id desc", options={"rewrite-all": "true"}),
            "optimize": lambda p: p.table.maintenance.optimize(options={"min-input-files": "2", "expire": "false", "leftovers": "false"}),
            "rewrite_deletes": into_the_data,
            "rewrite_manifests": lambda p: p.table.maintenance.rewrite_manifests(),
            "rotate/lists": lambda p: p.table.maintenance.rotate("lists"),
            "rotate/all": lambda p: p.table.maintenance.rotate("all"),
            "rotate/data": lambda p: p.table.maintenance.rotate("data"),
        },
    ),
    *recipes(
        "MaintenanceTable",
        Outcome.METADATA,
        {
            "rotate/kek": lambda p: p.table.maintenance.rotate("kek"),
            "rotate/wrap": lambda p: p.table.maintenance.rotate("wrap"),
        },
    ),
    *recipes(
        "ExpireSnapshots",
        Outcome.READS,
        {
            "by_id": lambda p: p.table.maintenance.expire_snapshots().by_id(unnamed(p)),
            "by_ids": lambda p: p.table.maintenance.expire_snapshots().by_ids([unnamed(p)]),
            "clean_expired_files": lambda p: p.table.maintenance.expire_snapshots().clean_expired_files(clean=False),
            "drop_unreadable": lambda p: p.table.maintenance.expire_snapshots().drop_unreadable(),
            "older_than": lambda p: p.table.maintenance.expire_snapshots().older_than(tomorrow()),
            "plan": lambda p: p.table.maintenance.expire_snapshots().plan(),
            "retain_last": lambda p: p.table.maintenance.expire_snapshots().retain_last(1),
        },
    ),
    *recipes(
        "ExpireSnapshots",
        Outcome.REMOVES,
        {"commit": lambda p: p.table.maintenance.expire_snapshots().by_id(unnamed(p)).commit()},
    ),
    *recipes(
        "maintenance",
        Outcome.READS,
        {"leftovers": lambda p: maintenance.leftovers(p.table), "audit": lambda p: maintenance.audit(p.catalog, ".".join(p.table.name()))},
    ),
    *recipes("maintenance", Outcome.REMOVES, {"remove_leftovers": removed}),
    *recipes(
        "maintenance",
        Outcome.REFUSED,
        {
            "convert": lambda p: maintenance.convert(p.table, key_id="keyA"),
            "remove_plain": lambda p: maintenance.remove_plain(p.table),
            "undo_conversion": lambda p: maintenance.undo_conversion(p.table),
        },
    ),
    *recipes("maintenance", Outcome.ENCRYPTED, {"optimize_tables": optimized}),
]


def unnamed(place: Place) -> int:
    """Return a snapshot that no branch or tag names."""
    return int(place.table.snapshots()[1].snapshot_id)


def rollback_to_timestamp(place: Place) -> None:
    newest = place.table.current_snapshot().timestamp_ms
    place.table.manage_snapshots().rollback_to_timestamp(newest).commit()


BUILDERS: list[Recipe] = [
    *recipes(
        "UpdateSchema",
        Outcome.METADATA,
        {
            "add_column": lambda p: p.table.update_schema().add_column("more", IntegerType(), doc="a remark").commit(),
            "commit": lambda p: p.table.update_schema().rename_column("name", "called").commit(),
            "delete_column": lambda p: p.table.update_schema().delete_column("name").commit(),
            "move_after": lambda p: p.table.update_schema().move_after("id", "city").commit(),
            "move_before": lambda p: p.table.update_schema().move_before("city", "id").commit(),
            "move_first": lambda p: p.table.update_schema().move_first("city").commit(),
            "rename_column": lambda p: p.table.update_schema().rename_column("name", "called").commit(),
            "union_by_name": lambda p: p.table.update_schema().union_by_name(pa.schema([*people().schema, ("new", pa.int32())])).commit(),
            "update_column": lambda p: p.table.update_schema().update_column("name", doc="a remark").commit(),
            "make_column_optional": lambda p: with_required(p, lambda schema: schema.make_column_optional("must")),
            "set_default_value": lambda p: p.table.update_schema().set_default_value("name", "nobody").commit(),
            "set_identifier_fields": lambda p: with_required(p, identified),
        },
    ),
    *recipes(
        "UpdateSchema",
        Outcome.READS,
        {
            "assign_new_column_id": lambda p: p.table.update_schema().assign_new_column_id(),
            "case_sensitive": lambda p: p.table.update_schema().case_sensitive(case_sensitive=False),
        },
    ),
    *recipes(
        "UpdateSpec",
        Outcome.METADATA,
        {
            "add_field": lambda p: p.table.update_spec().add_field("id", BucketTransform(4), "id_bucket").commit(),
            "add_identity": lambda p: p.table.update_spec().add_identity("name").commit(),
            "commit": lambda p: p.table.update_spec().remove_field("city").commit(),
            "remove_field": lambda p: p.table.update_spec().remove_field("city").commit(),
            "rename_field": lambda p: p.table.update_spec().rename_field("city", "place").commit(),
        },
    ),
    *recipes(
        "UpdateSortOrder",
        Outcome.METADATA,
        {
            "asc": lambda p: p.table.update_sort_order().asc("id", IdentityTransform()).commit(),
            "commit": lambda p: p.table.update_sort_order().asc("id", IdentityTransform()).desc("name", IdentityTransform()).commit(),
            "desc": lambda p: p.table.update_sort_order().desc("id", IdentityTransform()).commit(),
        },
    ),
    *recipes(
        "ManageSnapshots",
        Outcome.METADATA,
        {
            "commit": lambda p: p.table.manage_snapshots().create_tag(p.first, "again").commit(),
            "create_branch": lambda p: p.table.manage_snapshots().create_branch(p.first, "work").commit(),
            "create_tag": lambda p: p.table.manage_snapshots().create_tag(p.first, "again").commit(),
            "remove_branch": lambda p: p.table.manage_snapshots().remove_branch("side").commit(),
            "remove_tag": lambda p: p.table.manage_snapshots().remove_tag("first").commit(),
            "fast_forward_branch": lambda p: p.table.manage_snapshots().fast_forward_branch("side", "main").commit(),
            "replace_branch": lambda p: p.table.manage_snapshots().replace_branch("side", "main").commit(),
            "rollback_to_snapshot": lambda p: p.table.manage_snapshots().rollback_to_snapshot(p.first).commit(),
            "rollback_to_timestamp": rollback_to_timestamp,
            "set_current_snapshot": lambda p: p.table.manage_snapshots().set_current_snapshot(p.first).commit(),
        },
    ),
]
BUILDERS += recipes(
    "ManageSnapshots", Outcome.REFUSED, {"cherrypick_snapshot": lambda p: p.table.manage_snapshots().cherrypick_snapshot(unnamed(p))}
)


def identified(schema: Any) -> Any:
    schema.set_identifier_fields("must")
    return schema


def with_required(place: Place, use: Use) -> None:
    """Use a builder on a table that has a required column of strings with a default."""
    schema = place.table.update_schema(allow_incompatible_changes=True)
    schema.add_column("must", StringType(), required=True, default_value="nobody").commit()
    use(place.table.update_schema()).commit()  # type: ignore[attr-defined]


STATIC_WRITES = ("refresh", "transaction", "maintenance", "manage_snapshots", "update_schema", "update_sort_order", "update_spec")


def static(recipe: Recipe) -> Recipe:
    """Return the recipe for a static table: it reads as every table does, and writes nothing."""
    name = recipe.name.replace("Table.", "StaticTable.", 1)
    reads = recipe.outcome is Outcome.READS and recipe.method.partition(".")[2] not in STATIC_WRITES
    return Recipe(name, recipe.use, Outcome.READS if reads else Outcome.REFUSED, recipe.error)


STATIC = [
    *(static(recipe) for recipe in TABLE),
    Recipe(
        "StaticTable.from_metadata",
        lambda p: icelock.StaticTable.from_metadata(p.table.metadata_location, p.lake.properties()).scan().to_arrow(),
        Outcome.READS,
    ),
]
RECIPES = [*TABLE, *INSPECT, *SCAN, *INCREMENTAL, *CHANGES, *MAINTENANCE, *BUILDERS]
