"""What a file at a table's location is: by its name, and by how it begins.

Not here: which files are left over (``table.maintenance.removal.leftovers``), or are a converted table's plain ones (``plain_files``).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from pyiceberg.io import FileIO

from icelock.format import ags1
from icelock.format.parquet_crypto import ENCRYPTED_MAGIC

_MAGIC_LENGTH: Final = 4
_DATA: Final = ("parquet", "avro", "orc")


class Content(Enum):
    """How a file begins: only a hint, since whoever can write to storage can write these bytes too."""

    ENCRYPTED = "encrypted"
    PLAIN = "plain"
    EMPTY = "empty"
    UNREADABLE = "unreadable"


class Kind(Enum):
    """What a file is, by its name."""

    DATA = "data"
    DELETE = "delete"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"
    METADATA = "metadata.json"
    OTHER = "other"


_KINDS: Final = (
    (re.compile(r".*\.metadata\.json(\.gz)?|.*\.gz\.metadata\.json"), Kind.METADATA),
    (re.compile(r"snap-\d+-.*\.avro"), Kind.MANIFEST_LIST),
    (re.compile(r".*-m\d+\.avro"), Kind.MANIFEST),
    (re.compile(rf".*\.puffin|.*-deletes\.({'|'.join(_DATA)})"), Kind.DELETE),
    (re.compile(rf".*\.({'|'.join(_DATA)})"), Kind.DATA),
)


def without_checksum(name: str) -> str:
    """Return NAME for Hadoop's checksum file ``.NAME.crc``, which is treated like its file; any other name unchanged."""
    return name[1:-4] if name.startswith(".") and name.endswith(".crc") else name


def kind_of(location: str) -> Kind:
    """Return what a file is, by its name."""
    name = without_checksum(location.rpartition("/")[2])
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(name)), Kind.OTHER)


def content_of(io: FileIO, location: str) -> Content:
    """Return what a file's first bytes say."""
    try:
        return content_there(io, location)
    except Exception:  # noqa: BLE001 - deleted meanwhile, or unreadable: the rest of the list is worth having
        return Content.UNREADABLE


def content_there(io: FileIO, location: str) -> Content:
    """Return what a file's first bytes say.

    Raises:
        OSError: it cannot be read; a FileNotFoundError if it is not there.
    """
    with io.new_input(location).open() as stream:
        first = stream.read(_MAGIC_LENGTH)
    if not first:
        return Content.EMPTY
    return Content.ENCRYPTED if first in {ags1.MAGIC, ENCRYPTED_MAGIC} else Content.PLAIN
