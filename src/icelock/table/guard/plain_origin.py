"""What a converted table says of the plain one that it was: the location and SHA-256 of its metadata file, in one property.

It is named ``icelock.converted-from`` until the removal of the plain files begins, and ``icelock.removing-plain`` from then on: the commit
that renames it closes the way back, so no plain file is deleted of a table that may become plain again. Users can take it out, not set it.

The digest is worth what the table's metadata file is worth, which the catalog protects. The plain metadata file is protected by the digest.
The manifests and data files that it leads to are not: who writes to storage can change them, as those of any plain table.

Not here: reading that file (``table.maintenance.removal.plain_files``), the removal (``icelock.maintenance.remove_plain``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import PolicyError
from icelock.metadata.table_metadata import is_encrypted

_DIGEST: Final = " sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainOrigin:
    """Where a table's plain version is.

    Args:
        location: of its metadata file.
        sha256: of that file's bytes, in hexadecimal; empty if the property has none, which no file fits.
        removing: whether the removal of its files was begun.
    """

    location: str
    sha256: str
    removing: bool = False

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> PlainOrigin | None:
        """Return what the properties of a table say; None if it was not converted, or its plain files were removed."""
        name = next((name for name in names.PLAIN_ORIGIN if name in properties), None)
        if name is None:
            return None
        location, found, digest = properties[name].rpartition(_DIGEST)
        return cls(location=location if found else digest, sha256=digest if found else "", removing=name == names.REMOVING_PLAIN)

    @classmethod
    def needed(cls, metadata: TableMetadata, *, table: str, without: str) -> PlainOrigin:
        """Return the origin of a converted table; a PolicyError for a plain table, or with ``without`` for one that has none."""
        found = cls.of(metadata.properties)
        if found is None:
            why = without if is_encrypted(metadata) else "is plain: it was not converted, or that was undone"
            raise PolicyError(f"table {table} {why}")
        return found

    @classmethod
    def at(cls, location: str, data: bytes) -> PlainOrigin:
        """Return the origin that a metadata file is."""
        return cls(location=location, sha256=hashlib.sha256(data).hexdigest())

    def is_file(self, data: bytes) -> bool:
        """Whether these are the bytes of the metadata file."""
        return self.sha256 == hashlib.sha256(data).hexdigest()

    @property
    def name(self) -> str:
        """The property's name."""
        return names.REMOVING_PLAIN if self.removing else names.CONVERTED_FROM

    @property
    def value(self) -> str:
        """The property's value."""
        return f"{self.location}{_DIGEST}{self.sha256}"

    @property
    def way_out(self) -> str:
        """What to do if the plain files cannot be told; for messages."""
        return (
            f"restore that file; or, if it is lost, take the property out (transaction.remove_properties({self.name!r})): what is there of "
            "the plain files is left over then, and icelock leftovers lists it"
        )


def check_origin_set(now: Mapping[str, str], updates: Mapping[str, str], *, table: str) -> None:
    """Check an update of properties: the origin is not set, but by the step from one of its names to the other.

    Raises:
        PolicyError: it would be set or changed.
    """
    for name in names.PLAIN_ORIGIN:
        step = name == names.REMOVING_PLAIN and updates.get(name) == now.get(names.CONVERTED_FROM)
        if name in updates and updates[name] != now.get(name) and not step:
            raise PolicyError(f"table {table}: {name} is set by icelock convert alone; it can be removed, and not set")
