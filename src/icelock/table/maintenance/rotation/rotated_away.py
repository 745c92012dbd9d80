"""What rotations of a table left behind that a purge takes along: manifest lists of before, manifests and files that they lead to.

A rotation of files gives snapshots other lists, and the old ones stay for readers that hold older metadata. Only the metadata files of the
log name them then, with the entries of the keys that open them. These are plain, so anybody may have written them: only lists that the
table's keys open are believed, and only for files at the table's home. What cannot be read any more, as after a master key was destroyed,
is left, and the log names it.

Not here: files that the table has (``table.maintenance.removal.deletable``), those that nobody names
(``table.maintenance.removal.leftovers``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from icelock import properties as names
from icelock.errors import IcelockError
from icelock.io.file_io import storage_of
from icelock.io.limits import read_all
from icelock.metadata.table_metadata import decode_metadata, is_encrypted
from icelock.plan.planner import side_by_side
from icelock.table.maintenance.removal.deletable import Home, metadata_paths, read_lists, read_paths
from icelock.table.state import OpenTable

logger = logging.getLogger(__name__)


def rotated_away(table: OpenTable, home: Home) -> set[str]:
    """Return the files at a table's home that only its older metadata leads to, by the lists that are still there."""
    metadata = table.metadata
    if not is_encrypted(metadata):
        return set()
    older = sorted(home.owned_metadata(metadata_paths(metadata, table.metadata_location) - {table.metadata_location}), reverse=True)
    known = {snapshot.manifest_list for snapshot in metadata.snapshots}
    found: set[str] = set()
    for version in side_by_side(partial(_version, table), older):
        if version is None:
            continue
        lists = {one.manifest_list: one for one in version.snapshots if one.manifest_list not in known and getattr(one, "key_id", None)}
        known |= lists.keys()
        found |= _below(table, version, [lists[path] for path in sorted(home.owned(lists))])
    return home.owned(found)


def _version(table: OpenTable, location: str) -> Any:
    """Return an older version of a table; None if its file is gone, damaged, or another table's."""
    try:
        with storage_of(table.io).new_input(location).open() as stream:
            data = read_all(stream, location, limit=names.LIMITS[names.LIMIT_METADATA_BYTES], name=names.LIMIT_METADATA_BYTES)
        found = decode_metadata(data, location=location)
    except (IcelockError, OSError) as e:
        logger.info("%s cannot be read; files that only it leads to are left: %s", location, e)
        return None
    return found if found.table_uuid == table.metadata.table_uuid else None


def _below(table: OpenTable, version: Any, snapshots: Sequence[Any]) -> set[str]:
    """Return lists that are there, manifests and their files, as far as the keys of that version open them."""
    storage = storage_of(table.io)
    is_there = side_by_side(lambda snapshot: storage.new_input(snapshot.manifest_list).exists(), snapshots)
    there = [snapshot for snapshot, found in zip(snapshots, is_there, strict=True) if found]
    if not there:
        return set()
    unread: set[str] = set()
    try:
        io = table.encryption.wrap(storage, version, table=".".join(table.name()))
        listed = read_lists(there, io, unreadable=unread)
        files = set(read_paths(listed.values(), io, live_only=False, unreadable=unread))
    except (IcelockError, OSError) as e:
        logger.warning("%d manifest lists of before a rotation cannot be read, and are left with what they lead to: %s", len(there), e)
        return set()
    return {*listed, *files, *(snapshot.manifest_list for snapshot in there)} - unread
