"""The files that a table had before it was converted: they stay on storage until somebody removes them, or purges the table.

A property of the table names the metadata file of the plain version (``table.guard.plain_origin``). What that reaches holds rows, bounds
and partition values in the clear; metadata files, which are plain of encrypted tables too, are not counted.

Not here: removing them (``icelock.maintenance``), the conversion (``table.maintenance.conversion.convert``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock import properties as names
from icelock.errors import FormatError, IcelockError, IntegrityError
from icelock.io.checked_io import CheckedFileIO
from icelock.io.file_io import storage_of
from icelock.io.limits import read_all
from icelock.io.locations import place_of
from icelock.metadata.entry_reader import checked_avro
from icelock.metadata.table_metadata import TableMetadataV3, decode_metadata, is_encrypted
from icelock.table.guard.plain_origin import PlainOrigin
from icelock.table.maintenance.removal.deletable import Home, metadata_paths, purgeable, read_lists, read_paths, statistics_paths
from icelock.table.maintenance.removal.kinds import Content, Kind, content_there, kind_of
from icelock.table.maintenance.removal.neighbours import check_alone
from icelock.table.maintenance.rotation.rotated_away import rotated_away

logger = logging.getLogger(__name__)

_HINT: Final = "/version-hint.text"


def plain_files(metadata: TableMetadata, io: FileIO) -> tuple[str, ...]:
    """Return all data files, delete files, statistics files, manifests and manifest lists of a plain table's history, or a mixed one's.

    A file comes before those that name it: deleted in this order, what is left can always be told.

    Raises:
        FormatError, OSError: a list or manifest cannot be read.
    """
    return _in_order(metadata, io, None)


def _in_order(metadata: TableMetadata, io: FileIO, unreadable: set[str] | None, *, encrypted_too: bool = False) -> tuple[str, ...]:
    plain_only = is_encrypted(metadata) and not encrypted_too  # what a plain table has is plain, whatever its manifests say
    manifests = read_lists(metadata.snapshots, io, unreadable=unreadable)
    paths = read_paths(manifests.values(), io, live_only=False, unreadable=unreadable, plain_only=plain_only)
    files = sorted({*paths, *statistics_paths(metadata)})
    named = sorted(path for path, manifest in manifests.items() if not (plain_only and manifest.key_metadata))
    lists = sorted(one.manifest_list for one in metadata.snapshots if not (plain_only and getattr(one, "key_id", None)))
    return (*files, *named, *lists)


def origin_of(plain: Any) -> PlainOrigin:
    """Return what the encrypted version of a plain table keeps of it: where its metadata file lies, and the digest of that.

    Raises:
        IntegrityError: the file does not say what the catalog loaded from it.
        FormatError, OSError: it cannot be read.
    """
    location = plain.metadata_location
    data = _bytes_of(storage_of(plain.io), location)
    if decode_metadata(data, location=location) != plain.metadata:
        raise IntegrityError(f"table {'.'.join(plain.name())}: {location} was changed since the table was loaded: find out who did that")
    return PlainOrigin.at(location, data)


def _bytes_of(storage: FileIO, location: str) -> bytes:
    with storage.new_input(location).open() as stream:
        return read_all(stream, location, limit=names.LIMITS[names.LIMIT_METADATA_BYTES], name=names.LIMIT_METADATA_BYTES)


def plain_version(table: Any, origin: PlainOrigin) -> tuple[TableMetadata, FileIO]:
    """Return what a table was before its conversion, and access to its files: with its keys if it was mixed.

    Raises:
        IntegrityError: the metadata file is gone, or is not the one that the conversion saw.
        FormatError, OSError: it cannot be read.
    """
    name, storage = ".".join(table.name()), storage_of(table.io)
    try:
        data = _bytes_of(storage, origin.location)
    except FileNotFoundError as e:
        raise IntegrityError(
            f"table {name}: {origin.name} names {origin.location}, which is gone, so its plain files cannot be told; {origin.way_out}"
        ) from e
    metadata = decode_metadata(data, location=origin.location) if origin.is_file(data) else None
    if metadata is None or metadata.table_uuid != table.metadata.table_uuid:
        raise IntegrityError(
            f"table {name}: {origin.name} names {origin.location}, which is not this table as it was before its conversion: somebody "
            f"changed the property or the file; {origin.way_out}"
        )
    if is_encrypted(metadata):
        return metadata, table.encryption.wrap(storage, metadata, table=name, allow_plaintext=True)
    return metadata, storage if isinstance(metadata, TableMetadataV3) else CheckedFileIO(storage, checked_avro)


def plain_files_of(
    table: Any,
    *,
    unreadable: set[str] | None = None,
    known: tuple[TableMetadata, FileIO] | None = None,
    encrypted_too: bool = False,
) -> tuple[str, ...]:
    """Return the plain files that a converted table has besides its own, in the order of ``plain_files``; empty if there are none any more.

    ``known`` is its ``plain_version``, if that was read already; ``encrypted_too``: also the encrypted files of one that was mixed.

    Once their removal was begun, a list or manifest that is gone was deleted after the files that it named. Before, it is an error, as one
    that cannot be read always is; ``unreadable`` collects these instead.

    Raises:
        FormatError, IntegrityError, OSError: its plain metadata file, a list or a manifest cannot be read, or is not the table's.
    """
    origin = PlainOrigin.of(table.metadata.properties)
    if origin is None:
        return ()
    version, storage = known or plain_version(table, origin)
    unread: set[str] = set()
    files = _in_order(version, storage, unread, encrypted_too=encrypted_too)
    there = {path: storage.new_input(path).exists() for path in sorted(unread)}
    lost = [path for path, found in there.items() if found or not origin.removing]
    if lost and unreadable is None:
        what = "cannot be read" if there[lost[0]] else "is gone"
        if is_encrypted(version) and there[lost[0]]:
            what += f" (the table was mixed: it takes the KEKs of then, under master key {names.encryption_key_id(version.properties)!r})"
        raise FormatError(
            f"table {'.'.join(table.name())}: {lost[0]}, from before its conversion, {what}, so its plain files cannot be told; "
            f"{origin.way_out}"
        )
    if unreadable is not None:
        unreadable.update(lost)
    return files


def kept_with_plain(table: Any) -> tuple[str, ...]:
    """Return what of a converted table's past is not left over: the plain files, and what leads to them."""
    origin = PlainOrigin.of(table.metadata.properties)
    return () if origin is None else (origin.location, *plain_files_of(table, encrypted_too=True))


