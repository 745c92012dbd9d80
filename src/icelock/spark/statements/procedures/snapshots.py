"""Procedures on snapshots, branches and tags. Source: Java's procedures of these names (1.12); create and drop are DDL there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyiceberg.table.snapshots import ancestors_of

from icelock.errors import PolicyError
from icelock.spark.statements.procedures.call import Call, Procedure
from icelock.table.commit.branches import ManageSnapshots
from icelock.table.table import Table

_TABLE: Final = {"table": "string"}
_MOVED: Final = "previous_snapshot_id bigint, current_snapshot_id bigint not null"
_CREATED: Final = "name string not null, snapshot_id bigint not null"
_RETENTION: Final = {"max_ref_age_ms": "bigint", "max_snapshot_age_ms": "bigint", "min_snapshots_to_keep": "int"}


def _current(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _moved(call: Call, move: Callable[[ManageSnapshots], ManageSnapshots]) -> Sequence[Sequence[Any]]:
    """Move the main branch; return its snapshots before and after."""
    table = call.table
    before = _current(table)
    move(table.manage_snapshots()).commit()
    return [(before, _current(table))]


def _rollback_to_snapshot(call: Call) -> Sequence[Sequence[Any]]:
    return _moved(call, lambda manage: manage.rollback_to_snapshot(call.required("snapshot_id")))


def _rollback_to_timestamp(call: Call) -> Sequence[Sequence[Any]]:
    return _moved(call, lambda manage: manage.rollback_to_timestamp(call.required("timestamp") // 1000))


def _set_current_snapshot(call: Call) -> Sequence[Sequence[Any]]:
    if (call["snapshot_id"] is None) == (call["ref"] is None):
        raise PolicyError("set_current_snapshot takes either snapshot_id or ref")
    return _moved(call, lambda manage: manage.set_current_snapshot(call["snapshot_id"], call["ref"]))


def _fast_forward(call: Call) -> Sequence[Sequence[Any]]:
    table, branch = call.table, call.required("branch")
    before = table.metadata.refs.get(branch)
    table.manage_snapshots().fast_forward_branch(branch, call.required("to")).commit()
    return [(branch, None if before is None else before.snapshot_id, table.metadata.refs[branch].snapshot_id)]


def _cherrypick_snapshot(call: Call) -> Sequence[Sequence[Any]]:
    call.table.manage_snapshots().cherrypick_snapshot(call.required("snapshot_id"))


def _ancestors_of(call: Call) -> Sequence[Sequence[Any]]:
    table = call.table
    wanted = call["snapshot_id"]
    start = table.current_snapshot() if wanted is None else table.metadata.snapshot_by_id(wanted)
    if start is None and wanted is not None:
        raise PolicyError(f"ancestors_of: table {call.name} has no snapshot {wanted}; its metadata table snapshots lists those that it has")
    return [(snapshot.snapshot_id, snapshot.timestamp_ms) for snapshot in ancestors_of(start, table.metadata)]


def _snapshot_for(call: Call, table: Table) -> int:
    wanted: int | None = call["snapshot_id"] if call["snapshot_id"] is not None else _current(table)
    if wanted is None:
        raise PolicyError(f"{call.procedure}: table {call.name} has no snapshot yet: write rows first")
    return wanted


def _create_branch(call: Call) -> Sequence[Sequence[Any]]:
    table, name = call.table, call.required("branch")
    retention = {argument: call[argument] for argument in _RETENTION}
    table.manage_snapshots().create_branch(_snapshot_for(call, table), name, **retention).commit()
    return [(name, table.metadata.refs[name].snapshot_id)]


def _create_tag(call: Call) -> Sequence[Sequence[Any]]:
    table, name = call.table, call.required("tag")
    table.manage_snapshots().create_tag(_snapshot_for(call, table), name, call["max_ref_age_ms"]).commit()
    return [(name, table.metadata.refs[name].snapshot_id)]


def _drop_branch(call: Call) -> Sequence[Sequence[Any]]:
    return _dropped(call, call.required("branch"), ManageSnapshots.remove_branch)


def _drop_tag(call: Call) -> Sequence[Sequence[Any]]:
    return _dropped(call, call.required("tag"), ManageSnapshots.remove_tag)


def _dropped(call: Call, name: str, remove: Callable[[ManageSnapshots, str], ManageSnapshots]) -> Sequence[Sequence[Any]]:
    """Remove a branch or tag; return it with the snapshot that it had."""
    table = call.table
    before = table.metadata.refs.get(name)
    remove(table.manage_snapshots(), name).commit()
    return [(name, None if before is None else before.snapshot_id)]


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "rollback_to_snapshot": Procedure(
        description="Move the main branch back to one of its snapshots",
        parameters={**_TABLE, "snapshot_id": "bigint"},
        optional={},
        result=_MOVED,
        run=_rollback_to_snapshot,
    ),
    "rollback_to_timestamp": Procedure(
        description="Move the main branch back to its last snapshot before a time",
        parameters={**_TABLE, "timestamp": "timestamp"},
        optional={},
        result=_MOVED,
        run=_rollback_to_timestamp,
    ),
    "set_current_snapshot": Procedure(
        description="Move the main branch to a snapshot, or to that of a branch or tag",
        parameters=_TABLE,
        optional={"snapshot_id": "bigint", "ref": "string"},
        result=_MOVED,
        run=_set_current_snapshot,
    ),
    "fast_forward": Procedure(
        description="Move a branch forward to the snapshot of another",
        parameters={**_TABLE, "branch": "string", "to": "string"},
        optional={},
        result="branch_updated string not null, previous_ref bigint, updated_ref bigint not null",
        run=_fast_forward,
    ),
    "cherrypick_snapshot": Procedure(
        description="Refused in this version",
        parameters={**_TABLE, "snapshot_id": "bigint"},
        optional={},
        result="source_snapshot_id bigint not null, current_snapshot_id bigint not null",
        run=_cherrypick_snapshot,
    ),
    "ancestors_of": Procedure(
        description="List a snapshot and its ancestors",
        parameters=_TABLE,
        optional={"snapshot_id": "bigint"},
        result="snapshot_id bigint, timestamp bigint",
        run=_ancestors_of,
        changes=False,
    ),
    "create_branch": Procedure(
        description="Create a branch at a snapshot, or at the current one",
        parameters={**_TABLE, "branch": "string"},
        optional={"snapshot_id": "bigint", **_RETENTION},
        result=_CREATED,
        run=_create_branch,
    ),
    "create_tag": Procedure(
        description="Create a tag at a snapshot, or at the current one",
        parameters={**_TABLE, "tag": "string"},
        optional={"snapshot_id": "bigint", "max_ref_age_ms": "bigint"},
        result=_CREATED,
        run=_create_tag,
    ),
    "drop_branch": Procedure(
        description="Remove a branch", parameters={**_TABLE, "branch": "string"}, optional={}, result=_CREATED, run=_drop_branch
    ),
    "drop_tag": Procedure(description="Remove a tag", parameters={**_TABLE, "tag": "string"}, optional={}, result=_CREATED, run=_drop_tag),
}
