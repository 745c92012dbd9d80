"""The outcome of a commit: found by reading, and nothing is deleted before it is known.

**Its answer was an error or got lost** (``resolve_outcome``). The table's row is read on a new connection. If it names the new metadata
file, or one whose history has it, the commit was made. If it names another one, the caller says whether that proves that the commit was not
made. If it cannot be read after some tries, or is gone, the outcome is unknown. Source: Java BaseMetastoreOperations.checkCommitStatus.

**It was accepted** (``has_commit``, ``missing_part``, ``check_new``). A server can accept a commit and make half of it: the snapshot
without moving the branch, another manifest list, no properties. So the commit's updates are compared with what came back. If other commits
may have followed, only what those cannot have changed is compared; a branch may have moved on from our snapshot.

Not here: how a row is read and replaced (``catalog.commit.pointer``), keys (``table.guard.snapshots``).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import update as ice
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import CatalogUnreachableError, IntegrityError
from icelock.io.listing import delete_files
from icelock.metadata.json_values import is_long
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.metadata.updates import MoveManifestListUpdate

logger = logging.getLogger(__name__)

_MOST_LOOKS: Final = 1000
_MAIN: Final = "main"
_OF_SNAPSHOTS: Final = {"manifest_list": "manifest list", "sequence_number": "sequence number", "parent_snapshot_id": "parent"}


def unanswered(service: str, error: Exception) -> CommitFailedException:
    """Return the error of a commit that nobody answered before anything was sent; who answers at no address has said all of it."""
    said = str(error) if isinstance(error, CatalogUnreachableError) else f"no {service} answers: {error}; nothing was changed"
    return CommitFailedException(said)


def resolve_outcome(
    staged: StagedTable,
    replaces: str | None,
    *,
    named: Callable[[], str | None],
    read: Callable[[str], TableMetadata],
    patient: bool,
) -> bool | None:
    """Whether a commit was made; None if the row cannot be read, or is gone.

    Args:
        staged: the new version.
        replaces: the metadata file that the row named before; None for a new row.
        named: reads which metadata file the row names; None if there is no row.
        read: reads a metadata file.
        patient: the request may still be on its way, so a row that does not name the new file yet is read again.
    """
    made: bool | None = None
    for seconds in waits(staged.metadata.properties):
        time.sleep(seconds)
        try:
            location = named()
            made = _tells(location, staged, replaces, read)
        except Exception as e:  # noqa: BLE001 - whatever it was, the next look may tell
            logger.debug("the row of table %s cannot be read: %s", ".".join(staged.name()), e)
            continue
        if made or not patient:
            return made
    return made


def waits(properties: Mapping[str, str]) -> list[float]:
    """Return the seconds to wait before each look, by Java's table properties: none before the first, then twice as long each time.

    A setting that is not a number is ignored: the commit may have been made, and an error now would hide that.
    """
    looks = 1 + min(_MOST_LOOKS, _number(properties, "commit.status-check.num-retries", 3))
    first = _number(properties, "commit.status-check.min-wait-ms", 1000) / 1000
    return [0.0, *(min(60.0, first * 2**look) for look in range(looks - 1))]


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    return max(0, int(text)) if is_long(text) else default  # type: ignore[arg-type]  # text, then


def has_commit(sent: CommitTableResponse, kept: IcebergTable, updates: tuple[Any, ...], *, before: str | None) -> bool:
    """Whether a table that was read back has the commit; other writers may have committed since.

    ``sent`` is the table as the catalog says it has it, ``before`` the metadata file on which the commit was prepared.
    """
    added = {update.snapshot.snapshot_id for update in updates if isinstance(update, ice.AddSnapshotUpdate)}
    there = {snapshot.snapshot_id for snapshot in kept.metadata.snapshots}
    if kept.metadata_location == sent.metadata_location:
        return added <= there
    if added and added <= there:
        return True
    history = [entry.metadata_file for entry in kept.metadata.metadata_log]
    if sent.metadata_location in history:
        return True
    replaced = {before, *(entry.metadata_file for entry in sent.metadata.metadata_log[-1:])}
    # A server that keeps no history cannot be asked about a change without a snapshot.
    return not added and not history and kept.metadata_location not in replaced


def not_there(table: str, *, catalog: str, found: str) -> CommitStateUnknownException:
    """Return the error for a commit that the catalog accepted and does not show; ``found`` is what it has instead."""
    return CommitStateUnknownException(
        f"catalog {catalog} says that the commit to table {table} was made, but has {found}, without it; nothing was deleted: load the "
        "table again later, and repeat the commit only if it still is not there"
    )


def unknown(staged: StagedTable, cause: Exception, *, who: str) -> CommitStateUnknownException:
    """Return the error for an unknown outcome; ``who`` is the catalog's server."""
    return CommitStateUnknownException(
        f"{who} did not say whether table {'.'.join(staged.name())} was changed ({type(cause).__name__}: {cause}); nothing was deleted: "
        f"look whether its metadata_location is {staged.metadata_location} or one after it before you repeat the commit"
    )


