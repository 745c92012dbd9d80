"""What a table lacks of a commit, or a new one has beside it: the commit's updates are compared with what came back.

A server can accept a commit and make half of it: the snapshot without moving the branch, another manifest list, no properties. If other
commits may have followed, only what those cannot have changed is compared; a branch may have moved on from our snapshot.

Source: the REST catalog's updates. Not here: keys (``table.guard``), whether a catalog has a commit at all (``catalog.commit.outcome``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table import update as ice
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import IntegrityError

_MAIN: Final = "main"
_OF_SNAPSHOTS: Final = {"manifest_list": "manifest list", "sequence_number": "sequence number", "parent_snapshot_id": "parent"}


def missing_part(updates: tuple[Any, ...], sent: TableMetadata, kept: TableMetadata, *, followed: bool, new: bool = False) -> str:
    """Say which part of a commit a table lacks; empty if it has all of it.

    Args:
        updates: the commit's.
        sent: the table that the commit was to make.
        kept: the table as it is.
        followed: whether other commits may have followed.
        new: the commit makes the table; the catalog may add properties then.
    """
    return next(_lacking(updates, sent, kept, followed=followed, new=new), "")


def check_new(made: TableMetadata, *, table: str, catalog: str, sent: TableMetadata | None = None) -> None:
    """Check that a new table has no more than was sent: else it is another table.

    The next commit would be sealed under a KEK that this client did not make, and rows would be read that it did not write.

    ``sent`` is the table that the commit was to create; None for an empty one.

    Raises:
        IntegrityError: names what it has besides; what was written to it is left in place.
    """
    strange = next(_surplus(made, sent), "")
    if strange:
        raise IntegrityError(
            f"table {table}: it was made just now, and comes from catalog {catalog} with {strange} that this client did not send. Do not "
            "write to it: drop it, without deleting files, and find out who gave it to the catalog"
        )


def columns(schema: Schema) -> dict[int, tuple[str, str, bool]]:
    """Return name, kind and whether it is required of each column and nested field, by id; comments and defaults are left out."""
    fields = schema._lazy_id_to_field
    named = ((number, schema.find_column_name(number) or field.name, field) for number, field in fields.items())
    return {number: (name, _kind(field.field_type), field.required) for number, name, field in named}


def _kind(field_type: Any) -> str:
    return str(field_type) if field_type.is_primitive else type(field_type).__name__


def _lacking(updates: tuple[Any, ...], sent: TableMetadata, kept: TableMetadata, *, followed: bool, new: bool) -> Iterator[str]:
    yield from _snapshots(updates, kept, followed=followed)
    yield from _refs(updates, kept, followed=followed)
    if followed:
        return
    touched: set[str] = set()
    for update in updates:
        if isinstance(update, ice.SetPropertiesUpdate):
            touched.update(update.updates)
        elif isinstance(update, ice.RemovePropertiesUpdate):
            touched.update(update.removals)
    for name in sorted(touched):
        if kept.properties.get(name) != sent.properties.get(name) and (not new or name in names.FIXED):
            yield f"property {name} is not what was asked for"
    if _has(updates, ice.AddSchemaUpdate, ice.SetCurrentSchemaUpdate) and columns(kept.schema()) != columns(sent.schema()):
        yield "the schema is another one than was asked for"
    if _has(updates, ice.AddPartitionSpecUpdate, ice.SetDefaultSpecUpdate) and _spec(kept) != _spec(sent):
        yield "the partition spec is another one than was asked for"
    if _has(updates, ice.AddSortOrderUpdate, ice.SetDefaultSortOrderUpdate) and _order(kept) != _order(sent):
        yield "the sort order is another one than was asked for"


def _has(updates: tuple[Any, ...], *kinds: type) -> bool:
    return any(isinstance(update, kinds) for update in updates)


def _spec(metadata: TableMetadata) -> list[Any]:
    return [(field.source_id, str(field.transform), field.name) for field in metadata.spec().fields]


def _order(metadata: TableMetadata) -> list[Any]:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    fields = () if order is None else order.fields
    return [(field.source_id, str(field.transform), field.direction, field.null_order) for field in fields]


def _snapshots(updates: tuple[Any, ...], kept: TableMetadata, *, followed: bool) -> Iterator[str]:
    there = {snapshot.snapshot_id: snapshot for snapshot in kept.snapshots}
    for update in updates:
        if isinstance(update, ice.AddSnapshotUpdate):
            number = update.snapshot.snapshot_id
            if number not in there and not followed:
                yield f"snapshot {number} is not there"
            for name, what in _OF_SNAPSHOTS.items() if number in there else ():
                if getattr(there[number], name) != getattr(update.snapshot, name):
                    yield f"snapshot {number} has another {what}"
        elif isinstance(update, ice.RemoveSnapshotsUpdate):
            for number in sorted(there.keys() & set(update.snapshot_ids)):
                yield f"snapshot {number} is still there"


def _refs(updates: tuple[Any, ...], kept: TableMetadata, *, followed: bool) -> Iterator[str]:
    wanted: dict[str, int | None] = {}
    for update in updates:
        if isinstance(update, ice.SetSnapshotRefUpdate):
            wanted[update.ref_name] = update.snapshot_id
        elif isinstance(update, ice.RemoveSnapshotRefUpdate):
            wanted[update.ref_name] = None
    refs = {name: ref.snapshot_id for name, ref in kept.refs.items()}
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in kept.snapshots}
    for name, number in wanted.items():
        if number is None and name in refs and not followed:
            yield f"branch or tag {name} is still there"
        elif number is None or (followed and number not in parents):
            continue
        elif not _descends(refs.get(name), number, parents) and not (followed and _was_there(name, number, kept)):
            yield f"branch or tag {name} does not point to snapshot {number}"


def _descends(number: int | None, ancestor: int, parents: dict[int, int | None]) -> bool:
    """Whether a snapshot is ``ancestor`` or descends from it; also true if its history was expired."""
    seen: set[int] = set()
    while number is not None and number not in seen:
        if number == ancestor:
            return True
        seen.add(number)
        if number not in parents:
            return bool(seen - {number})
        number = parents[number]
    return False


def _was_there(name: str, number: int, kept: TableMetadata) -> bool:
    """Whether a branch or tag may have pointed to a snapshot before another commit moved it; the table logs main only."""
    return name != _MAIN or number in {entry.snapshot_id for entry in kept.snapshot_log}


def _surplus(made: Any, sent: TableMetadata | None) -> Iterator[str]:
    held, mine = _parts(made), {} if sent is None else _parts(sent)
    for what, there in held.items():
        more = sorted(there - mine.get(what, set()))
        if more:
            yield f"{what} {', '.join(more)[:200]}"
    for name in ("last_sequence_number", "next_row_id") if sent is None else ():
        counted = getattr(made, name, 0)
        if counted:
            yield f"{name.replace('_', ' ')} {counted}"


def _parts(metadata: Any) -> dict[str, set[str]]:
    return {
        "key entries": {key.key_id for key in getattr(metadata, "encryption_keys", ())},
        "snapshots": {str(one.snapshot_id) for one in (*metadata.snapshots, *metadata.snapshot_log)},
        "branches or tags": set(metadata.refs),
        "statistics": {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)},
    }
