"""Data and delete files of older snapshots and tags written again under new keys, with the manifests and lists that lead to them.

It is what ``table.maintenance.rotation.rotate_lists`` does, and for each manifest the files of its entries first:

- data files and equality deletes are copied under a key of their own, once, however many snapshots reach them: Parquet module by module
  (``io.parquet_reencrypt``), Avro block by block. No value is decoded, so rows, positions, row ids, statistics, order and spec stay;
- files of deletion vectors are copied too, and name the new data files;
- entries get the new place, length and key, and stay otherwise as they are stored, so that they inherit what they did. An entry of a file
  that was deleted, and that no snapshot has, stays as it was.

The snapshots of branches are not changed here: writers that are at work hold their data files by name, and must see a conflict if these go.
``table.maintenance.rotation.rotate_data`` gives each branch a new snapshot first, as a compaction does, and then nobody writes on the
older ones. The copies that it has made are named by older snapshots, too.

Names of new files begin with digests of the rotation's KEK and of the old place, so that a call that goes on with a killed one finds those
that this one committed. Manifests and vectors are written again then: they must name the data files that this call has.

A file of deleted positions, as tables have them that were of version 2, names data files in its rows: these are written again with the new
places, and so are the bounds in its entry, by which readers tell which data files it is about.

Not here: copies of files (``table.maintenance.rotation.copied_files``), positions with other names
(``table.maintenance.compaction.moved_positions``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.table.refs import SnapshotRefType

from icelock.errors import PolicyError
from icelock.metadata.manifest import DataFile as EncryptedFile
from icelock.metadata.manifest import ManifestFile, set_contents, set_place, set_referenced, stored_entries
from icelock.metadata.manifest_writer import EncryptedManifestWriter
from icelock.table.maintenance.compaction.compact import Progress
from icelock.table.maintenance.compaction.moved_positions import MovedPositions
from icelock.table.maintenance.rotation.copied_files import DATA_NAME, CopyFiles, NewPlace, ToCopy, at_once, copy_file, copy_here
from icelock.table.maintenance.rotation.rotate_data import branches_of, numbers_since
from icelock.table.maintenance.rotation.rotate_keys import Mark, Rotated
from icelock.table.maintenance.rotation.rotate_lists import AT_ONCE, Manifest, RotatedLists
from icelock.table.state import OpenTable


class RotatedHistory(RotatedLists):
    """The part of level ``all`` after that of level ``data``; see ``RotatedLists``."""

    def __init__(
        self,
        table: OpenTable,
        keys: Rotated,
        mark: Mark,
        copy: CopyFiles,
        progress: Progress | None = None,
        *,
        current: Collection[str] = (),
    ) -> None:
        """See ``RotatedLists``; ``copy``: who copies files; ``current``, of a plan: the data files that level ``data`` would copy."""
        super().__init__(table, keys, mark, progress)
        self._copy_files = copy
        self._current = frozenset(current)
        self._new: dict[str, NewPlace] = {}  # of data and delete files, by the place before
        self._positions = MovedPositions(table)
        self._moved: dict[str, EncryptedFile] = {}  # files of positions as they are now, by the place before
        self._committed: dict[str, NewPlace] = {}  # data files of earlier calls, by the digest of the place before
        self._files_of: dict[str, set[str]] = {}  # the new files of a manifest that was written again
        self._in: dict[str, set[str]] = {}  # the committed manifests that have a new file
        self._bytes = self._data_files = 0
        self._holds_old: dict[str, bool] = {}  # manifests of after that have files of before
        self._heads_too = False  # of a plan: they are older snapshots once their branches have others
        under = numbers_since(table.metadata, self._made_ms)
        self._fresh = frozenset(number for number in under if number > mark.since)  # of snapshots of the rotation's KEK, when it begins

    def plan(self) -> Rotated:
        """Return what would be written again."""
        self._heads_too = True
        plan = super().plan()
        left = self._left()
        rows = at_once(lambda one: one.manifests(self._table.io), left)
        files = self._missing(self._of_before(left, rows).values())
        data = [file for file in files if file.content == DataFileContent.DATA and file.file_path not in self._current]
        return replace(
            plan,
            rewritten_files=plan.rewritten_files + len(data),
            rewritten_bytes=plan.rewritten_bytes + sum(file.file_size_in_bytes for file in data),
        )

    def run(self) -> Rotated:
        """Write and commit; errors are those of ``MaintenanceTable.rotate``."""
        self._learn_current()
        done = super().run()
        return replace(
            done,
            rewritten_files=done.rewritten_files + self._data_files,
            rewritten_bytes=done.rewritten_bytes + self._bytes,
            added_files=done.added_files + self._data_files,
        )

    def _left(self) -> list[Any]:
        left = super()._left()
        if self._heads_too:
            return left
        refs = self._table.metadata.refs.values()
        heads = {ref.snapshot_id for ref in refs if ref.snapshot_ref_type == SnapshotRefType.BRANCH}
        return [snapshot for snapshot in left if snapshot.snapshot_id not in heads]

    def _tells_of_before(self, row: ManifestFile) -> bool:
        return row.sequence_number <= self._mark.since

    def _is_of_before(self, row: ManifestFile) -> bool:
        """Whether a manifest leads to files of before: level ``data`` commits in steps, the first of which has files of the last one."""
        if super()._is_of_before(row):
            return True
        if self._is_written_again(row) or (row.min_sequence_number or 0) > self._mark.since:
            return False
        if row.manifest_path not in self._holds_old:
            entries = (entry for entry in stored_entries(row, self._table.io) if entry.status != ManifestEntryStatus.DELETED)
            self._holds_old[row.manifest_path] = any(_number_of(entry, row) <= self._mark.since for entry in entries)
        return self._holds_old[row.manifest_path]

    def _not_done(self) -> list[Any]:
        """Return also snapshots of branches that others made of older ones meanwhile: level ``data`` comes first there."""
        return super()._left()

    def _of_before(self, snapshots: Sequence[Any], rows: Sequence[Sequence[ManifestFile]]) -> dict[Manifest, ManifestFile]:
        """Return all manifests of the snapshots: also a newer one may have a vector of a data file of before."""
        del snapshots
        listed = (row for some in rows for row in some if not self._is_written_again(row))
        return {(row.manifest_path, row.key_metadata): row for row in listed}

    def _of_earlier_calls(self) -> dict[str, NewPlace]:
        """Return no manifest; data files that earlier calls committed are known afterwards."""
        for row in super()._of_earlier_calls().values():
            self._learn(row)
        return {}

    def _learn_current(self) -> None:
        """Know the copies that level ``data`` made for branches, in this call or an earlier one."""
        metadata, io = self._table.refresh().metadata, self._table.io
        for head in filter(None, map(metadata.snapshot_by_name, branches_of(metadata))):
            for row in head.manifests(io):
                for path in self._learn(NewPlace(path=row.manifest_path, length=row.manifest_length, key_metadata=row.key_metadata or b"")):
                    self._in[path].add(path)
                    self._carry(head.snapshot_id, [path])

    def _learn(self, row: NewPlace) -> list[str]:
        """Know the copies that a manifest has; return where they lie."""
        copies: list[str] = []
        manifest = ManifestFile.from_args(manifest_path=row.path, key_metadata=row.key_metadata)
        for entry in stored_entries(manifest, self._table.io):
            file = entry.data_file
            digest = self._digest_in(file.file_path, DATA_NAME)
            is_data = file.content == DataFileContent.DATA and entry.status != ManifestEntryStatus.DELETED
            if is_data and digest is not None and file.key_metadata is not None:
                found = NewPlace(path=file.file_path, length=file.file_size_in_bytes, key_metadata=file.key_metadata)
                self._committed.setdefault(digest, found)
                self._in.setdefault(found.path, set()).add(row.path)
                copies.append(found.path)
        return copies

    def _below(self, path: str) -> Iterable[str]:
        return (path, *self._files_of.get(path, ()))

    def _carry(self, snapshot_id: int, manifests: Iterable[str]) -> None:
        some = list(manifests)
        super()._carry(snapshot_id, some)
        for manifest in some:
            for file in self._files_of.get(manifest, ()):
                self._in.setdefault(file, set()).add(manifest)

    def _is_held(self, path: str, there: frozenset[int]) -> bool:
        held = super()._is_held
        return any(held(manifest, there) for manifest in self._in.get(path, (path,)))

    def _forget_lost(self) -> None:
        super()._forget_lost()
        there = frozenset(snapshot.snapshot_id for snapshot in self._table.metadata.snapshots)
        self._new = {path: place for path, place in self._new.items() if self._is_held(place.path, there)}
        self._committed = {digest: place for digest, place in self._committed.items() if self._is_held(place.path, there)}

    def _copies(self) -> Collection[str]:
        return {place.path for place in self._new.values()}

    def _delete(self, paths: Iterable[str]) -> None:
        gone = set(paths)
        super()._delete(gone)
        self._new = {path: place for path, place in self._new.items() if place.path not in gone}

    def _write_manifests(self, rows: Mapping[Manifest, ManifestFile]) -> None:
        missing = self._missing(rows.values())
        io = self._table.io
        positions = [file for file in missing if _is_positions(file)]
        # Vectors and positions last: they name the new data files. They are small, so this process writes them.
        for is_vectors in (False, True):
            others = [file for file in missing if (file.file_format == FileFormat.PUFFIN) == is_vectors and not _is_positions(file)]
            some = [ToCopy.of(self._keys.kek, file) for file in others]
            self._whole += sum(copy.file.file_size_in_bytes for copy in some)
            parts = [some[start : start + AT_ONCE] for start in range(0, len(some), AT_ONCE)]
            with closing(copy_here(io, parts, now_at=self._now_at) if is_vectors else self._copy_files(io, parts)) as copies:
                for part, places in zip(parts, copies, strict=True):
                    self._made(part, places)
                    self._progress(self._done, self._whole)
        self._whole += sum(file.file_size_in_bytes for file in positions)
        for start in range(0, len(positions), AT_ONCE):
            group = [ToCopy.of(self._keys.kek, file) for file in positions[start : start + AT_ONCE]]
            self._made(group, at_once(self._move_positions, group))
            self._progress(self._done, self._whole)
        data = [file for file in missing if file.content == DataFileContent.DATA]
        self._data_files += len(data)
        self._bytes += sum(file.file_size_in_bytes for file in data)
        super()._write_manifests(rows)

    def _missing(self, rows: Iterable[ManifestFile]) -> list[DataFile]:
        """Return the live files of manifests that are not written again yet, each once."""
        found: dict[str, DataFile] = {}
        manifests = list(rows)
        for start in range(0, len(manifests), AT_ONCE):
            some = manifests[start : start + AT_ONCE]
            for row, entries in zip(some, at_once(lambda row: stored_entries(row, self._table.io), some), strict=True):
                found.update((entry.data_file.file_path, entry.data_file) for entry in entries if self._is_copied(entry, row))
        for path in list(found):
            committed = self._committed.get(self._digest(path))
            if committed is not None:
                self._new[path] = committed
                del found[path]
        return list(found.values())

    def _is_copied(self, entry: Any, row: ManifestFile) -> bool:
        """Whether a file is live, and written again; data files that were added below the rotation's KEK are not, but all deletes are."""
        file = entry.data_file
        if entry.status == ManifestEntryStatus.DELETED or file.file_path in self._new:
            return False
        is_fresh = _number_of(entry, row) in self._fresh
        return file.content != DataFileContent.DATA or not is_fresh or self._digest(file.file_path) in self._committed

    def _made(self, part: Sequence[ToCopy], places: Sequence[NewPlace] | Exception) -> None:
        """Know the copies of some files."""
        if isinstance(places, Exception):
            raise places
        self._files += (place.path for place in places)
        self._new.update({copy.file.file_path: place for copy, place in zip(part, places, strict=True)})
        self._done += sum(copy.file.file_size_in_bytes for copy in part)

    def _move_positions(self, copy: ToCopy) -> NewPlace:
        """Write a file of positions again; return where it lies now."""
        made = self._positions.written(copy.file, self._now_at)
        if made is None:  # it names no file
            return copy_file(self._table.io, copy, self._now_at)
        self._files.append(made.file_path)
        self._moved[copy.file.file_path] = made
        return NewPlace(path=made.file_path, length=made.file_size_in_bytes, key_metadata=made.key_metadata or b"")

    def _now_at(self, path: str) -> str:
        place = self._new.get(path)
        return path if place is None else place.path

    def _write_manifest(self, row: ManifestFile) -> NewPlace:
        metadata = self._table.metadata
        location = self._new_location(self._manifest_name(row))
        with EncryptedManifestWriter(
            self._table.io,
            location=location,
            spec=metadata.specs()[row.partition_spec_id],
            schema=metadata.schema(),
            snapshot_id=row.added_snapshot_id or 0,
            content=row.content,
            schemas=metadata.schemas,
        ) as writer:
            for entry in stored_entries(row, self._table.io):
                place = self._move_entry(entry.data_file)
                if place is not None:
                    self._files_of.setdefault(location, set()).add(place)
                writer.add_entry(entry)
        made = writer.to_manifest_file()
        return NewPlace(path=location, length=made.manifest_length, key_metadata=made.key_metadata or b"")

    def _move_entry(self, file: DataFile) -> str | None:
        """Let an entry name its file where it lies now; return that place, if it is another one."""
        place = self._new.get(file.file_path)
        if place is not None:
            if file.file_path in self._moved:
                set_contents(file, self._moved[file.file_path])
            set_place(file, path=place.path, size=place.length, key_metadata=place.key_metadata)
        about = getattr(file, "referenced_data_file", None)
        if about is not None:
            set_referenced(file, self._now_at(about))
        return None if place is None else place.path


def _is_positions(file: DataFile) -> bool:
    return file.content == DataFileContent.POSITION_DELETES and file.file_format != FileFormat.PUFFIN


def _number_of(entry: Any, row: ManifestFile) -> int:
    """Return the sequence number of the snapshot that added a file, which entries of that snapshot inherit."""
    return int(row.sequence_number if entry.file_sequence_number is None else entry.file_sequence_number)


def check_files(manifests: Iterable[ManifestFile], table: OpenTable) -> None:
    """Check that the files of manifests can be written again, by what the manifests say.

    Raises:
        PolicyError: a plain file.
    """
    rows = list(manifests)
    for start in range(0, len(rows), AT_ONCE):
        for entries in at_once(lambda row: stored_entries(row, table.io), rows[start : start + AT_ONCE]):
            for entry in entries:
                if entry.status != ManifestEntryStatus.DELETED:
                    _check_file(entry.data_file, ".".join(table.name()))


def _check_file(file: DataFile, table: str) -> None:
    if file.key_metadata is None:
        raise PolicyError(f"table {table}: {file.file_path} is plain, so no key protects it, and nothing was changed; compact the table")
