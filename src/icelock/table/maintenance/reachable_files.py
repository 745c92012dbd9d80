"""Which files a table's metadata reaches: manifest lists, manifests, data and delete files, metadata files.

Lists and manifests are read with the keys of the metadata they belong to, each once and in parallel; only paths are kept in memory. One
that cannot be read is an error, never treated as empty: deleting by that would lose rows (case C-50).

Not here: listing storage (``io.listing``), what is deleted (``table.maintenance.expire``, ``catalog.base``, ``maintenance.leftovers``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.concurrent import ExecutorFactory

T = TypeVar("T")
R = TypeVar("R")


def read_lists(snapshots: Iterable[Snapshot], io: FileIO) -> dict[str, ManifestFile]:
    """Return the manifests that snapshots list, by path; a list that cannot be read is an error."""

    def rows(snapshot: Snapshot) -> list[ManifestFile]:
        with _naming(snapshot.manifest_list):
            return snapshot.manifests(io)

    return {manifest.manifest_path: manifest for listed in _each(rows, snapshots) for manifest in listed}


def read_paths(manifests: Iterable[ManifestFile], io: FileIO, *, live_only: bool) -> Iterator[str]:
    """Yield the paths of data and delete files in manifests, some repeatedly; a manifest that cannot be read is an error."""

    def paths(manifest: ManifestFile) -> list[str]:
        with _naming(manifest.manifest_path):
            return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=live_only)]

    for found in _each(paths, manifests):
        yield from found


def statistics_paths(metadata: TableMetadata) -> set[str]:
    """Return the statistics files that the metadata names."""
    return {file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics)}


def metadata_paths(metadata: TableMetadata, metadata_location: str) -> set[str]:
    """Return the metadata file itself and those of its log."""
    return {metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}


def reached(metadata: TableMetadata, metadata_location: str, io: FileIO, *, live_only: bool) -> set[str]:
    """Return every file that the metadata reaches; ``live_only``: without those that no snapshot has any more."""
    manifests = read_lists(metadata.snapshots, io)
    return {
        *metadata_paths(metadata, metadata_location),
        *statistics_paths(metadata),
        *(snapshot.manifest_list for snapshot in metadata.snapshots),
        *manifests,
        *read_paths(manifests.values(), io, live_only=live_only),
    }


def _each(read: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    return ExecutorFactory.get_or_create().map(read, items)


@contextmanager
def _naming(location: str) -> Iterator[None]:
    """Add a note to an error on which file was being read: an error of the KMS names only its key."""
    try:
        yield
    except Exception as e:
        if location not in str(e):
            e.add_note(f"while {location} was read")
        raise
