"""``KeyEntries``: the ``encryption-keys`` of one version of table metadata, by id.

The view is a copy and never changes. New entries are committed together with the snapshot that needs them and appear in the
next version's view: a key store that is changed in place loses keys under concurrent commits (iceberg 17990, 17984).

An entry wrapped by another entry is a manifest-list key; every other entry is a KEK.

Source: format "Key entries in table metadata". Not here: opening an entry (``keys/manager.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from icelock.errors import FormatError, KeyUnavailableError
from icelock.format.encrypted_key import EncryptedKey


@final
class KeyEntries:
    """An immutable view of key entries in the order of the metadata.

    Args:
        keys: the entries. Equal entries count once (a retried commit may repeat them).

    Raises:
        FormatError: one id with two different entries.
    """

    __slots__ = ("_by_id",)

    def __init__(self, keys: Iterable[EncryptedKey] = ()) -> None:
        by_id: dict[str, EncryptedKey] = {}
        for key in keys:
            known = by_id.setdefault(key.key_id, key)
            if known is not key and known != key:
                raise FormatError(
                    f"encryption-keys: key id {key.key_id!r} occurs twice with different content; restore an older metadata file"
                )
        self._by_id = by_id

    def get(self, key_id: str) -> EncryptedKey:
        """Return the entry with that id.

        Raises:
            KeyUnavailableError: there is no such entry.
        """
        try:
            return self._by_id[key_id]
        except KeyError as e:
            raise KeyUnavailableError(
                f"encryption-keys has no entry {key_id!r} ({len(self)} others); restore a metadata file that still has it"
            ) from e

    def kek(self, key_id: str) -> EncryptedKey:
        """Return the entry with that id, which must be a KEK.

        Raises:
            KeyUnavailableError: there is no such entry.
            FormatError: it is a manifest-list key.
        """
        entry = self.get(key_id)
        if not self.is_kek(entry):
            raise FormatError(
                f"encryption-keys: expected {key_id!r} to be a KEK, wrapped by a master key, got a key wrapped by the entry "
                f"{entry.encrypted_by_id!r}; restore an older metadata file"
            )
        return entry

    def is_kek(self, entry: EncryptedKey) -> bool:
        """Whether no entry wraps this one, so that a master key must have."""
        return entry.encrypted_by_id not in self._by_id

    def keks(self, master_key_id: str) -> Iterator[EncryptedKey]:
        """Yield the KEKs that this master key wraps, in order."""
        return (key for key in self if key.encrypted_by_id == master_key_id and self.is_kek(key))

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._by_id

    def __iter__(self) -> Iterator[EncryptedKey]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._by_id))})"
