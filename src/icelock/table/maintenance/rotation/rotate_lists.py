"""Manifest lists and manifests of all kept snapshots written again under new keys, below the KEK of a rotation; no data file is touched.

1. before anything is written, the manifest lists and manifests of all these snapshots are read: one that cannot be stops the rotation;
2. a manifest is written again once, byte for byte, under a key of its own, however many snapshots list it. What its entries inherit
   (numbers, row ids) they inherit from its row in the manifest list, and all of that row stays but place, length and key;
3. some snapshots at a time, at most ten times: their lists are written, and one commit gives each snapshot its new list and key id
   (``table.guard.key_rotation``), in the table's turn, so that no other writer comes between; a snapshot that was removed or rotated
   meanwhile is left out. Key entries that nothing needs any more go with it;
4. snapshots that writers added meanwhile, under an older KEK or with manifests of before, are done in further rounds. The last one is done
   as a whole in the table's turn, so that a stream of writers cannot be faster each time.

A snapshot is done if it is sealed under the rotation's KEK, or a later one, and lists no manifest of before. So a call that was killed is
gone on with by the next one, and manifests that the first one committed are listed again: their names begin with digests of the KEK and of
the place that they had before.

The old files stay, for readers of older metadata: nothing reaches them any more, and ``icelock.maintenance.leftovers`` lists them.

Source: spec, "Manifest Lists", "Sequence Number Inheritance", "Row ID assignment". Not here: the KEK
(``table.maintenance.rotation.rotate_keys``).
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from icelock.errors import IcelockError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.io.file_io import EncryptingFileIO, open_input
from icelock.io.files import EncryptedInputFile
from icelock.io.listing import delete_files
from icelock.io.reencrypt import reencrypt
from icelock.metadata.manifest import ManifestFile
from icelock.metadata.manifest_list import row_with, write_manifest_list
from icelock.table.maintenance.compaction.compact import Progress
from icelock.table.maintenance.rotation.copied_files import MANIFEST_NAME, NewPlace, at_once, digest_in, digest_of, new_name
from icelock.table.maintenance.rotation.key_uses import kek_uses
from icelock.table.maintenance.rotation.list_moves import ListMoves, Moved, WrittenList
from icelock.table.maintenance.rotation.rotate_data import made_at, numbers_since, take_mark_away
from icelock.table.maintenance.rotation.rotate_keys import Mark, Rotated
from icelock.table.state import OpenTable

R = TypeVar("R")
_PASSES: Final = 4  # all but the first are for snapshots that writers added meanwhile, the last one in the table's turn
_COMMITS: Final = 10
_LEAST_SNAPSHOTS: Final = 25  # in one commit
AT_ONCE: Final = 64
_PIECE: Final = 1 << 20

Manifest = tuple[str, bytes | None]  # where it lies, and the key metadata that opens it


class RotatedLists:
    """The lists' part of a rotation, after the keys' part or its plan; ``mark`` is what the table's property says meanwhile."""

    def __init__(self, table: OpenTable, keys: Rotated, mark: Mark, progress: Progress | None = None) -> None:
        self._table = table
        self._keys = keys
        self._mark = mark
        self._made_ms = made_at(table.metadata, keys.kek)  # a later rotation may take the KEK away
        self._progress = progress or (lambda _done, _all: None)
        self._again: dict[Manifest, NewPlace] = {}
        self._digests: set[str] = set()  # of the places before of all manifests that were written again
        self._earlier: dict[str, NewPlace] = {}  # by the digest of the place before
        self._carriers: dict[str, set[int]] = {}  # the snapshots that have a manifest which was written again and committed
        self._files: list[str] = []  # of the group that is at work
        self._done = self._whole = 0

    def plan(self) -> Rotated:
        """Return what would be written again."""
        self._earlier = self._of_earlier_calls()
        left = self._left()
        needed = self._of_before(left, at_once(lambda one: one.manifests(self._table.io), left))
        missing = [path for path, _ in needed if self._digest(path) not in self._earlier]
        return replace(self._keys, rotated_snapshots=len(left), rewritten_manifests=len(missing))

    def run(self) -> Rotated:
        """Write and commit; errors are those of ``MaintenanceTable.rotate``."""
        moved: set[int] = set()
        keys: list[str] = []
        if self._keys.resumed:
            self._earlier = self._of_earlier_calls()
        for number in range(_PASSES):
            with self._table.catalog.turn(self._table.name()) if number == _PASSES - 1 else nullcontext():
                left = self._left()
                size = max(_LEAST_SNAPSHOTS, -(-len(left) // _COMMITS))
                for start in range(0, len(left), size):
                    found = self._move(left[start : start + size])
                    moved |= found.snapshots
                    keys += found.keys
            if not left:
                break
        left = self._not_done()
        if not left and not self._keys.left_files:
            take_mark_away(self._table, str(self._mark))
        encryption = self._table.encryption
        return replace(
            self._keys,
            rotated_snapshots=len(moved),
            rewritten_manifests=len(self._again),
            removed_keys=tuple(keys),
            left_files=self._keys.left_files + len(left),
            keks=kek_uses(self._table.metadata, kms=encryption.kms(), now_ms=encryption.clock()),
        )

    def _older(self) -> list[Any]:
        """Return the snapshots that are not sealed under the rotation's KEK or a later one."""
        metadata = self._table.metadata
        done = numbers_since(metadata, self._made_ms)
        return [snapshot for snapshot in metadata.snapshots if snapshot.sequence_number not in done]

    def _left(self) -> list[Any]:
        """Return the snapshots of the table as it is now that are not done; lists of snapshots that were added meanwhile are read."""
        self._table.refresh()
        older = self._older()
        known = {snapshot.snapshot_id for snapshot in older}
        later = [one for one in self._table.metadata.snapshots if (one.sequence_number or 0) > self._mark.since]
        new = [one for one in later if one.snapshot_id not in known]
        rows = at_once(lambda one: one.manifests(self._table.io), new)
        return [*older, *(one for one, listed in zip(new, rows, strict=True) if any(map(self._is_of_before, listed)))]

    def _tells_of_before(self, row: ManifestFile) -> bool:  # noqa: ARG002 - by level all
        """Whether a manifest that was written again was certainly one of before."""
        return True

    def _not_done(self) -> list[Any]:
        """Return the snapshots that the next call has to do."""
        return self._left()

    def _is_of_before(self, row: ManifestFile) -> bool:
        """Whether a manifest is from before the rotation, or one that was written again."""
        if self._is_written_again(row):
            return False
        return row.sequence_number <= self._mark.since or self._digest(row.manifest_path) in self._digests

    def _is_written_again(self, row: ManifestFile) -> bool:
        return self._digest_in(row.manifest_path) is not None

    def _digest_in(self, path: str, form: re.Pattern[str] = MANIFEST_NAME) -> str | None:
        """Return the digest of the place before, which is in the name of a manifest, or other file, that this rotation wrote again."""
        return digest_in(self._keys.kek, path, form)

    def _move(self, snapshots: Sequence[Any]) -> Moved:
        """Write the lists of some snapshots again, and commit; delete what is certainly in no version of the table."""
        self._files = []
        self._forget_lost()
        snapshots = self._unchanged(snapshots)
        moves: ListMoves | None = None
        try:
            rows = at_once(lambda one: one.manifests(self._table.io), snapshots)
            self._digests.update(self._digest(path) for path, _ in RotatedLists._of_before(self, snapshots, rows))
            self._write_manifests(self._of_before(snapshots, rows))
            written = at_once(lambda one: self._write_list(*one), list(zip(snapshots, rows, strict=True)))
            used = {path for listed in rows for row in listed for path in self._below(self._place(row).path)}
            moves = ListMoves(
                self._table,
                written,
                keep_keks=bool(self._keys.wrapped),
                still=lambda there: all(self._is_held(path, there) for path in used),
            )
            moved = moves.commit()
        except BaseException as e:
            if moves is None or moves.certain:
                self._delete(self._files)
            else:
                e.add_note(f"The commit may have been made; {len(self._files)} manifests and lists of it were left in place.")
            if isinstance(e, (FileNotFoundError, KeyUnavailableError)) and self._some_are_gone(snapshots):
                return Moved()  # an expiry or another rotation took them, their files or keys; the next round does what is left
            raise
        self._clean(zip(written, rows, strict=True), moved)
        for one, listed in zip(written, rows, strict=True):
            if one.snapshot_id in moved.snapshots:
                self._carry(
                    one.snapshot_id, [self._place(row).path for row in listed if (row.manifest_path, row.key_metadata) in self._again]
                )
        return moved

    def _delete(self, paths: Iterable[str]) -> None:
        """Delete files of this call, and know nothing of them any more."""
        gone = set(paths)
        delete_files(self._table.storage, gone)
        self._again = {manifest: place for manifest, place in self._again.items() if place.path not in gone}

    def _copies(self) -> Collection[str]:
        """Return new files that later lists may need, too."""
        return ()

    def _some_are_gone(self, snapshots: Sequence[Any]) -> bool:
        self._table.refresh()
        return len(self._unchanged(snapshots)) < len(snapshots)

    def _unchanged(self, snapshots: Sequence[Any]) -> list[Any]:
        """Return the snapshots that are in the metadata at hand, with the same manifest lists: commits follow what others did meanwhile."""
        there: dict[int, Any] = {snapshot.snapshot_id: snapshot for snapshot in self._table.metadata.snapshots}
        return [one for one in snapshots if one.snapshot_id in there and there[one.snapshot_id].manifest_list == one.manifest_list]

    def _below(self, path: str) -> Iterable[str]:
        """Return the places to which a manifest leads, with its own."""
        return (path,)

    def _carry(self, snapshot_id: int, manifests: Iterable[str]) -> None:
        """Know that a snapshot has manifests that were written again."""
        for path in manifests:
            self._carriers.setdefault(path, set()).add(snapshot_id)

    def _is_held(self, path: str, there: frozenset[int]) -> bool:
        """Whether a place is not committed yet, or one of these snapshots has it, so that nobody has deleted it."""
        carriers = self._carriers.get(path)
        return carriers is None or not carriers.isdisjoint(there)

    def _forget_lost(self) -> None:
        """Forget what only snapshots had that were removed meanwhile: it may be deleted, so it is written again."""
        there = frozenset(snapshot.snapshot_id for snapshot in self._table.metadata.snapshots)
        self._again = {manifest: place for manifest, place in self._again.items() if self._is_held(place.path, there)}
        self._earlier = {digest: place for digest, place in self._earlier.items() if self._is_held(place.path, there)}

    def _clean(self, written: Iterable[tuple[WrittenList, list[ManifestFile]]], moved: Moved) -> None:
        """Delete lists of snapshots that were gone when it was committed, and manifests that only these list."""
        used: set[str] = set()
        for one, rows in written:
            if one.snapshot_id in moved.snapshots:
                used |= {one.location, *(self._place(row).path for row in rows)}
        used |= set(self._copies())
        self._delete([path for path in self._files if path not in used])

    def _of_before(self, snapshots: Sequence[Any], rows: Sequence[Sequence[ManifestFile]]) -> dict[Manifest, ManifestFile]:
        """Return the manifests of snapshots that are written again: all that an older KEK leads to, and others of before."""
        older = {snapshot.snapshot_id for snapshot in self._older()}
        return {
            (row.manifest_path, row.key_metadata): row
            for snapshot, listed in zip(snapshots, rows, strict=True)
            for row in listed
            if (snapshot.snapshot_id in older and not self._is_written_again(row)) or self._is_of_before(row)
        }

    def _place(self, row: ManifestFile) -> NewPlace:
        """Return where a manifest lies now; one that is not of before stays where it is."""
        stays = NewPlace(path=row.manifest_path, length=row.manifest_length, key_metadata=row.key_metadata or b"")
        return self._again.get((row.manifest_path, row.key_metadata), stays)

    def _write_manifests(self, rows: Mapping[Manifest, ManifestFile]) -> None:
        for manifest, row in rows.items():
            earlier = self._earlier.get(self._digest(row.manifest_path))
            if earlier is not None:
                self._again[manifest] = earlier
        missing = [row for manifest, row in rows.items() if manifest not in self._again]
        self._whole += sum(row.manifest_length for row in missing)
        for start in range(0, len(missing), AT_ONCE):
            some = missing[start : start + AT_ONCE]
            for row, place in zip(some, at_once(self._write_manifest, some), strict=True):
                self._again[row.manifest_path, row.key_metadata] = place
                self._done += row.manifest_length
            self._progress(self._done, self._whole)

    def _write_manifest(self, row: ManifestFile) -> NewPlace:
        location = self._new_location(self._manifest_name(row))
        source = open_input(self._table.io, row.manifest_path, row.key_metadata)
        assert isinstance(source, EncryptedInputFile)  # noqa: S101 - it has key metadata: ``check_readable``
        key = reencrypt(source, self._table.io.new_encrypted_output(location))
        return NewPlace(path=location, length=key.encrypted_length or 0, key_metadata=key.encode())

    def _manifest_name(self, row: ManifestFile) -> str:
        return new_name(self._keys.kek, row.manifest_path, "-m.avro")

    def _write_list(self, snapshot: Any, rows: Sequence[ManifestFile]) -> WrittenList:
        location = self._new_location(f"snap-{snapshot.snapshot_id}-0-{uuid.uuid4()}.avro")
        places = list(map(self._place, rows))
        written = write_manifest_list(
            self._table.io,
            location=location,
            manifests=[
                row_with(row, manifest_path=place.path, manifest_length=place.length, key_metadata=place.key_metadata)
                for row, place in zip(rows, places, strict=True)
            ],
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            sequence_number=snapshot.sequence_number,
            first_row_id=snapshot.first_row_id,
            again=True,
        )
        before = (snapshot.manifest_list, snapshot.key_id)
        return WrittenList(snapshot_id=snapshot.snapshot_id, before=before, location=location, key_metadata=written.key_metadata)

    def _new_location(self, name: str) -> str:
        location = self._table.location_provider().new_metadata_location(name)
        self._files.append(location)
        return location

    def _digest(self, path: str) -> str:
        return digest_of(self._keys.kek, path)

    def _of_earlier_calls(self) -> dict[str, NewPlace]:
        """Return the manifests that earlier calls of this rotation wrote and committed."""
        older = {snapshot.snapshot_id for snapshot in self._table.metadata.snapshots} - {one.snapshot_id for one in self._older()}
        done = [snapshot for snapshot in self._table.metadata.snapshots if snapshot.snapshot_id in older]
        found: dict[str, NewPlace] = {}
        for snapshot, rows in zip(done, at_once(lambda one: one.manifests(self._table.io), done), strict=True):
            for row in rows:
                digest = self._digest_in(row.manifest_path)
                if digest is not None and row.key_metadata is not None:
                    found[digest] = NewPlace(path=row.manifest_path, length=row.manifest_length, key_metadata=row.key_metadata)
                    self._carry(snapshot.snapshot_id, [row.manifest_path])
                    if self._tells_of_before(row):
                        self._digests.add(digest)
        return found


def check_readable(snapshots: Sequence[Any], table: OpenTable) -> dict[Manifest, ManifestFile]:
    """Read the manifest lists and manifests of snapshots, each once; return the manifests.

    Raises:
        KeyUnavailableError, IntegrityError, PolicyError: one cannot be read, or is plain; says which snapshots need it, and the way out.
    """
    bad: dict[int, Exception] = {}
    listed: dict[Manifest, ManifestFile] = {}
    needed_by: dict[Manifest, list[int]] = defaultdict(list)
    for snapshot, rows in zip(snapshots, at_once(lambda one: _tried(partial(_rows, one, table.io)), snapshots), strict=True):
        if isinstance(rows, Exception):
            bad[snapshot.snapshot_id] = rows
            continue
        for row in rows:
            listed.setdefault((row.manifest_path, row.key_metadata), row)
            needed_by[row.manifest_path, row.key_metadata].append(snapshot.snapshot_id)
    manifests = list(listed)
    for start in range(0, len(manifests), AT_ONCE):
        some = manifests[start : start + AT_ONCE]
        for manifest, error in zip(some, at_once(lambda one: _tried(partial(_read_through, *one, table.io)), some), strict=True):
            if isinstance(error, Exception):
                bad.update((number, error) for number in needed_by[manifest] if number not in bad)
    if bad:
        raise _unreadable(bad)
    return listed


def _rows(snapshot: Any, io: EncryptingFileIO) -> list[ManifestFile]:
    if snapshot.key_id is None:
        raise PolicyError(f"the manifest list {snapshot.manifest_list} is plain, so no key protects it")
    rows: list[ManifestFile] = snapshot.manifests(io)
    for row in rows:
        if row.key_metadata is None:
            raise PolicyError(f"the manifest {row.manifest_path} is plain, so no key protects it")
    return rows


def _read_through(path: str, key_metadata: bytes | None, io: EncryptingFileIO) -> None:
    with open_input(io, path, key_metadata).open() as stream:
        while stream.read(_PIECE):
            pass


def _tried(work: Callable[[], R]) -> R | Exception:
    try:
        return work()
    except (IcelockError, OSError) as e:
        return e


def _unreadable(bad: Mapping[int, Exception]) -> IcelockError:
    first = next(iter(bad.values()))
    numbers = ", ".join(map(str, sorted(bad)))
    kind = next((kind for kind in (KeyUnavailableError, PolicyError) if isinstance(first, kind)), IntegrityError)
    error = kind(
        f"{first}; so these snapshots cannot be written again: {numbers}. Nothing was changed: restore the file, or give the snapshots up "
        "(remove the branches and tags that name them, then expire_snapshots().by_ids([..]).drop_unreadable().commit()), and rotate again"
    )
    error.__cause__ = first
    return error
