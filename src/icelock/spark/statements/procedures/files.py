"""Procedures that remove or add files. Source: Java's procedures of these names (1.12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from icelock.errors import PolicyError
from icelock.spark.change_rows import add_files
from icelock.spark.statements.procedures.call import Call, Procedure
from icelock.table.maintenance.removal.deletable import statistics_paths
from icelock.table.maintenance.removal.kinds import Kind, kind_of
from icelock.table.maintenance.removal.leftovers import leftovers, remove_leftovers
from icelock.table.moments import SAFE_AGE

_TABLE: Final = {"table": "string"}
_BY_DRIVER: Final = "files are listed and deleted by this process, with the storage's own parallelism"
_LEAST_AGE: Final = timedelta(days=1)
_NAMES: Final = 2


def _expire_snapshots(call: Call) -> Sequence[Sequence[Any]]:
    call.refuse(
        {
            "max_concurrent_deletes": _BY_DRIVER,
            "stream_results": _BY_DRIVER,
            "clean_expired_metadata": "schemas and partition specs that no snapshot uses are kept",
        }
    )
    table = call.table
    before = table.metadata
    builder = table.maintenance.expire_snapshots()
    older_than = call.moment("older_than")
    if older_than is not None:
        builder.older_than(older_than)
    if call["retain_last"] is not None:
        builder.retain_last(call["retain_last"])
    if call["snapshot_ids"]:
        builder.by_ids(call["snapshot_ids"])
    deleted = builder.commit().files
    lists = {snapshot.manifest_list for snapshot in before.snapshots}
    statistics = statistics_paths(before)
    kinds = [kind_of(path) for path in deleted if path not in lists and path not in statistics]
    manifests, deletes = kinds.count(Kind.MANIFEST), kinds.count(Kind.DELETE)
    counted = (len(kinds) - manifests - deletes, deletes, None, manifests, len(lists & {*deleted}), len(statistics & {*deleted}))
    return [counted]


def _remove_orphan_files(call: Call) -> Sequence[Sequence[Any]]:
    call.refuse(
        {
            "location": "the table's own folder is searched",
            "file_list_view": "the storage is listed",
            "max_concurrent_deletes": _BY_DRIVER,
            "stream_results": _BY_DRIVER,
            "prefix_listing": _BY_DRIVER,
            **dict.fromkeys(
                ("equal_schemes", "equal_authorities", "prefix_mismatch_mode"),
                "nothing is deleted where the storage lists files by other names than the metadata has",
            ),
        }
    )
    older_than = call.moment("older_than")
    if older_than is not None and not call["dry_run"] and datetime.now(UTC) - older_than < _LEAST_AGE:
        raise PolicyError(
            "remove_orphan_files: older_than is less than 24 hours ago, and files of writers that are at work look left over: "
            "give an earlier time, or use icelock.maintenance.remove_leftovers if nobody writes"
        )
    limit: datetime | timedelta = SAFE_AGE if older_than is None else older_than
    if call["dry_run"]:
        found = [file for file in leftovers(call.table, older_than=limit).files if file.kind is not Kind.OTHER]
    else:
        found = list(remove_leftovers(call.table, older_than=limit).files)
    return [(file.path,) for file in found]


def _add_files(call: Call) -> Sequence[Sequence[Any]]:
    call.refuse({"parallelism": "Spark spreads the rows over its tasks"})
    if call["partition_filter"]:
        raise PolicyError("add_files: partition_filter is not supported: name the partition's folder as the source, or INSERT a query")
    if call["check_duplicate_files"]:
        raise PolicyError(
            "add_files: check_duplicate_files is not supported: the rows are written into new, encrypted files, so the table does not know "
            "the plain ones; compare the rows, or leave it out"
        )
    source = call.parts("source_table")
    if len(source) != _NAMES or source[0].lower() != "parquet":
        raise PolicyError(f"add_files: source_table is {call['source_table']!r}; it must be parquet.`path`, and other tables go by INSERT")
    done = add_files(call.session.spark, str(call.name), source[1], reencrypt=True)
    snapshot = None if done.snapshot_id is None else call.table.metadata.snapshot_by_id(done.snapshot_id)
    summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    changed = summary.get("changed-partition-count")
    return [(done.files_added, None if changed is None else int(changed))]


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "expire_snapshots": Procedure(
        description="Remove snapshots that are not needed any more, with their files and keys",
        parameters=_TABLE,
        optional={
            "older_than": "timestamp",
            "retain_last": "int",
            "max_concurrent_deletes": "int",
            "stream_results": "boolean",
            "snapshot_ids": "array<bigint>",
            "clean_expired_metadata": "boolean",
        },
        result="deleted_data_files_count bigint, deleted_position_delete_files_count bigint, deleted_equality_delete_files_count bigint, "
        "deleted_manifest_files_count bigint, deleted_manifest_lists_count bigint, deleted_statistics_files_count bigint",
        run=_expire_snapshots,
    ),
    "remove_orphan_files": Procedure(
        description="Delete files at the table's location that nothing reaches",
        parameters=_TABLE,
        optional={
            "older_than": "timestamp",
            "location": "string",
            "dry_run": "boolean",
            "max_concurrent_deletes": "int",
            "file_list_view": "string",
            "equal_schemes": "map<string, string>",
            "equal_authorities": "map<string, string>",
            "prefix_mismatch_mode": "string",
            "prefix_listing": "boolean",
            "stream_results": "boolean",
        },
        result="orphan_file_location string not null",
        run=_remove_orphan_files,
        changes=False,
    ),
    "add_files": Procedure(
        description="Append the rows of plain Parquet files, encrypted; the plain files are kept",
        parameters={**_TABLE, "source_table": "string"},
        optional={"partition_filter": "map<string, string>", "check_duplicate_files": "boolean", "parallelism": "int"},
        result="added_files_count bigint not null, changed_partition_count bigint",
        run=_add_files,
    ),
}
