"""``KeyRotation``: the requirement of the one kind of commit that may change a table's master key, and how its KEKs are wrapped.

It is checked on the metadata that the commit is made on, and tells the guard what may change; a REST server does not see it. There another
rotation, or a writer that makes a new KEK, may come between the look and the commit only if it moves no branch or tag.

Not here: wrapping (``keys.rewrap``), the work (``table.maintenance.rotate``).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.rewrap import keks_under


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRotation:
    """What a commit replaces.

    ``before`` are the entries of all KEKs of master key ``from_key``, ``after`` those of the same KEKs under ``to_key``.
    """

    table: str
    from_key: str
    to_key: str
    before: tuple[EncryptedKey, ...]
    after: tuple[EncryptedKey, ...]

    def validate(self, base_metadata: TableMetadata | None) -> None:
        """Check that the KEKs are still those that were wrapped anew.

        Raises:
            CommitFailedException: they are not.
        """
        keys = getattr(base_metadata, "encryption_keys", ())
        key_id = None if base_metadata is None else base_metadata.properties.get(names.ENCRYPTION_KEY_ID)
        if key_id != self.from_key or keks_under(keys, self.from_key) != self.before:
            raise CommitFailedException(f"table {self.table}: another writer changed its KEKs; nothing was changed")

    def replaces(self, old: EncryptedKey, new: EncryptedKey) -> bool:
        """Whether an entry may take the place of another one."""
        return (old, new) in zip(self.before, self.after, strict=True)
