"""Locations that users give for new files: a warehouse, a table's location, or where its data or metadata go.

A location must mean the same folder to every process and to Java: an absolute path, or a URI with a bucket or host where the storage has
them. A relative path means a different folder in each process, and ``file://host/path`` is the path on this machine, whatever the host.

Not here: what locations in metadata may be (``io.locations``), where a file is (``io.storage``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pyiceberg.io import SCHEMA_TO_FILE_IO

from icelock.errors import PolicyError
from icelock.io.locations import Location, has_scheme, split_location

PATH_PROPERTIES: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""The table properties that name a location."""
_WITH_BUCKET: Final = frozenset({"s3", "gs", "oss", "abfs"})
_EXAMPLE: Final = "file:///data/warehouse or s3://bucket/warehouse"


def check_given_location(location: str, *, what: str, any_scheme: bool) -> None:
    """Check a location that a user gave for new files.

    Args:
        location: as given.
        what: it is, such as ``warehouse``; for messages.
        any_scheme: the user's own class (``py-io-impl``) opens files, whatever their scheme.

    Raises:
        PolicyError: it does not mean one folder, or its storage is unknown; says what to write.
    """
    text: object = location
    problem = _problem(text, any_scheme=any_scheme) if isinstance(text, str) else f"it is not text; write a location such as {_EXAMPLE}"
    if problem:
        raise PolicyError(f"{what} is {location!r}: {problem}")


def check_path_properties(properties: Mapping[str, str], *, table: str) -> None:
    """Check those of the given table properties that say where files go.

    Raises:
        PolicyError: names the property, and says what to write.
    """
    for name in PATH_PROPERTIES:
        if name in properties:
            check_given_location(str(properties[name]), what=f"table {table}: {name}", any_scheme=True)


def _problem(location: str, *, any_scheme: bool) -> str | None:
    if not location.strip():
        return f"it is empty; write a location such as {_EXAMPLE}, or leave it out"
    if "\0" in location:
        return "it contains a NUL, which no path can"
    if has_scheme(location):
        return _of_uri(split_location(location), any_scheme=any_scheme)
    return None if location.startswith("/") else _relative(location.strip())


def _of_uri(place: Location, *, any_scheme: bool) -> str | None:
    if len(place.scheme) == 1:
        return f"that is a Windows path, and icelock does not run on Windows; write a location such as {_EXAMPLE}"
    if place.scheme == "file":
        return _of_disk(place.authority, place.path)
    if not any_scheme and not {place.scheme, place.family} & set(SCHEMA_TO_FILE_IO):
        known = ", ".join(SCHEMA_TO_FILE_IO)
        return f"there is no storage for the scheme {place.scheme!r}; known: {known}, or set py-io-impl to your own class"
    if place.family in _WITH_BUCKET and not place.authority:
        return f"it names no bucket; write '{place.scheme}://bucket/folder'"
    return None


def _of_disk(authority: str, path: str) -> str | None:
    if authority:
        return (
            f"{authority!r} is where a host would be, which local files lack; write 'file:///{authority}{path}' with three slashes for a "
            f"folder of that name, or 'file://{path or '/'}' for the path on this machine"
        )
    return None if path.startswith("/") else _relative(path)


def _relative(path: str) -> str:
    there = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - what the user may have meant, as text
    return f"a relative path means a different folder in each process; write an absolute one, such as 'file://{there}'"
