"""Locations as text: their scheme, authority and path, and whether one lies below another.

A location is a name, not a URI to decode: nothing is unquoted, and ``#``, ``?``, ``%`` and the like are part of the path, as in Hadoop's
``Path`` (Java ``HadoopFileIO``). Java's ``S3FileIO`` cuts a key off at ``?`` and ``#``, so it cannot read a table at such a location.

Not here: opening files (``io.storage``), listing (``io.listing``).
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

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
