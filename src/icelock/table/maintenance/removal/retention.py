"""Which snapshots, refs and keys of a table may expire: rules on its metadata alone.

Snapshots (Iceberg spec, "Snapshot Retention Policy"; Java RemoveSnapshots):

1. a ref other than main expires when its snapshot is older than ``max-ref-age-ms`` (its own, else ``history.expire.max-ref-age-ms``);
2. the snapshot of a ref that stays is kept; of a branch also its ancestors, until one is older than ``max-snapshot-age-ms`` and is not
   among the first ``min-snapshots-to-keep`` (the branch's own, else ``history.expire.*``);
3. a snapshot that no branch or tag leads to is kept until it is older than the table's limit, since it may be staged (as in Java).

Keys: an entry is kept if a kept snapshot names it, if it is on the way from such an entry up to the master key, or if it is the KEK that
new snapshots use. All others are removed, also those of snapshots that other engines expired (cases C-10, J-03).

Not here: committing (``table.maintenance.removal.expire``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from icelock import properties as names
from icelock.keys.kek import created_ms, is_live
from icelock.keys.key_entries import KeyEntries
from icelock.metadata.json_values import whole_number
from icelock.metadata.table_metadata import TableMetadataV3

MAX_REF_AGE_MS: Final = "history.expire.max-ref-age-ms"
_FIVE_DAYS: Final = TableProperties.MAX_SNAPSHOT_AGE_MS_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Expirable:
    """Snapshots by id, refs by name, and key entries by id that may expire."""

    snapshots: frozenset[int] = frozenset()
    refs: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs or self.keys)

    def is_part_of(self, other: Expirable) -> bool:
        """Whether the other one has all that this one has."""
        return self.snapshots <= other.snapshots and self.refs <= other.refs and set(self.keys) <= set(other.keys)


def expirable(metadata: TableMetadata, *, now_ms: int, older_than_ms: int | None = None, retain_last: int | None = None) -> Expirable:
    """Return the snapshots and refs that may expire.

    ``older_than_ms`` and ``retain_last`` are in the place of the table's ``history.expire.max-snapshot-age-ms`` and
    ``min-snapshots-to-keep``; those of branches stay.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    limit = older_than_ms if older_than_ms is not None else now_ms - _setting(metadata, TableProperties.MAX_SNAPSHOT_AGE_MS, _FIVE_DAYS)
    least = retain_last or max(1, _setting(metadata, TableProperties.MIN_SNAPSHOTS_TO_KEEP, 1))
    old_refs = {name for name, ref in metadata.refs.items() if name != MAIN_BRANCH and _is_old(metadata, ref, by_id, now_ms)}
    kept, led_to = set(), set()
    for name, ref in metadata.refs.items():
        if name in old_refs or ref.snapshot_id not in by_id:
            continue
        kept.add(ref.snapshot_id)
        led_to.add(ref.snapshot_id)
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            own_limit = limit if ref.max_snapshot_age_ms is None else now_ms - ref.max_snapshot_age_ms
            line = list(_ancestors(ref.snapshot_id, by_id))
            led_to.update(snapshot.snapshot_id for snapshot in line)
            kept.update(_newest(line, own_limit, ref.min_snapshots_to_keep or least))
    kept.update(number for number, snapshot in by_id.items() if number not in led_to and snapshot.timestamp_ms >= limit)
    return Expirable(snapshots=frozenset(by_id) - kept, refs=frozenset(old_refs))


def dead_keys(metadata: TableMetadataV3, expired: Collection[int], *, now_ms: int) -> tuple[str, ...]:
    """Return the ids of key entries that nothing needs once snapshots have expired, in the metadata's order.

    Raises:
        KeyUnavailableError, FormatError: a KEK's timestamp is missing or not a number, so the one in use is unknown.
    """
    entries = KeyEntries(metadata.encryption_keys)
    master = names.encryption_key_id(metadata.properties)
    in_use = [kek for kek in entries.keks(master or "") if is_live(kek, now_ms)]
    needed = [max(in_use, key=created_ms).key_id] if in_use else []
    needed += [snapshot.key_id for snapshot in metadata.snapshots if snapshot.key_id is not None and snapshot.snapshot_id not in expired]
    kept: set[str] = set()
    for key_id in needed:
        step = key_id
        while step in entries and step not in kept:
            kept.add(step)
            step = entries.get(step).encrypted_by_id
    return tuple(key.key_id for key in entries if key.key_id not in kept)


def _setting(metadata: TableMetadata, name: str, default: int) -> int:
    return whole_number(metadata.properties, name, default) or 0


def _is_old(metadata: TableMetadata, ref: SnapshotRef, by_id: dict[int, Snapshot], now_ms: int) -> bool:
    age = ref.max_ref_age_ms or whole_number(metadata.properties, MAX_REF_AGE_MS, None)
    return ref.snapshot_id not in by_id or (age is not None and now_ms - by_id[ref.snapshot_id].timestamp_ms > age)


def _ancestors(snapshot_id: int | None, by_id: dict[int, Snapshot]) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors, newest first."""
    while snapshot_id is not None and snapshot_id in by_id:
        yield by_id[snapshot_id]
        snapshot_id = by_id[snapshot_id].parent_snapshot_id


def _newest(line: list[Snapshot], limit: int, least: int) -> Iterator[int]:
    for count, snapshot in enumerate(line):
        if count >= least and snapshot.timestamp_ms < limit:
            return
        yield snapshot.snapshot_id
