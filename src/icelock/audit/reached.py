"""``Reached``: the files that snapshots reach, each with the KEKs that lead to it; and whether two have one key.

Of a DEK nothing is kept but a keyed hash of 16 bytes, whose key is random and dies with the audit.

Not here: opening them (``audit.walk``).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from icelock.audit.findings import Findings
from icelock.errors import FormatError
from icelock.format.key_metadata import KeyMetadata

_HASH: Final = 16


@dataclass(slots=True)
class Seen:
    """A file: what it is, its stored bytes, the hash of its key (empty: it is plain), and a mask of the KEKs that reach it.

    The bytes are those that its entry promises; of a plain list or manifest those that it has.
    """

    kind: str
    size: int
    key_hash: bytes
    keks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A number of files and their bytes on storage."""

    files: int = 0
    bytes: int = 0


class Reached:
    """The files that were met so far. Not for several threads."""

    def __init__(self, findings: Findings, *, data_key_length: int) -> None:
        self._findings = findings
        self._data_key_length = data_key_length
        self._salt = os.urandom(_HASH)
        self._of_hash: dict[bytes, str] = {}
        self.files: dict[str, Seen] = {}

    def meet(self, path: str, kind: str, size: int, key: KeyMetadata | None, keks: int) -> bool:
        """Note a file; return whether it is new."""
        key_hash = b"" if key is None else hashlib.blake2b(key.dek.reveal(), key=self._salt, digest_size=_HASH).digest()
        seen = self.files.get(path)
        if seen is not None:
            seen.keks |= keks
            if seen.key_hash != key_hash:
                self._findings.add("two-keys-for-one-file", path, "two entries give it different keys")
            return False
        self.files[path] = Seen(kind, size, key_hash, keks)
        if key_hash:
            other = self._of_hash.setdefault(key_hash, path)
            if other != path:
                self._findings.add("key-used-twice", path, f"it has the key of {other}")
        return True

    def measured(self, path: str, size: int) -> None:
        """Note how many bytes a plain file that was met has: nothing that is authenticated promises it."""
        seen = self.files[path]
        if not seen.key_hash:
            seen.size = size

    def key_of(self, path: str, blob: bytes, size: int | None) -> KeyMetadata | None:
        """Return the key metadata of a file, None if it is damaged; ``size`` in stored bytes is what its entry says beside it."""
        add = self._findings.add
        try:
            key = KeyMetadata.decode(blob)
        except FormatError as e:
            add("key-metadata-damaged", path, str(e))
            return None
        if path not in self.files:
            self.check_key(path, key, size)
        return key

    def check_key(self, path: str, key: KeyMetadata, size: int | None) -> None:
        """Say what is wrong with a file's key metadata."""
        add = self._findings.add
        if key.encrypted_length is None:
            add("key-metadata-without-length", path, "its key metadata has no length")
        elif size is not None and size != key.encrypted_length:
            add("promised-length-differs", path, f"its entry says {size} bytes, and its key metadata {key.encrypted_length}")
        if not key.aad_prefix:
            add("key-metadata-without-aad-prefix", path, "its key metadata has no AAD prefix")
        if len(key.dek) < self._data_key_length:
            add("dek-too-short", path, f"its key has {len(key.dek)} bytes, and the table promises {self._data_key_length}")

    def tallies(self) -> Iterator[tuple[str, bool, Tally]]:
        """Yield kind, whether encrypted, and how many."""
        numbers: Counter[tuple[str, bool]] = Counter()
        sizes: Counter[tuple[str, bool]] = Counter()
        for seen in self.files.values():
            numbers[seen.kind, bool(seen.key_hash)] += 1
            sizes[seen.kind, bool(seen.key_hash)] += seen.size
        for (kind, encrypted), number in sorted(numbers.items()):
            yield kind, encrypted, Tally(files=number, bytes=sizes[kind, encrypted])

    def by_keks(self) -> dict[int, Tally]:
        """Return how many encrypted files each set of KEKs reaches."""
        numbers: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        for seen in self.files.values():
            if seen.key_hash:
                numbers[seen.keks] += 1
                sizes[seen.keks] += seen.size
        return {mask: Tally(files=number, bytes=sizes[mask]) for mask, number in numbers.items()}
