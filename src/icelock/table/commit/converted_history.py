"""The snapshots of a plain table as those of the encrypted one: the same ids, times, parents, numbers, summaries and schemas.

Each manifest of the plain table becomes one with the same entries (status, snapshot, sequence numbers, partition), each list one with the
same manifests. Entries of files that were deleted stay if the file is one of a kept snapshot. Gone are entries of files without rows, and
what summaries say of partitions, which would be partition values in metadata.json.

Row ids: those of version 3 stay. Files that have none, as all of version 1 and 2, get theirs in the order of snapshots, for all snapshots
alike, as an upgrade and one commit would give them.

Not here: the files (``table.maintenance.conversion.convert_history``), the newest snapshot (``table.commit.conversion``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import _new_manifest_file_name, _new_manifest_list_file_name

from icelock.errors import PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.metadata.canonical_json import canonical_json
from icelock.metadata.manifest import DataFile, ManifestEntry, ManifestFile, checked_entries, file_with
from icelock.metadata.manifest_list import row_with, write_manifest_list
from icelock.metadata.manifest_writer import EncryptedManifestWriter
from icelock.metadata.table_metadata import Snapshot, TableMetadataV3, parse_metadata
from icelock.table.commit.staged import Staged
from icelock.table.guard.snapshots import PARTITION_SUMMARY


def history_of(plain: TableMetadata, history: str, *, table: str) -> tuple[Any, ...]:
    """Return the snapshots that are kept, parents first: all (``keep``), or those that branches and tags name (``refs``).

    Raises:
        PolicyError: one without a manifest list, as writers of version 1 once made them.
    """
    named = {ref.snapshot_id for ref in plain.refs.values()}
    kept = [snapshot for snapshot in plain.snapshots if history == "keep" or snapshot.snapshot_id in named]
    for snapshot in kept:
        if not snapshot.manifest_list:
            raise PolicyError(
                f"table {table}: snapshot {snapshot.snapshot_id} has no manifest list, so its history cannot be kept: expire it, or "
                "convert the current state only (history='drop')"
            )
    return tuple(sorted(kept, key=lambda snapshot: (snapshot.sequence_number or 0, snapshot.timestamp_ms)))


class ConvertedHistory:
    """Snapshots that were converted so far, of one call; later rounds add those that are new. ``written`` is what lies on storage."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.left_out: set[str] = set()  # data files that no kept snapshot had, and delete files or entries name
        self._outdated: list[str] = []
        self._sort_orders: frozenset[int] = frozenset()  # of the plain table
        self._begin()

    def _begin(self) -> None:
        self._row_ids: dict[str, int] = {}
        self._first_ids: dict[str, int] = {}  # of manifests
        self._uuid = uuid.uuid4()
        self._number = 0
        self._next_row_id = 0
        self._deletes: dict[tuple[str, int | None], DataFile | None] = {}
        self._manifests: dict[str, ManifestFile | None] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self._listed: dict[int, tuple[str, ...]] = {}
        self._keys: dict[str, EncryptedKey] = {}

    def add(
        self,
        staged: Staged,
        plain: Any,
        snapshots: Iterable[Any],
        made: Callable[[str], DataFile | None],
        delete: Callable[[Any], DataFile | None],
    ) -> None:
        """Write the manifests and lists of snapshots that are new.

        If one of them has a data file that was left out before (a tag was made meanwhile), all are written again: manifests and delete
        files of the other snapshots say nothing of that file.

        Args:
            staged: of the encrypted table before its first snapshot.
            plain: the plain table.
            snapshots: those to keep, parents first.
            made: returns the new file of a data file, None if it has no rows or no kept snapshot has it.
            delete: writes a delete file again.

        Raises:
            PolicyError, FormatError, IntegrityError, OSError: something cannot be read or written.
        """
        if any(made(path) is not None for path in list(self.left_out)):
            self._outdated = list(self.written)
            self.left_out.clear()
            self._begin()
        self._sort_orders = frozenset(order.order_id for order in plain.metadata.sort_orders)
        new = [snapshot for snapshot in snapshots if not self.has([snapshot])]
        self._next_row_id = max(self._next_row_id, getattr(plain.metadata, "next_row_id", None) or 0)
        lists = [sorted(snapshot.manifests(plain.io), key=lambda manifest: int(manifest.content)) for snapshot in new]
        self._find_row_ids(plain.io, lists, made)
        for snapshot, listed in zip(new, lists, strict=True):
            older = [one for one in listed if one.added_snapshot_id != snapshot.snapshot_id]
            for manifest in older:  # their row ids are not the snapshot's
                self._manifest(staged, plain, manifest, made, delete)
            first = self._next_row_id
            there = [one for one in (self._manifest(staged, plain, manifest, made, delete) for manifest in listed) if one is not None]
            made_of = self._snapshot(staged, snapshot, there, first)
            self._snapshots[snapshot.snapshot_id] = made_of
            self._listed[snapshot.snapshot_id] = (made_of.manifest_list, *(one.manifest_path for one in there))

    def has(self, snapshots: Iterable[Any]) -> bool:
        """Whether all of these snapshots were converted."""
        return all(snapshot.snapshot_id in self._snapshots for snapshot in snapshots)

    def _find_row_ids(self, io: Any, lists: Iterable[Iterable[Any]], made: Callable[[str], DataFile | None]) -> None:
        """Take over the row ids that files have in a table of version 3, in whatever snapshot they got them."""
        for manifest in {one.manifest_path: one for listed in lists for one in listed if _has_row_ids(one)}.values():
            self._first_ids[manifest.manifest_path] = manifest.first_row_id
            for entry in checked_entries(manifest, io):
                file: Any = entry.data_file
                if made(file.file_path) is not None and file.first_row_id is not None:
                    self._row_ids[file.file_path] = file.first_row_id

    def _manifest(self, staged: Staged, plain: Any, manifest: Any, made: Any, delete: Any) -> ManifestFile | None:
        """Return the new manifest of one; None if no entry is left."""
        path = manifest.manifest_path
        if path not in self._manifests:
            data = manifest.content == ManifestContent.DATA
            entries = checked_entries(manifest, plain.io, discard_deleted=False)
            for entry in entries:
                entry.data_file.spec_id = manifest.partition_spec_id
            found = [(entry, made(entry.data_file.file_path) if data else self._delete(entry, delete)) for entry in entries]
            kept = [(entry, file) for entry, file in found if file is not None]
            first = self._row_ids_of(path, kept) if data else None
            self._manifests[path] = self._written(staged, manifest, [self._entry(*one) for one in kept], first) if kept else None
        return self._manifests[path]

    def _row_ids_of(self, path: str, entries: Iterable[tuple[Any, DataFile]]) -> int:
        """Give the files of a manifest row ids, if they have none; return its first. As in Java, each live row takes one."""
        first = following = self._first_ids.get(path, self._next_row_id)
        for entry, file in entries:
            if entry.status != ManifestEntryStatus.DELETED and entry.data_file.file_path not in self._row_ids:
                self._row_ids[entry.data_file.file_path] = following
                following += file.record_count
        if path not in self._first_ids:
            self._next_row_id += sum(file.record_count for entry, file in entries if entry.status != ManifestEntryStatus.DELETED)
        return first

    def _entry(self, entry: Any, file: DataFile) -> ManifestEntry:
        """Return an entry with a new file in it."""
        kept = entry.data_file
        number = entry.sequence_number or 0
        sorted_by = kept.sort_order_id if kept.sort_order_id in self._sort_orders else None  # what is unknown is unsorted (spec)
        data_file = file_with(file, partition=kept.partition, sort_order_id=sorted_by, first_row_id=self._row_ids.get(kept.file_path))
        return ManifestEntry.from_args(
            status=entry.status,
            snapshot_id=entry.snapshot_id,
            sequence_number=number,
            file_sequence_number=number if entry.file_sequence_number is None else entry.file_sequence_number,
            data_file=data_file,
        )

    def _delete(self, entry: Any, delete: Callable[[Any], DataFile | None]) -> DataFile | None:
        file = entry.data_file
        key = file.file_path, getattr(file, "content_offset", None)
        if key not in self._deletes:
            if entry.status == ManifestEntryStatus.DELETED:
                return None
            self._deletes[key] = delete(file)
        return self._deletes[key]

    def _written(self, staged: Staged, manifest: Any, entries: list[ManifestEntry], first_row_id: int | None) -> ManifestFile:
        metadata = staged.metadata
        self._number += 1
        location = staged.locations.new_metadata_location(_new_manifest_file_name(num=self._number, commit_uuid=self._uuid))
        self.written.append(location)
        with EncryptedManifestWriter(
            staged.io,
            location=location,
            spec=metadata.specs()[manifest.partition_spec_id],
            schema=metadata.schema(),
            snapshot_id=manifest.added_snapshot_id,
            content=ManifestContent(manifest.content),
            schemas=metadata.schemas,
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return row_with(
            writer.to_manifest_file(),
            sequence_number=manifest.sequence_number or 0,
            min_sequence_number=manifest.min_sequence_number or 0,
            first_row_id=first_row_id,
        )

    def _snapshot(self, staged: Staged, snapshot: Any, manifests: list[ManifestFile], first: int) -> Snapshot:
        name = _new_manifest_list_file_name(snapshot_id=snapshot.snapshot_id, attempt=1, commit_uuid=self._uuid)
        location, number = staged.locations.new_metadata_location(name), snapshot.sequence_number or 0
        self.written.append(location)
        written = write_manifest_list(
            staged.io,
            location=location,
            manifests=manifests,
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            sequence_number=number,
            first_row_id=first,
        )
        sealed = staged.io.manager.seal_manifest_list_key(written.key_metadata)
        self._keys.update({entry.key_id: entry for entry in sealed.new_entries})
        has_ids = isinstance(snapshot, Snapshot)  # of version 3; none if it is older than the table's upgrade
        return Snapshot(
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            manifest_list=location,
            sequence_number=number,
            timestamp_ms=snapshot.timestamp_ms,
            summary=without_partitions(snapshot.summary),
            schema_id=snapshot.schema_id,
            first_row_id=snapshot.first_row_id if has_ids else first,
            added_rows=snapshot.added_rows if has_ids else self._next_row_id - first,
            key_id=sealed.key_id,
        )

    def superfluous(self, snapshots: Iterable[Any]) -> list[str]:
        """Return the lists and manifests that none of these snapshots has."""
        kept = {path for snapshot in snapshots for path in self._listed[snapshot.snapshot_id]}
        return sorted({*self._outdated, *(path for paths in self._listed.values() for path in paths)} - kept)

    def onto(self, empty: TableMetadataV3, plain: TableMetadata, snapshots: Iterable[Any]) -> TableMetadataV3:
        """Return the encrypted table with its history: ``empty`` with the snapshots that are kept, branches and tags.

        Raises:
            FormatError: it would be no valid metadata of version 3.
        """
        kept = [  # an expiry meanwhile may have taken a parent away
            self._snapshots[snapshot.snapshot_id].model_copy(update={"parent_snapshot_id": snapshot.parent_snapshot_id})
            for snapshot in snapshots
        ]
        there, needed = {snapshot.snapshot_id for snapshot in kept}, {snapshot.key_id for snapshot in kept}
        lists = [key for key in self._keys.values() if key.key_id in needed]
        keks = {key.encrypted_by_id for key in lists} - {key.key_id for key in empty.encryption_keys}
        made = empty.model_copy(
            update={
                "snapshots": kept,
                "refs": dict(plain.refs),
                "snapshot_log": [entry for entry in plain.snapshot_log if entry.snapshot_id in there],
                "current_snapshot_id": plain.current_snapshot_id if plain.current_snapshot_id in there else None,
                "encryption_keys": [*empty.encryption_keys, *(key for key in self._keys.values() if key.key_id in keks), *lists],
                "next_row_id": max(self._next_row_id, empty.next_row_id),
            }
        )
        parsed = parse_metadata(canonical_json(made), location="the encrypted table with its history")
        assert isinstance(parsed, TableMetadataV3)  # noqa: S101 - it says version 3
        return parsed


def without_partitions(summary: Any) -> Any:
    """Return a snapshot's summary without what it says of partitions."""
    if summary is None:
        return None
    kept: Mapping[str, str] = {
        name: value for name, value in summary.additional_properties.items() if not name.startswith(PARTITION_SUMMARY)
    }
    return type(summary)(operation=summary.operation, **kept)


def _has_row_ids(manifest: Any) -> bool:
    return manifest.content == ManifestContent.DATA and getattr(manifest, "first_row_id", None) is not None
