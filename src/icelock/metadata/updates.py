"""Table updates for encryption keys and manifest lists, registered with PyIceberg's dispatcher; how updates are applied, a commit's times.

Their JSON is that of the REST catalog: ``{"action": "add-encryption-key", "encryption-key": {...}}`` and ``{"action":
"remove-encryption-key", "key-id": "..."}``. Keys are added in the same update list as the snapshot that needs them, before it.
``MoveManifestListUpdate`` is icelock's own, of a rotation; no REST server knows it, and none is sent it.

Writers' clocks differ. Java Iceberg does not load a table whose snapshot log or metadata log goes back by more than a minute, or whose
``last-updated-ms`` is that much before either log's end (TableMetadata's constructor: "[BUG] Expected sorted snapshot log entries."). So
times never go back here: a commit has the time of the writer's clock, or of its base if that is later. The next commit corrects a log
that an earlier version of icelock left unsorted: an entry takes the time of the one before. The age of KEKs, and what an expiry considers
old, go by the clock itself.

Not here: which keys to add (``keys.manager``), whether they may be (``table.guard.rules``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, PlainSerializer, PlainValidator
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.typedef import IcebergBaseModel

from icelock.errors import FormatError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.metadata.json_values import whole_number
from icelock.metadata.table_metadata import TableMetadataV3

_TIME: Final = attrgetter("timestamp_ms")


def commit_time_ms(base: TableMetadata, clock_ms: int) -> int:
    """Return the time of a commit, or of a snapshot, on top of ``base``, in ms since 1970: never before any earlier one."""
    return max(clock_ms, base.last_updated_ms, _latest(base.snapshot_log), _latest(base.metadata_log))


def _timed(base: TableMetadata, changed: TableMetadata, clock_ms: int) -> TableMetadata:
    """Return changed metadata with the commit's times: ``last-updated-ms`` and the logs.

    An added snapshot's own time becomes the commit's; one that became current again (a rollback) gets the commit's time in the log, as in
    Java.
    """
    there = {snapshot.snapshot_id for snapshot in base.snapshots}
    added = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in changed.snapshots if snapshot.snapshot_id not in there}
    moment = max([commit_time_ms(base, 0), *added.values()]) if added else commit_time_ms(base, clock_ms)
    old = {id(entry) for entry in base.snapshot_log}
    log = [
        entry if id(entry) in old else entry.model_copy(update={"timestamp_ms": added.get(entry.snapshot_id, moment)})
        for entry in changed.snapshot_log
    ]
    snapshot_log, metadata_log = _sorted(log), _sorted(changed.metadata_log)
    last = max(moment, _latest(snapshot_log), _latest(metadata_log))
    return changed.model_copy(update={"snapshot_log": snapshot_log, "metadata_log": metadata_log, "last_updated_ms": last})


def _latest(log: Sequence[Any]) -> int:
    return max(map(_TIME, log), default=0)


def _sorted(log: Sequence[Any]) -> list[Any]:
    """Return a log in the same order, in which no entry's time is before its predecessor's."""
    times = list(map(_TIME, log))
    if times == sorted(times):
        return list(log)
    found: list[Any] = []
    for entry in log:
        before = found[-1].timestamp_ms if found else entry.timestamp_ms
        found.append(entry if entry.timestamp_ms >= before else entry.model_copy(update={"timestamp_ms": before}))
    return found


def apply_updates(
    base: TableMetadata, updates: Iterable[Any], *, now_ms: Callable[[], int], metadata_location: str | None = None
) -> TableMetadata:
    """Return metadata with updates applied; ``base`` itself when nothing changes.

    PyIceberg's ``update_table_metadata`` without its deep copy, which costs more than all else in a commit: unchanged parts
    are shared, and none is ever changed in place.

    Raises:
        PolicyError: a setting is not a number.

    Args:
        base: the current metadata.
        updates: PyIceberg's updates and the two here, in order.
        now_ms: the clock, for changes without a time of their own (``commit_time_ms``).
        metadata_location: the file of ``base``, which goes into the metadata log; None if the result is not committed.
    """
    context = _TableMetadataUpdateContext()
    metadata: Any = base
    for update in updates:
        if isinstance(update, RemovePropertiesUpdate):
            update = _present(update, metadata)  # noqa: PLW2901
        before, metadata = metadata, _apply_table_update(update, metadata, context)
        if isinstance(update, RemoveSnapshotsUpdate):
            metadata = _with_parents(before, metadata)
    if context.has_changes():
        if metadata_location is not None:
            whole_number(metadata.properties, TableProperties.METADATA_PREVIOUS_VERSIONS_MAX, None)
            metadata = _update_table_metadata_log(metadata, metadata_location, base.last_updated_ms)
        metadata = _timed(base, metadata, now_ms())
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata  # type: ignore[no-any-return]


def _present(update: RemovePropertiesUpdate, metadata: TableMetadata) -> RemovePropertiesUpdate:
    """Return the update without properties that are not there, such as those that another writer removed first: as Java, no error."""
    return RemovePropertiesUpdate(removals=[name for name in update.removals if name in metadata.properties])


def _with_parents(before: TableMetadata, after: TableMetadata) -> TableMetadata:
    """Return metadata whose snapshots name the parents that they had, as Java's do.

    PyIceberg forgets those that are removed; then nobody could tell a table's first snapshot from the oldest that is left.
    """
    parents = {one.snapshot_id: one.parent_snapshot_id for one in before.snapshots}
    kept = [one.model_copy(update={"parent_snapshot_id": parents[one.snapshot_id]}) for one in after.snapshots]
    return after.model_copy(update={"snapshots": kept})


def _parse_key(value: Any) -> Any:
    return EncryptedKey.from_json(value) if isinstance(value, dict) else value


if TYPE_CHECKING:
    KeyEntry = EncryptedKey
else:  # pydantic must not look into the dataclass
    KeyEntry = Annotated[Any, PlainValidator(_parse_key), PlainSerializer(lambda key: key.to_json())]


class AddEncryptionKeyUpdate(IcebergBaseModel):
    """Add one entry to ``encryption-keys``."""

    action: Literal["add-encryption-key"] = Field(default="add-encryption-key")
    encryption_key: KeyEntry = Field(alias="encryption-key")


class RemoveEncryptionKeyUpdate(IcebergBaseModel):
    """Remove the entry with this id from ``encryption-keys``."""

    action: Literal["remove-encryption-key"] = Field(default="remove-encryption-key")
    key_id: str = Field(alias="key-id")


class MoveManifestListUpdate(IcebergBaseModel):
    """Give a snapshot that is there another manifest list, with its key; all else of it stays (``table.guard.key_rotation``)."""

    action: Literal["move-manifest-list"] = Field(default="move-manifest-list")
    snapshot_id: int = Field(alias="snapshot-id")
    manifest_list: str = Field(alias="manifest-list")
    key_id: str = Field(alias="key-id")


def _keyed(metadata: TableMetadata) -> TableMetadataV3:
    if not isinstance(metadata, TableMetadataV3):
        raise PolicyError(f"encryption keys need format version 3, the table has version {metadata.format_version}")
    return metadata


def _add_key(update: AddEncryptionKeyUpdate, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    base = _keyed(base_metadata)
    known = base.encryption_key(update.encryption_key.key_id)
    if known is not None:
        if known == update.encryption_key:
            return base
        raise FormatError(f"key id {update.encryption_key.key_id} is already there with different content")
    context.add_update(update)  # type: ignore[arg-type]
    return base.model_copy(update={"encryption_keys": [*base.encryption_keys, update.encryption_key]})


def _remove_key(update: RemoveEncryptionKeyUpdate, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    base = _keyed(base_metadata)
    if base.encryption_key(update.key_id) is None:
        return base
    context.add_update(update)  # type: ignore[arg-type]
    return base.model_copy(update={"encryption_keys": [key for key in base.encryption_keys if key.key_id != update.key_id]})


def _move_list(update: MoveManifestListUpdate, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    base = _keyed(base_metadata)
    if all(snapshot.snapshot_id != update.snapshot_id for snapshot in base.snapshots):
        raise PolicyError(f"there is no snapshot {update.snapshot_id} to give another manifest list")
    context.add_update(update)  # type: ignore[arg-type]
    place = {"manifest_list": update.manifest_list, "key_id": update.key_id}
    moved = [one.model_copy(update=place) if one.snapshot_id == update.snapshot_id else one for one in base.snapshots]
    return base.model_copy(update={"snapshots": moved})


# Called, not used as decorators: to type checkers, PyIceberg's union of updates is closed.
_register: Any = _apply_table_update.register
_register(AddEncryptionKeyUpdate, _add_key)
_register(RemoveEncryptionKeyUpdate, _remove_key)
_register(MoveManifestListUpdate, _move_list)