def told_apart(table: Any, files: Iterable[str], home: Home) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return those of a plain version's files that are there and may be deleted, in their order, and those that lie elsewhere.

    Whoever can write to storage can forge plain manifests, and name any file in them. So a metadata file, and one that begins as encrypted
    ones do, is neither: it is no file of a plain table, whoever says so. Files are deleted only at the table's home, and
    only if no other table lies there.

    Raises:
        IntegrityError: see ``Home.check``.
        PolicyError: another table lies at or below the table's location, or the FileIO cannot list; nothing was deleted.
        OSError: the storage cannot be asked.
    """
    check_place(table, home)
    named = [path for path in files if kind_of(path) is not Kind.METADATA and not path.endswith(_HINT)]
    owned = home.owned(named)
    storage = storage_of(table.io)
    at_home = [path for path in named if path in owned]
    contents = dict(zip(at_home, ExecutorFactory.get_or_create().map(lambda path: _content_of(storage, path), at_home), strict=True))
    strange = sorted(path for path, content in contents.items() if content is Content.ENCRYPTED)
    if strange:
        logger.warning("%d files of %s that plain manifests name are encrypted, and stay: %s", len(strange), table.name(), strange[:5])
    found = tuple(path for path in at_home if contents[path] not in {None, Content.ENCRYPTED})
    return found, tuple(path for path in named if path not in owned)


def check_place(table: Any, home: Home) -> None:
    """Refuse to delete plain files of a table that is not alone where it lies; errors as ``told_apart``."""
    home.check()
    origin = PlainOrigin.of(table.metadata.properties)
    own = {*metadata_paths(table.metadata, table.metadata_location), "" if origin is None else origin.location}
    check_alone(table, {place_of(path) for path in own})


def _content_of(storage: FileIO, location: str) -> Content | None:
    try:
        return content_there(storage, location)
    except FileNotFoundError:
        return None


def purgeable_with_plain(table: Any, *, unreadable: set[str] | None = None) -> set[str]:
    """Return every file of a table that may be deleted with it, also those from before its conversion and its rotations."""
    own = purgeable(table, unreadable=unreadable) | rotated_away(table, Home.of(table))
    origin = PlainOrigin.of(table.metadata.properties)
    if origin is None:
        return own
    try:
        found, _ = told_apart(table, plain_files_of(table, unreadable=unreadable), Home.of(table))
    except (IcelockError, OSError) as e:
        if unreadable is None:
            raise
        logger.warning("the plain files of table %s cannot be told, and are left: %s", ".".join(table.name()), e)
        unreadable.add(origin.location)
        return own
    return own | set(found)
