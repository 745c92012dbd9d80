"""The files that a table had before it was converted: they stay on storage until somebody removes them, or purges the table.

``icelock.converted-from`` of the table names the metadata file of the plain version. What that reaches holds rows, bounds and partition
values in the clear; metadata files, which are plain of encrypted tables too, are not counted.

Not here: removing them (``icelock.maintenance``), the conversion (``table.maintenance.convert``).
"""

from __future__ import annotations

import logging
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import FormatError, IcelockError, IntegrityError
from icelock.io.checked_io import CheckedFileIO
from icelock.io.file_io import storage_of
from icelock.metadata.entry_reader import checked_avro
from icelock.metadata.table_metadata import TableMetadataV3, is_encrypted, read_metadata
from icelock.table.maintenance.deletable import Home, purgeable, read_lists, read_paths, statistics_paths

logger = logging.getLogger(__name__)


def plain_files(metadata: TableMetadata, io: FileIO) -> tuple[str, ...]:
    """Return all data files, delete files, statistics files, manifests and manifest lists of a plain table's history.

    A file comes before those that name it: deleted in this order, what is left can always be told.

    Raises:
        FormatError, OSError: a list or manifest cannot be read.
    """
    return _in_order(metadata, io, None)


def _in_order(metadata: TableMetadata, io: FileIO, unreadable: set[str] | None) -> tuple[str, ...]:
    manifests = read_lists(metadata.snapshots, io, unreadable=unreadable)
    files = sorted({*read_paths(manifests.values(), io, live_only=False, unreadable=unreadable), *statistics_paths(metadata)})
    return (*files, *sorted(manifests), *sorted(snapshot.manifest_list for snapshot in metadata.snapshots))


def plain_version(table: Any) -> tuple[TableMetadata, FileIO] | None:
    """Return what a table was before its conversion, and access to its files; None if it was not converted, or they were removed.

    Raises:
        IntegrityError: the file is another table's, or an encrypted one's.
        FormatError, OSError: it cannot be read.
    """
    location = table.metadata.properties.get(names.CONVERTED_FROM)
    if location is None:
        return None
    storage = storage_of(table.io)
    metadata = read_metadata(storage.new_input(location))
    if metadata.table_uuid != table.metadata.table_uuid or is_encrypted(metadata):
        raise IntegrityError(
            f"table {'.'.join(table.name())}: {names.CONVERTED_FROM} names {location}, which is not this table as it was before its "
            "conversion: somebody changed the property or the file"
        )
    return metadata, storage if isinstance(metadata, TableMetadataV3) else CheckedFileIO(storage, checked_avro)


def plain_files_of(table: Any) -> tuple[str, ...]:
    """Return the plain files that a converted table has besides its own, in the order of ``plain_files``; empty if there are none any more.

    A list or manifest that is gone was deleted after the files that it named.

    Raises:
        FormatError, IntegrityError, OSError: its plain metadata file, a list or a manifest cannot be read, or is not the table's.
    """
    found = plain_version(table)
    if found is None:
        return ()
    unreadable: set[str] = set()
    files = _in_order(*found, unreadable)
    damaged = next((path for path in sorted(unreadable) if found[1].new_input(path).exists()), None)
    if damaged is not None:
        raise FormatError(
            f"table {'.'.join(table.name())}: {damaged}, from before its conversion, cannot be read, so its plain files cannot be told; "
            "restore that file"
        )
    return files


def kept_with_plain(table: Any) -> tuple[str, ...]:
    """Return what of a converted table's past is not left over: the plain files, and the metadata file that names them."""
    location = table.metadata.properties.get(names.CONVERTED_FROM)
    return () if location is None else (location, *plain_files_of(table))


def purgeable_with_plain(table: Any, *, unreadable: set[str] | None = None) -> set[str]:
    """Return every file of a table that may be deleted with it, also those from before its conversion (``deletable.purgeable``)."""
    own = purgeable(table, unreadable=unreadable)
    try:
        plain = plain_files_of(table)
    except (IcelockError, OSError) as e:
        if unreadable is None:
            raise
        logger.warning("the plain files of table %s cannot be told, and are left: %s", ".".join(table.name()), e)
        unreadable.add(table.metadata.properties[names.CONVERTED_FROM])
        return own
    return own | Home.of(table).owned(plain)
