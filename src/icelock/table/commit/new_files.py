"""Whether data files that are given to a commit are new files of this table: a file that is listed twice has its rows twice.

Files that a ``DataFileWriter`` has just written are, and are not checked: their names and keys are unique. All others, such as files of
a scan's plan or described by the caller, must lie where the table's files do, since a file of another table has that table's field ids
and is deleted with it; and the branch must not have them. Java checks for duplicates only in ``add_files``, and keeps one of two equal
files of a commit.

Not here: the files' keys (``metadata.manifest_writer``), plain files (``table.rows.plain_files``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from icelock.errors import PolicyError
from icelock.plan.partition_set import PartitionSet

_DATA_FOLDERS: Final = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")


def is_fresh(file: DataFile) -> bool:
    """Whether a file was just written for a commit, and is in no commit yet."""
    return bool(getattr(file, "fresh", False))


def check_new_files(metadata: TableMetadata, files: Sequence[DataFile], head: Snapshot | None, io: FileIO, *, table: str) -> None:
    """Refuse files that are given twice, are not this table's, or are in the branch with this head; ``io`` has the metadata's keys."""
    check_given_once(files, table=table)
    given = [file for file in files if not is_fresh(file)]
    for file in given:
        check_place(metadata, file, table=table)
    check_not_there(metadata, given, head, io, table=table)


def check_given_once(files: Iterable[DataFile], *, table: str) -> None:
    """Refuse a file that is given twice."""
    seen: set[str] = set()
    for file in files:
        if file.file_path in seen:
            raise PolicyError(f"table {table}: {file.file_path} is given twice, so its rows would be duplicated: give it once")
        seen.add(file.file_path)


def check_place(metadata: TableMetadata, file: DataFile, *, table: str) -> None:
    """Refuse a file that lies neither below the table's location nor where its properties put data files."""
    folders = [metadata.location, *(metadata.properties[name] for name in _DATA_FOLDERS if name in metadata.properties)]
    if not any(file.file_path.startswith(f"{folder.rstrip('/')}/") for folder in folders):
        raise PolicyError(
            f"table {table}: {file.file_path} is not at the table's location ({metadata.location}), so it belongs to another table and has "
            "its field ids and key: read its rows and append them"
        )


def check_not_there(metadata: TableMetadata, files: Sequence[DataFile], head: Snapshot | None, io: FileIO, *, table: str) -> None:
    """Refuse files that a branch has; manifests whose partitions rule them out are not read."""
    if not files or head is None:
        return
    partitions = PartitionSet()
    for file in files:
        partitions.add(file)
    wanted = {file.file_path for file in files}
    for manifest in head.manifests(io):
        if manifest.content != ManifestContent.DATA or not partitions.may_hold(manifest, metadata):
            continue
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            if entry.data_file.file_path in wanted:
                raise PolicyError(f"table {table} has {entry.data_file.file_path} already, so its rows would be duplicated: leave it out")
