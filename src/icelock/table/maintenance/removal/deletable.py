"""Which files a table's metadata reaches, and which of them may be deleted, by who named them.

Lists and manifests are read with the keys of the metadata they belong to, each once and in parallel, some at a time. One
that cannot be read is an error, never treated as empty: deleting by that would lose rows (case C-50). Where those of snapshots that go for
good may be unreadable, ``unreadable`` collects them: files that only they name are not told, and so not deleted.

Whoever can write metadata.json, which is plain, can name any file in it: in its logs, statistics and snapshots, or as the table's location.
So files that it names are deleted only near the metadata file, whose place the catalog knows: in its folder, or below the folder above
``metadata/`` if that is below the table's location as well. Files that encrypted lists and manifests name were written by someone with the
table's keys, and are deleted wherever they lie, as in Java: ``write.data.path`` may be elsewhere. Other files are left and logged.

A REST server itself says where the metadata file lies, and could name any folder of the client's disk. So the file must exist and be this
table's (the same uuid) before its place counts: a server cannot put one on the client's disk.

Source: Java ``CatalogUtil.dropTableData`` and ``deleteRemovedMetadataFiles`` for what is deleted; they trust every location.
Not here: listing storage and deleting (``io.listing``), what is no longer needed (``table.maintenance.removal.expire``,
``table.maintenance.removal.leftovers``).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock import properties as names
from icelock.errors import IcelockError, IntegrityError
from icelock.io.avro.columns import NotColumnarError
from icelock.io.file_io import storage_of
from icelock.io.limits import read_all
from icelock.io.locations import lies_below, place_of
from icelock.metadata.manifest import ManifestFile as EncryptedManifest
from icelock.metadata.table_metadata import decode_metadata
from icelock.plan.manifest_columns import ManifestColumns, kept
from icelock.table.state import OpenTable

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 64
_MANY_ENTRIES: Final = 10_000  # reading fewer row by row takes less than importing polars
_METADATA: Final = re.compile(r"[^/\\]+\.metadata\.json(\.gz)?")


def read_lists(snapshots: Iterable[Snapshot], io: FileIO, *, unreadable: set[str] | None = None) -> dict[str, ManifestFile]:
    """Return the manifests that snapshots list, by path; a list that cannot be read is an error, or goes to ``unreadable``."""

    def rows(snapshot: Snapshot) -> list[ManifestFile]:
        return _read(lambda: snapshot.manifests(io), snapshot.manifest_list, unreadable)

    return {manifest.manifest_path: manifest for listed in ExecutorFactory.get_or_create().map(rows, snapshots) for manifest in listed}


def read_paths(
    manifests: Iterable[ManifestFile], io: FileIO, *, live_only: bool, unreadable: set[str] | None = None, plain_only: bool = False
) -> Iterator[str]:
    """Yield the paths of data and delete files in manifests, some repeatedly; one that cannot be read is treated as in ``read_lists``.

    ``plain_only``: only of files without a key.

    Some manifests at a time, so that memory does not grow with the table.
    """
    manifests = list(manifests)
    entries = sum((manifest.added_files_count or 0) + (manifest.existing_files_count or 0) for manifest in manifests)
    as_columns = live_only and (entries >= _MANY_ENTRIES or "polars" in sys.modules)

    def paths(manifest: ManifestFile) -> list[str]:
        return _read(
            lambda: _paths(manifest, io, live_only=live_only, as_columns=as_columns, plain_only=plain_only),
            manifest.manifest_path,
            unreadable,
        )

    for start in range(0, len(manifests), _AT_ONCE):
        for found in ExecutorFactory.get_or_create().map(paths, manifests[start : start + _AT_ONCE]):
            yield from found


def _paths(manifest: ManifestFile, io: FileIO, *, live_only: bool, as_columns: bool, plain_only: bool = False) -> list[str]:
    if as_columns and isinstance(manifest, EncryptedManifest):
        try:
            live = ManifestColumns(io, manifest).live()
            wanted = kept(live, live.get_column("key_metadata").is_null()) if plain_only else live
            return list(wanted.get_column("file_path"))
        except NotColumnarError as e:
            logger.debug("%s is read row by row: %s", manifest.manifest_path, e)
    files = (entry.data_file for entry in manifest.fetch_manifest_entry(io, discard_deleted=live_only))
    return [file.file_path for file in files if not plain_only or file.key_metadata is None]


def statistics_paths(metadata: TableMetadata) -> set[str]:
    """Return the statistics files that the metadata names."""
    return {file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics)}


def metadata_paths(metadata: TableMetadata, metadata_location: str) -> set[str]:
    """Return the metadata file itself and those of its log."""
    return {metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}


def reached(metadata: TableMetadata, metadata_location: str, io: FileIO, *, live_only: bool) -> Iterator[str]:
    """Yield every file that the metadata reaches, some repeatedly; ``live_only``: without those that no snapshot has any more."""
    manifests = read_lists(metadata.snapshots, io)
    yield from metadata_paths(metadata, metadata_location)
    yield from statistics_paths(metadata)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)
    yield from manifests
    yield from read_paths(manifests.values(), io, live_only=live_only)


def _read(read: Callable[[], list[Any]], location: str, unreadable: set[str] | None) -> list[Any]:
    """Read a list or manifest; add a note to an error on which file it was: an error of the KMS names only its key."""
    try:
        return read()
    except Exception as e:
        if unreadable is not None and isinstance(e, (IcelockError, OSError)):
            logger.warning("%s cannot be read; files that only it names are left: %s", location, e)
            unreadable.add(location)
            return []
        if location not in str(e):
            e.add_note(f"while {location} was read")
        raise


class Home:
    """The folders in which files of a table are deleted because its metadata.json names them.

    Args:
        location: the table's, as the metadata has it.
        metadata_location: the metadata file that the catalog names.
        doubt: returns why that file may not be the table's, or an empty text; called once, before the first answer. Left out if the
            client has read the metadata from that file.
    """

    def __init__(self, *, location: str, metadata_location: str, doubt: Callable[[], str] | None = None) -> None:
        self._location = location
        self._ask = doubt
        self._doubt = ""
        self._file = place_of(metadata_location)
        self._folder = metadata_location.rpartition("/")[0]
        above, _, name = self._folder.rpartition("/")
        self._root = above if name == "metadata" else self._folder

    @classmethod
    def of(cls, table: Table | OpenTable) -> Home:
        """Return the home of a catalog's table."""
        read = getattr(table.catalog, "reads_metadata_files", False)
        doubt = None if read else partial(_doubt, table)
        return cls(location=table.metadata.location, metadata_location=table.metadata_location, doubt=doubt)

    def check(self) -> None:
        """Refuse, as an IntegrityError, a metadata file that cannot be read or is not the table's."""
        doubt = self._reason()
        if doubt:
            raise IntegrityError(
                f"{doubt}, so only the catalog says where the table's files lie, and nothing was deleted: "
                "find out why the catalog names that file, or delete the files by hand"
            )

    def owns(self, location: str) -> bool:
        """Whether a file is the table's own, by its location."""
        if lies_below(location, self._folder):
            return True
        return lies_below(location, self._root) and lies_below(location, self._location)

    def owns_metadata(self, location: str) -> bool:
        """Whether a file is an older metadata file of the table, by its location and name."""
        beside = lies_below(location, self._folder) and place_of(location).rpartition("/")[0] == place_of(self._folder)
        return beside and place_of(location) != self._file and _METADATA.fullmatch(location.rpartition("/")[2]) is not None

    def owned(self, locations: Iterable[str]) -> set[str]:
        """Return the locations that are the table's own; the others are left, and logged."""
        return self._kept(locations, {location for location in locations if self.owns(location)})

    def owned_metadata(self, locations: Iterable[str]) -> set[str]:
        """Return the older metadata files among the locations; the others are left, and logged."""
        return self._kept(locations, {location for location in locations if self.owns_metadata(location)})

    def _kept(self, locations: Iterable[str], owned: set[str]) -> set[str]:
        doubt = self._reason() if owned else ""
        if doubt:
            logger.warning("%d files were not deleted, since %s: %s", len(owned), doubt, sorted(owned)[:5])
        foreign = sorted(set(locations) - owned)
        if foreign:
            logger.warning(
                "%d files that %s names were not deleted, since they do not lie at the table: %s", len(foreign), self._file, foreign[:5]
            )
        return set() if doubt else owned

    def _reason(self) -> str:
        if self._ask is not None:
            self._doubt, self._ask = self._ask(), None
        return self._doubt


