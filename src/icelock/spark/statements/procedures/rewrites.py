"""Procedures that write files again without changing a row. Source: Java's procedures of these names (1.12)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from icelock.errors import PolicyError
from icelock.spark.maintain_tables import by_tasks, convert_loaded, optimize_loaded
from icelock.spark.sealed.job import MAIN
from icelock.spark.statements.procedures.call import Call, Procedure
from icelock.table.maintenance.compaction.sort_text import TABLE
from icelock.table.moments import parse_span

_TABLE: Final = {"table": "string"}
_BINPACK, _SORT = "binpack", "sort"
_Z_ORDER: Final = re.compile(r"z_?order\s*\((?P<columns>.*)\)", re.IGNORECASE | re.DOTALL)


def _rewrite_data_files(call: Call) -> Sequence[Sequence[Any]]:
    strategy, order = str(call["strategy"] or "").lower(), call["sort_order"]
    if strategy not in {"", _BINPACK, _SORT}:
        raise PolicyError(f"rewrite_data_files: strategy is {call['strategy']!r}; it must be {_BINPACK} or {_SORT}")
    if strategy == _BINPACK and order is not None:
        raise PolicyError(f"rewrite_data_files: strategy {_BINPACK} has no order: leave sort_order out, or use {_SORT}")
    found = None if order is None else _Z_ORDER.fullmatch(order.strip())
    done = by_tasks(call.session.spark, call.table).compact(
        where=call["where"] or "true",
        sort_by=None if found is not None else (order or (TABLE if strategy == _SORT else None)),
        z_order_by=() if found is None else [name.strip().strip("`") for name in found["columns"].split(",")],
        options=call["options"] or {},
        branch=call["branch"] or MAIN,
    )
    left = done.failed_files + done.conflicted_files
    return [(done.rewritten_files, done.added_files, done.rewritten_bytes, left, done.removed_delete_files)]


def _rewrite_manifests(call: Call) -> Sequence[Sequence[Any]]:
    call.refuse({"use_caching": "manifests are read by this process"})
    done = call.table.maintenance.rewrite_manifests(spec_id=call["spec_id"])
    return [(done.replaced, done.created)]


def _rewrite_position_delete_files(call: Call) -> Sequence[Sequence[Any]]:
    reason = "all delete files of the branch become one deletion vector for each data file"
    call.refuse({"options": reason, "where": reason})
    done = by_tasks(call.session.spark, call.table).rewrite_deletes()
    size = None if done.removed_delete_files or done.vectors else 0
    return [(done.removed_delete_files, done.vectors, size, size)]


def _optimize(call: Call) -> Sequence[Sequence[Any]]:
    _ = call.table  # a namespace is none
    catalog = call.session.catalog(call.catalog)
    within = None if call["within"] is None else parse_span(call["within"], name="within")
    [done] = optimize_loaded(call.session.spark, catalog, call.name, within=within, options=call["options"], dry_run=bool(call["dry_run"]))
    return [(step.name, step.outcome.value, step.found, step.why, step.seconds) for step in done.steps]


def _convert(call: Call) -> Sequence[Sequence[Any]]:
    to = None if call["copy_to"] is None else call.name_of("copy_to")
    done = convert_loaded(
        call.session.spark,
        call.session.catalog(call.catalog),
        call.name,
        key_id=call.required("key_id"),
        data_key_length=call["data_key_length"],
        history=call["history"] or "drop",
        drop_refs=bool(call["drop_refs"]),
        copy_to=None if to is None else (call.session.catalog(to.catalog), to.identifier),
        dry_run=bool(call["dry_run"]),
    )
    return [(done.files, done.bytes, done.added_files, done.snapshot_id, ", ".join(done.dropped_refs), len(done.plain_files))]


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "rewrite_data_files": Procedure(
        description="Put small data files together, cut large ones, and write those with many deleted rows without these",
        parameters=_TABLE,
        optional={
            "strategy": "string",
            "sort_order": "string",
            "options": "map<string, string>",
            "where": "string",
            "branch": "string",
        },
        result="rewritten_data_files_count int not null, added_data_files_count int not null, rewritten_bytes_count bigint not null, "
        "failed_data_files_count int not null, removed_delete_files_count int not null",
        run=_rewrite_data_files,
    ),
    "rewrite_manifests": Procedure(
        description="Put manifests together to the target size, sorted by partition",
        parameters=_TABLE,
        optional={"use_caching": "boolean", "spec_id": "int"},
        result="rewritten_manifests_count int not null, added_manifests_count int not null",
        run=_rewrite_manifests,
    ),
    "rewrite_position_delete_files": Procedure(
        description="Make one deletion vector for each data file of all its delete files, and remove those that apply to none",
        parameters=_TABLE,
        optional={"options": "map<string, string>", "where": "string"},
        result="rewritten_delete_files_count int not null, added_delete_files_count int not null, rewritten_bytes_count bigint, "
        "added_bytes_count bigint",
        run=_rewrite_position_delete_files,
    ),
    "convert": Procedure(
        description="Make an encrypted table of a plain one, under its own name, or as another one",
        parameters={**_TABLE, "key_id": "string"},
        optional={"data_key_length": "int", "drop_refs": "boolean", "dry_run": "boolean", "copy_to": "string", "history": "string"},
        result="data_files_count int not null, data_files_bytes bigint not null, added_data_files_count int not null, snapshot_id bigint, "
        "dropped_refs string not null, plain_files_count int not null",
        run=_convert,
    ),
    "optimize": Procedure(
        description="Compact, rewrite deletes and manifests, expire snapshots and remove leftovers, as the table's numbers ask for",
        parameters=_TABLE,
        optional={"options": "map<string, string>", "within": "string", "dry_run": "boolean"},
        result="step string not null, outcome string not null, found string not null, why string not null, seconds double not null",
        run=_optimize,
    ),
}
