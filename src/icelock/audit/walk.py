"""``Walk``: from the manifest lists of snapshots to every file, each list, manifest and file opened once.

Lists and manifests are read one after another here. Data and delete files go to ``CheckFiles``, which takes some at a time, so that memory
does not grow with their number beyond a path and two hashes each.

Not here: keys of lists (``audit.keys``), opening files (``audit.file_check``).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Final, TypeVar, cast

from pyiceberg.io import FileIO

from icelock.audit.document import SnapshotRow
from icelock.audit.fault import Fault
from icelock.audit.file_check import CheckFiles, FileTask
from icelock.audit.findings import Findings
from icelock.audit.manifests import FileRow, ManifestRow, file_rows, manifest_rows
from icelock.audit.options import AuditOptions, Progress
from icelock.audit.reached import Reached
from icelock.audit.storage import StoredBytes
from icelock.audit.streams import Ags1Blocks, Ags1Plain
from icelock.format.key_metadata import KeyMetadata
from icelock.properties import LIMIT_MANIFEST_BYTES, LIMITS

_LONGEST_PLAIN: Final = LIMITS[LIMIT_MANIFEST_BYTES]
_Row = TypeVar("_Row")


@dataclass(slots=True)
class Manifest:
    """A manifest as lists name it, and what it was found to hold."""

    row: ManifestRow
    keks: int = 0
    encrypted: int = 0
    plain: int = 0
    bytes: int = 0


@dataclass(slots=True)
class SnapshotFound:
    """A snapshot whose list was read: its manifests."""

    row: SnapshotRow
    kek: str | None
    manifests: list[Manifest] = field(default_factory=list)


class Walk:
    """One walk over one table."""

    def __init__(self, storage: FileIO, options: AuditOptions, findings: Findings, reached: Reached, check: CheckFiles) -> None:
        self._io, self._options, self._findings, self._check, self.reached = storage, options, findings, check, reached
        self._manifests: dict[str, Manifest] = {}
        self._expected = 0
        self.snapshots: list[SnapshotFound] = []

    def read_list(self, snapshot: SnapshotRow, key: KeyMetadata | None, kek: tuple[str, int] | None) -> None:
        """Read a snapshot's manifest list; ``kek``: id and mask of the KEK that opened its key, None if the list is plain."""
        found = SnapshotFound(snapshot, None if kek is None else kek[0])
        self.snapshots.append(found)
        mask, path = 0 if kek is None else kek[1], snapshot.manifest_list
        if key is not None:
            self.reached.check_key(path, key, None)
        self.reached.meet(path, "manifest lists", 0 if key is None else key.encrypted_length or 0, key, mask)

        def told(whose: str) -> None:
            if whose != str(snapshot.id):
                sentence = f"snapshot {snapshot.id} names it, and it says that it is the list of snapshot {whose}"
                self._findings.add("manifest-list-exchanged", path, sentence)

        for row in self._rows(path, key, partial(manifest_rows, told=told)):
            manifest = self._manifests.get(row.path)
            if manifest is None:
                manifest = self._manifests[row.path] = Manifest(row)
                self._expected += row.files
            elif manifest.row.key_metadata != row.key_metadata:
                self._findings.add("two-keys-for-one-file", row.path, "two rows of manifest lists give it different keys")
            manifest.keks |= mask
            found.manifests.append(manifest)

    def read_manifests(self, progress: Progress | None) -> None:
        """Read every manifest that the lists name, and open every file that these name."""
        for done, checked in enumerate(self._check(self._io, self._files(), threads=self._options.threads), 1):
            if checked.code is not None:
                self._findings.add(checked.code, checked.path, checked.sentence)
            elif checked.sentence:
                self._findings.could_not_look(checked.path, checked.sentence)
            if progress is not None:
                progress(done, max(done, self._expected))

    def _files(self) -> Iterator[FileTask]:
        """Yield the encrypted files that manifests name, each once."""
        for path, manifest in self._manifests.items():
            yield from self._files_of(path, manifest)

    def _files_of(self, path: str, manifest: Manifest) -> Iterator[FileTask]:
        row = manifest.row
        key = None if row.key_metadata is None else self.reached.key_of(path, row.key_metadata, row.length)
        self.reached.meet(path, "manifests", row.length, key, manifest.keks)
        if row.key_metadata is None:
            self._findings.add("plain-manifest", path, "a snapshot's manifest list names it without a key")
        elif key is None:
            return
        met: set[str] = set()
        for file in self._rows(path, key, file_rows):
            if file.path not in met:
                met.add(file.path)
                manifest.bytes += file.size
                manifest.encrypted += file.key_metadata is not None
                manifest.plain += file.key_metadata is None
            yield from self._task(file, manifest.keks)

    def _task(self, file: FileRow, keks: int) -> Iterator[FileTask]:
        """Yield a file that is encrypted, and was not met before."""
        if file.key_metadata is None:
            if self.reached.meet(file.path, file.kind, file.size, None, keks):
                self._findings.add("plain-file", file.path, f"snapshots reach it ({file.kind}), and its entry has no key")
            return
        key = self.reached.key_of(file.path, file.key_metadata, file.size)
        if key is not None and self.reached.meet(file.path, file.kind, file.size, key, keks):
            records = file.records if file.format == "PARQUET" else None
            yield FileTask(path=file.path, format=file.format, records=records, key=key, every_byte=self._options.every_byte)

    def _rows(self, path: str, key: KeyMetadata | None, parse: Callable[[BinaryIO], Iterator[_Row]]) -> Iterator[_Row]:
        """Open a list or manifest and yield its rows; what is wrong with it becomes a finding, and ends them."""
        try:
            with StoredBytes(self._io, path) as stored:
                if key is None:
                    self.reached.measured(path, stored.size)
                plain = io.BytesIO(_whole(stored)) if key is None else Ags1Plain(Ags1Blocks(stored, key))
                yield from parse(cast("BinaryIO", plain))
        except Fault as e:
            self._findings.add(e.code, path, e.sentence)
        except FileNotFoundError:
            self._findings.add("file-missing", path, "a snapshot needs it, and storage does not have it")
        except OSError as e:
            self._findings.could_not_look(path, f"{type(e).__name__}: {e}")


def _whole(stored: StoredBytes) -> bytes:
    if stored.size > _LONGEST_PLAIN:
        raise Fault("manifest-damaged", f"it is plain, and has {stored.size} bytes: more than is read")
    return stored.read(0, stored.size)
