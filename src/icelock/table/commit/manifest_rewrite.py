"""Manifests put together anew, in one snapshot whose operation is ``replace`` and that changes no file (Java RewriteManifests).

Each attempt of the commit looks at the manifests that the branch has then. What was written for an earlier attempt is listed again if all
manifests that it stands for are still there: those that others added meanwhile stay as they are. Otherwise it is worked out again, so an
entry can be neither lost nor brought back.

Not here: which manifests, and in which order their entries are (``table.commit.manifest_order``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pyiceberg.manifest import DataFile, ManifestEntryStatus, ManifestFile
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import UpdatesAndRequirements
from pyiceberg.table.update.snapshot import _SnapshotProducer

from icelock.metadata.manifest import ManifestEntry
from icelock.table.commit.manifest_order import Choice, ManifestGroup, arranged_entries, groups_to_write
from icelock.table.commit.producer import EncryptedProducer, merge_sizes

_SLACK: Final = 1.2  # Java: a manifest may exceed the target by as much, so that what is left over makes no tiny one

Progress = Callable[[int, int], None]
"""Told after each group of manifests: how many were replaced so far, and how many will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    group: ManifestGroup
    schema_id: int
    manifests: tuple[ManifestFile, ...]


class EncryptedManifestRewrite(EncryptedProducer, _SnapshotProducer["EncryptedManifestRewrite"]):
    """The producer: no file is added or removed, and no snapshot is made if the manifests are good as they are."""

    _merges = False
    reads_data = True  # another attempt may have to write everything again

    def __init__(self, operation: Operation, transaction: Any, io: Any, **arguments: Any) -> None:
        super().__init__(operation, transaction, io, **arguments)
        self._choice = Choice()
        self._progress: Progress = lambda _done, _all: None
        self._done: list[_Written] = []
        self._kept = 0

    def choose(self, choice: Choice, progress: Progress | None = None) -> None:
        """Set which manifests are rewritten."""
        self._choice = choice
        self._progress = progress or self._progress

    @property
    def replaced(self) -> list[ManifestFile]:
        """The manifests that the last attempt replaced."""
        return [manifest for done in self._done for manifest in done.group.manifests]

    @property
    def created(self) -> list[ManifestFile]:
        """The manifests that the last attempt lists instead."""
        return [manifest for done in self._done for manifest in done.manifests]

    @property
    def kept(self) -> int:
        """How many manifests the last attempt lists as they were."""
        return self._kept

    @property
    def entries(self) -> int:
        """How many live entries the new manifests have."""
        return sum(manifest.existing_files_count or 0 for manifest in self.created)

    def _commit(self) -> UpdatesAndRequirements:
        try:
            self._work()
        except BaseException:
            self._clean_all_uncommitted()
            raise
        self.idle = not self._done
        if self.idle:
            self._clean_all_uncommitted()
            return (), ()
        return super()._commit()

    def _clean_all_uncommitted(self) -> None:
        self._done.clear()
        super()._clean_all_uncommitted()

    def _parents(self) -> list[ManifestFile]:
        head = None if self._parent_snapshot_id is None else self._staged.metadata.snapshot_by_id(self._parent_snapshot_id)
        return [] if head is None else head.manifests(self._io)

    def _work(self) -> None:
        """Write the new manifests of the present branch, but for those that an earlier attempt wrote."""
        metadata, listed = self._staged.metadata, self._parents()
        target = merge_sizes(metadata.properties)[0] or 1
        there = {manifest.manifest_path for manifest in listed}
        self._done = [done for done in self._done if done.group.paths <= there and done.schema_id == self.schema().schema_id]
        known = {done.group.key for done in self._done}
        groups = [group for group in groups_to_write(listed, self._choice, target, metadata) if group.key not in known]
        whole = sum(len(group.manifests) for group in groups) + len(self.replaced)
        for group in groups:
            self._done.append(_Written(group=group, schema_id=self.schema().schema_id, manifests=tuple(self._write(group, target))))
            self._progress(len(self.replaced), whole)
        self._kept = len(listed) - len(self.replaced)

    def _manifests(self) -> list[ManifestFile]:
        replaced = {manifest.manifest_path for manifest in self.replaced}
        others = [manifest for manifest in self._parents() if manifest.manifest_path not in replaced]
        return self._listed([*self.created, *others])

    def _write(self, group: ManifestGroup, target: int) -> list[ManifestFile]:
        """Write the live entries of a group of manifests to new ones."""
        written: list[ManifestFile] = []
        spec = self.spec(group.spec_id)
        for part in arranged_entries(group, self._io, target):
            rest = iter(part)
            entry = next(rest, None)
            while entry is not None:
                with self.new_manifest_writer(spec, group.content) as writer:
                    while entry is not None and writer.tell() < _SLACK * target:
                        writer.add_entry(_existing(entry))
                        entry = next(rest, None)
                written.append(writer.to_manifest_file())
        return written

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        counts = {
            "manifests-created": len(self.created),
            "manifests-kept": self._kept,
            "manifests-replaced": len(self.replaced),
            "entries-processed": self.entries,
            "changed-partition-count": 0,
        }
        found = {name: str(count) for name, count in counts.items()}
        return self._summary_of(Operation.REPLACE, (), (), {**(snapshot_properties or {}), **found})

    def _validate_concurrency(self) -> None:
        """Nothing: no other commit contradicts this one."""

    def _existing_manifests(self) -> list[ManifestFile]:
        """Not used."""
        raise NotImplementedError

    def _deleted_entries(self) -> Sequence[Any]:  # type: ignore[override]
        """Not used."""
        raise NotImplementedError

    def append_data_file(self, data_file: DataFile) -> NoReturn:
        """Not used: no file is added."""
        raise NotImplementedError

    delete_data_file = append_data_file


def _existing(entry: Any) -> ManifestEntry:
    """Return an entry that has what it inherited, and changes nothing."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