def _doubt(table: Table | OpenTable) -> str:
    """Return why the file that a catalog names is not the table's metadata file; empty if it is."""
    location = table.metadata_location
    try:
        limit = names.limit({} if table.catalog is None else table.catalog.properties, names.LIMIT_METADATA_BYTES)
        with storage_of(table.io).new_input(location).open() as stream:
            data = read_all(stream, location, limit=limit, name=names.LIMIT_METADATA_BYTES)
        there = decode_metadata(data, location=location, limit=limit)
    except Exception as e:  # noqa: BLE001 - whatever it is, the file is not known to be the table's
        return f"the metadata file {location} of table {'.'.join(table.name())} cannot be read ({type(e).__name__}: {str(e)[:200]})"
    uuid = table.metadata.table_uuid
    if there.table_uuid != uuid:
        return f"{location} is the metadata file of table {there.table_uuid}, and not of {'.'.join(table.name())} ({uuid})"
    return ""


def purgeable(table: Table, *, unreadable: set[str] | None = None) -> set[str]:
    """Return every file of a table that may be deleted with it; ``unreadable`` as in ``read_lists``.

    Raises:
        KeyUnavailableError, IntegrityError, PolicyError, FormatError, OSError: a list or manifest cannot be read, or the metadata file
            that the catalog names is not the table's.
    """
    metadata, metadata_location, io = table.metadata, table.metadata_location, table.io
    home = Home.of(table)
    home.check()
    keyed = [snapshot for snapshot in metadata.snapshots if getattr(snapshot, "key_id", None) is not None]
    plain = [snapshot for snapshot in metadata.snapshots if getattr(snapshot, "key_id", None) is None]
    listed, claimed = read_lists(keyed, io, unreadable=unreadable), read_lists(plain, io, unreadable=unreadable)
    # Nobody with the table's keys is known to have written an unreadable one, so its place counts.
    lists, unread = {snapshot.manifest_list for snapshot in keyed}, frozenset(unreadable or ())
    older = metadata_paths(metadata, metadata_location) - {metadata_location}
    return {
        metadata_location,
        *home.owned_metadata(older),
        *home.owned({*statistics_paths(metadata), *(snapshot.manifest_list for snapshot in plain), *claimed}),
        *(lists - unread),
        *home.owned(lists & unread),
        *listed,
        *files_of(listed.values(), io, home, live_only=False, unreadable=unreadable),
        *home.owned(set(read_paths(claimed.values(), io, live_only=False, unreadable=unreadable))),
    }


def files_of(manifests: Iterable[ManifestFile], io: FileIO, home: Home, *, live_only: bool, unreadable: set[str] | None = None) -> set[str]:
    """Return the files of manifests that authenticated lists name; those of a plain manifest only in the table's home."""
    keyed: list[ManifestFile] = []
    plain: list[ManifestFile] = []
    for manifest in manifests:
        (plain if manifest.key_metadata is None else keyed).append(manifest)
    found = set(read_paths(keyed, io, live_only=live_only, unreadable=unreadable))
    return found | home.owned(set(read_paths(plain, io, live_only=live_only, unreadable=unreadable)) - found)
