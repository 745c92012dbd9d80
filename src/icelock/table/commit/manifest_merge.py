"""Merging small manifests into larger ones (``commit.manifest-merge.*``), of data files and of delete files alike.

PyIceberg decides which manifests to merge: by spec, up to ``commit.manifest.target-size-bytes``, the new one only with
``commit.manifest.min-count-to-merge`` others. In a merged manifest, files that this snapshot adds are still ``added`` and inherit from it;
all others are ``existing``, with the values that they inherited written out; files that older snapshots removed are left out.

On by default, as in Java: otherwise small commits make planning slower and slower. Manifests are merged up to 1 MiB (some 10,000 files;
Java: 8 MiB), since every entry is decoded and written, which must not delay a commit for long. An attempt after a conflict merges only
when no other writer can commit first again (``table.commit.protocol``); otherwise the merge would be done again after the next conflict.

Not here: when manifests are listed (``table.commit.producer``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import TableProperties
from pyiceberg.table.update.snapshot import _ManifestMergeManager
from pyiceberg.utils.properties import property_as_bool

from icelock.metadata.given import whole_number
from icelock.metadata.manifest import ManifestEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.update.snapshot import _SnapshotProducer

TARGET_SIZE_DEFAULT: Final = 1 << 20


def merge_enabled(properties: Mapping[str, str]) -> bool:
    """Return whether a table's commits merge manifests."""
    return property_as_bool(dict(properties), TableProperties.MANIFEST_MERGE_ENABLED, default=True)


def merged(producer: _SnapshotProducer[Any], manifests: Sequence[ManifestFile], properties: Mapping[str, str]) -> list[ManifestFile]:
    """Return the manifests with small ones merged; data and deletes apart."""
    size, count = merge_sizes(properties)
    merger = _Merger(size or 1, count or 1, True, producer)
    groups = [[m for m in manifests if m.content == content] for content in (ManifestContent.DATA, ManifestContent.DELETES)]
    return [manifest for group in groups for manifest in merger.merge_manifests(group)]


def merge_sizes(properties: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the target size of merged manifests in bytes, and from how many on they are merged; refuse what is not a number."""
    names = TableProperties
    return (
        whole_number(properties, names.MANIFEST_TARGET_SIZE_BYTES, TARGET_SIZE_DEFAULT),
        whole_number(properties, names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT),
    )


class _Merger(_ManifestMergeManager[Any]):
    _snapshot_producer: Any  # an EncryptedProducer

    def _create_manifest(self, spec_id: int, manifest_bin: list[ManifestFile]) -> ManifestFile:
        producer = self._snapshot_producer
        with producer.new_manifest_writer(producer.spec(spec_id), manifest_bin[0].content) as writer:
            for manifest in manifest_bin:
                for entry in producer.fetch_manifest_entry(manifest, discard_deleted=False):
                    kept = _merged_entry(entry, producer.snapshot_id)
                    if kept is not None:
                        writer.add_entry(kept)
        merged: ManifestFile = writer.to_manifest_file()
        return merged


def _merged_entry(entry: Any, snapshot_id: int) -> ManifestEntry | None:
    ours = entry.snapshot_id == snapshot_id
    if ours and entry.status == ManifestEntryStatus.ADDED:
        return ManifestEntry.from_args(status=entry.status, snapshot_id=snapshot_id, data_file=entry.data_file)
    if entry.status == ManifestEntryStatus.DELETED and not ours:
        return None
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.DELETED if entry.status == ManifestEntryStatus.DELETED else ManifestEntryStatus.EXISTING,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
