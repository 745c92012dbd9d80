"""What hangs on each KEK of a table: snapshots, branches and tags, and, if asked, files and their bytes.

A file needs a KEK if a manifest list that the KEK seals leads to it: then who has the KEK can open it. So one file may count for several.

Source: the key hierarchy of Iceberg's encryption page. Not here: changing keys (``table.maintenance.rotation.rotate_keys``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock import properties as names
from icelock.keys.kek import created_ms, is_live
from icelock.keys.key_entries import KeyEntries
from icelock.keys.rewrap import keks_under
from icelock.kms import ask
from icelock.kms.client import KmsClient
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.shown import Shown
from icelock.table.maintenance.removal.deletable import read_lists
from icelock.table.state import OpenTable

_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KekUse(Shown):
    """What hangs on a KEK: numbers of snapshots, and the branches and tags that name one of them.

    ``master_key`` wraps it, by its ``version`` if the KMS tells. ``for_new_snapshots``: the next snapshot is sealed under it. ``files``
    are the manifest lists, manifests, data and delete files that it opens, ``bytes`` their size on storage; a dry run alone counts them.
    """

    kek: str
    master_key: str
    version: str | None = None
    created: datetime
    snapshots: int
    refs: tuple[str, ...] = ()
    files: int | None = None
    bytes: int | None = None
    for_new_snapshots: bool = False


def kek_uses(metadata: TableMetadataV3, *, kms: KmsClient, now_ms: int) -> tuple[KekUse, ...]:
    """Return what hangs on each KEK of a table's master key, in the order of the metadata; nothing is read, and the KMS is not asked."""
    keks = keks_under(KeyEntries(metadata.encryption_keys), names.encryption_key_id(metadata.properties))
    sealed_by = sealing_keks(metadata)
    count = Counter(sealed_by.values())
    live = [kek for kek in keks if is_live(kek, now_ms)]
    newest = max(live, key=created_ms).key_id if live else None
    return tuple(
        KekUse(
            kek=kek.key_id,
            master_key=kek.encrypted_by_id,
            version=ask.version_of(kms, kek.encrypted_key_metadata, kek.encrypted_by_id),
            created=datetime.fromtimestamp(created_ms(kek) / 1_000, tz=UTC),
            snapshots=count[kek.key_id],
            refs=tuple(sorted(name for name, ref in metadata.refs.items() if sealed_by.get(ref.snapshot_id) == kek.key_id)),
            for_new_snapshots=kek.key_id == newest,
        )
        for kek in keks
    )


def with_files(uses: Iterable[KekUse], table: OpenTable) -> tuple[KekUse, ...]:
    """Return the same with files and bytes: every manifest list and manifest is read, and the KMS asked for each KEK that seals one.

    Raises:
        KeyUnavailableError, IntegrityError, FormatError, OSError: a list or manifest cannot be read.
    """
    sealed_by, by_kek = sealing_keks(table.metadata), defaultdict(list)
    for snapshot in table.metadata.snapshots:
        by_kek[sealed_by.get(snapshot.snapshot_id)].append(snapshot)
    return tuple(_counted(use, by_kek[use.kek], table) for use in uses)


def sealing_keks(metadata: TableMetadataV3) -> Mapping[int, str]:
    """Return for each snapshot with a key the id of the KEK that seals its manifest list's key."""
    entries = KeyEntries(metadata.encryption_keys)
    return {
        snapshot.snapshot_id: entries.get(snapshot.key_id).encrypted_by_id
        for snapshot in metadata.snapshots
        if snapshot.key_id is not None and snapshot.key_id in entries
    }


def _counted(use: KekUse, snapshots: Sequence[Any], table: OpenTable) -> KekUse:
    manager = table.io.manager
    sizes = {one.manifest_list: manager.open_manifest_list_key(one.key_id).encrypted_length or 0 for one in snapshots}
    manifests = read_lists(snapshots, table.io)
    sizes.update((path, manifest.manifest_length) for path, manifest in manifests.items())
    listed = list(manifests.values())
    for start in range(0, len(listed), _AT_ONCE):
        for found in ExecutorFactory.get_or_create().map(lambda one: _sizes(one, table.io), listed[start : start + _AT_ONCE]):
            sizes.update(found)
    return replace(use, files=len(sizes), bytes=sum(sizes.values()))


def _sizes(manifest: ManifestFile, io: FileIO) -> dict[str, int]:
    entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
    return {entry.data_file.file_path: entry.data_file.file_size_in_bytes for entry in entries}