def discard(staged: StagedTable) -> None:
    """Delete the metadata file of a commit that was certainly not made."""
    delete_files(staged.io, [staged.metadata_location])


@contextlib.contextmanager
def delete_on_failure(staged: StagedTable) -> Iterator[None]:
    """Delete the staged metadata file if the block fails."""
    try:
        yield
    except BaseException:
        discard(staged)
        raise


def _tells(location: str | None, staged: StagedTable, replaces: str | None, read: Callable[[str], TableMetadata]) -> bool | None:
    if location is None:
        return False if replaces is None else None  # a table that was dropped or renamed since may have had the commit
    if location in {staged.metadata_location, replaces}:
        return location == staged.metadata_location
    # Another commit came on top of ours, or of what ours was to replace.
    return any(entry.metadata_file == staged.metadata_location for entry in read(location).metadata_log)


def missing_part(
    updates: tuple[Any, ...], sent: TableMetadata, kept: TableMetadata, *, followed: bool, new: bool = False, moves: bool = False
) -> str:
    """Say which part of a commit a table lacks; empty if it has all of it.

    Args:
        updates: the commit's.
        sent: the table that the commit was to make.
        kept: the table as it is.
        followed: whether other commits may have followed.
        new: the commit makes the table; the catalog may add properties then.
        moves: whether other commits may replace manifest lists (``table.guard.key_rotation``).
    """
    return next(_lacking(updates, sent, kept, followed=followed, new=new, moves=moves), "")


def lacks(sent: CommitTableResponse, kept: IcebergTable, updates: tuple[Any, ...], *, before: str, new: bool, moves: bool) -> str:
    """Say which part of a commit a table lacks. A REST server's answer may already have had another writer's commit."""
    log = sent.metadata.metadata_log
    followed = kept.metadata_location != sent.metadata_location or (not new and bool(log) and log[-1].metadata_file != before)
    return missing_part(updates, sent.metadata, kept.metadata, followed=followed, new=new, moves=moves)


def still_needed(sent: CommitTableResponse, kept: IcebergTable, *, moves: bool) -> TableMetadata:
    """Return what was sent; if other writers committed since, only with keys that a remaining snapshot needs.

    ``moves``: they may have given a snapshot another manifest list and key; it is left out, then.
    """
    metadata = sent.metadata
    if not isinstance(metadata, TableMetadataV3) or kept.metadata_location == sent.metadata_location:
        return metadata
    there = {snapshot.snapshot_id: getattr(snapshot, "key_id", None) for snapshot in kept.metadata.snapshots}
    moved = {one.snapshot_id for one in metadata.snapshots if there.get(one.snapshot_id) not in {None, one.key_id}} if moves else set()
    snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in moved]
    needed = {snapshot.key_id for snapshot in snapshots if snapshot.snapshot_id in there}
    needed |= {key.encrypted_by_id for key in metadata.encryption_keys if key.key_id in needed}
    keys = [key for key in metadata.encryption_keys if key.key_id in needed]
    return metadata.model_copy(update={"encryption_keys": keys, "snapshots": snapshots})


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


def _lacking(
    updates: tuple[Any, ...], sent: TableMetadata, kept: TableMetadata, *, followed: bool, new: bool, moves: bool
) -> Iterator[str]:
    yield from _snapshots(updates, kept, followed=followed, moves=moves)
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


def _snapshots(updates: tuple[Any, ...], kept: TableMetadata, *, followed: bool, moves: bool) -> Iterator[str]:
    there: dict[int, Any] = {snapshot.snapshot_id: snapshot for snapshot in kept.snapshots}
    for update in updates:
        if isinstance(update, ice.AddSnapshotUpdate):
            number = update.snapshot.snapshot_id
            if number not in there and not followed:
                yield f"snapshot {number} is not there"
            for name, what in _OF_SNAPSHOTS.items() if number in there else ():
                added: Any = update.snapshot
                rotated = moves and followed and name == "manifest_list" and there[number].key_id != added.key_id
                if getattr(there[number], name) != getattr(update.snapshot, name) and not rotated:
                    yield f"snapshot {number} has another {what}"
        elif isinstance(update, MoveManifestListUpdate):
            if not followed and getattr(there.get(update.snapshot_id), "manifest_list", None) != update.manifest_list:
                yield f"snapshot {update.snapshot_id} has another manifest list"
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
