"""Locations as text: their scheme, authority and path, whether one lies below another, and which a user may give for new files.

A location is a name, not a URI to decode: nothing is unquoted, and ``#``, ``?``, ``%`` and the like are part of the path, as in Hadoop's
``Path`` (Java ``HadoopFileIO``). Java's ``S3FileIO`` cuts a key off at ``?`` and ``#``, so it cannot read a table at such a location.

One that a user gives (a warehouse, a table's location, or where its data or metadata go) must mean the same folder to every process and to
Java: an absolute path, or a URI with a bucket or host where the storage has them. A relative path means a different folder in each
process, and ``file://host/path`` is the path on this machine, whatever the host.

Not here: opening files (``io.storage``), listing (``io.listing``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyiceberg.io import SCHEMA_TO_FILE_IO

from icelock.errors import FormatError, PolicyError

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_FAMILIES: Final = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "abfss": "abfs",
    "wasb": "abfs",
    "wasbs": "abfs",
}
# Schemes whose authority is a bucket at the endpoint in the client's settings; that of others names a host.
_BUCKETS: Final = frozenset({"s3", "gs", "oss"})
_DOTS: Final = re.compile(r"(?:^|[/\\])\.{1,2}(?:[/\\]|$)")
PATH_PROPERTIES: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""The table properties that name a location."""
_WITH_BUCKET: Final = frozenset({"s3", "gs", "oss", "abfs"})
_EXAMPLE: Final = "file:///data/warehouse or s3://bucket/warehouse"


class Location(NamedTuple):
    """The three parts: scheme in lower case (``file`` if missing), authority and path as written."""

    scheme: str
    authority: str
    path: str

    @property
    def family(self) -> str:
        """One scheme for all spellings of a storage: ``s3`` for ``s3a`` and ``s3n``."""
        return _FAMILIES.get(self.scheme, self.scheme)


def split_location(location: str) -> Location:
    """Return the parts of a location; a path without a scheme is a local one, made absolute.

    >>> split_location("s3a://bucket/wh#1/t?x/a%20b")
    Location(scheme='s3a', authority='bucket', path='/wh#1/t?x/a%20b')
    >>> split_location("file:/tmp/a")
    Location(scheme='file', authority='', path='/tmp/a')
    """
    uri = _URI.fullmatch(location)
    if uri is None:
        return Location("file", "", os.path.abspath(location))  # noqa: PTH100 - as PyIceberg's FileIO does; pathlib would follow no dots
    return Location(uri.group(1).lower(), uri.group(2) or "", uri.group(3))


def has_scheme(location: str) -> bool:
    """Whether a location names its storage; a bare path does not."""
    return _URI.fullmatch(location) is not None


def place_of(location: str) -> str:
    """Return the same text for all spellings of one location: ``file:/a``, ``file:///a`` and ``/a``; ``s3://b/x`` and ``s3a://b/x``.

    A location is text: nothing is unquoted.
    """
    if not has_scheme(location):
        return os.path.abspath(location)  # noqa: PTH100 - likewise
    parts = split_location(location)
    path = re.sub("/+", "/", parts.path)
    return path if parts.scheme == "file" else f"{parts.authority}{path}"


def real_place(location: str) -> str:
    """Return ``place_of``, with the symbolic links of a local disk followed: the same for all names of a file, but for hard links."""
    place = place_of(location)
    return os.path.realpath(place) if split_location(location).scheme == "file" else place


def lies_below(location: str, folder: str) -> bool:
    """Whether a location is strictly below a folder of the same storage, however that treats dots, slashes and links.

    Anything that could lead out of the folder is outside: ``.`` and ``..`` as parts, empty parts, other schemes, hosts and buckets, names
    that only begin like the folder, and on a local disk a symbolic link in the path.

    >>> lies_below("file:///wh/t/a", "file:/wh/t/"), lies_below("/wh/t2/a", "/wh/t"), lies_below("/wh/t/../u/a", "/wh/t")
    (True, False, False)
    """
    inner, outer = split_location(location), split_location(folder)
    if (inner.family, inner.authority) != (outer.family, outer.authority):
        return False
    root, path = re.sub("/+", "/", outer.path).rstrip("/") + "/", re.sub("^/+", "/", inner.path)
    if root == "/" or not path.startswith(root) or "\0" in location:
        return False
    rest = inner.path if has_scheme(location) else location
    if _DOTS.search(rest) or "//" in path or path.endswith("/"):
        return False
    if inner.scheme != "file":
        return True
    return os.path.realpath(path).startswith(os.path.realpath(root).rstrip("/") + "/")


def asks_elsewhere(location: str, home: str, folder: str) -> bool:
    """Whether opening a location would contact another storage or host than that of ``home``, which the client trusts.

    Another bucket at the same endpoint may be that of ``folder``, the table's location.
    """
    there, here, table = split_location(location), split_location(home), split_location(folder)
    if there.family != here.family:
        return True
    if there.authority in ("", here.authority) or there.scheme == "file":
        return there.scheme == "file" and there.authority not in ("", "localhost", here.authority)
    return there.family not in _BUCKETS or there.authority != table.authority


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


def check_possible(location: str) -> None:
    """Check that a file can have this location at all.

    Raises:
        FormatError: it contains a NUL. Where storage would not refuse it, the path may end there.
    """
    if "\0" in location:
        raise FormatError(f"{location!r} contains a NUL, which no path can: was the location changed?")
