"""``EncryptionManager``: the keys of one version of one table's metadata.

Read:  1 snapshot's ``key-id`` → manifest-list key entry.  2 ``encrypted-by-id`` → KEK entry.  3 the KMS unwraps the KEK
       (cached).  4 AES-GCM opens the entry under the KEK, AAD = UTF-8 of the KEK's ``KEY_TIMESTAMP``.  5 key metadata.
Write: 1 the newest live KEK of this master key, else one left over from a failed attempt, else a new one (a wrap and a trial unwrap).
       2 the key metadata of the closed manifest list is sealed under it.  3 the new entries are returned.

A manager never changes: it returns what it mints, and the commit puts the entries into the metadata together with the snapshot
that needs them. The next version of the metadata gets its own manager (otherwise keys get lost: iceberg 17990, 17984).

Source: format "Key entries in table metadata"; Java ``StandardEncryptionManager``. Deviation: Java takes the first live KEK,
this the newest one whose time has come; Java unwraps every KEK with the table's key id, this refuses a KEK of another master key.
Not here: files (``io``), and what executors need, which is ``keys/entropy.py`` only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from icelock import telemetry
from icelock.errors import FormatError, IntegrityError, KeyUnavailableError, KmsError, PolicyError
from icelock.format import aes_gcm
from icelock.format.encrypted_key import EncryptedKey
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.keys.entropy import Entropy, SystemEntropy, mint_file_key, mint_key_id
from icelock.keys.kek import KekCache, created_ms, is_live, mint_kek, timestamp_aad, unwrap_kek
from icelock.keys.key_entries import KeyEntries
from icelock.kms import ask
from icelock.kms.client import KmsClient
from icelock.secret import SecretBytes


def system_clock_ms() -> int:
    """Return the time in ms since 1970, UTC."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedKey:
    """A sealed manifest-list key.

    Attributes:
        key_id: the snapshot's ``key-id``.
        new_entries: to be added to ``encryption-keys`` in the same commit: the KEK if it is new, then the manifest-list key.
    """

    key_id: str
    new_entries: tuple[EncryptedKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncryptionManager:
    """Mints, seals and opens keys for one version of a table's metadata. Immutable; may be used by many threads.

    The KMS is called at most once for each distinct KEK while the cache keeps it, and for each seal at most once to wrap and once to try
    the result. A manager is not pickled: executors get file keys only.

    Attributes:
        table: the table's name, for messages.
        master_key_id: the table's ``encryption.key-id``.
        data_key_length: length of DEKs and of new KEKs: 16, 24 or 32 bytes.
        keys: the metadata's ``encryption-keys``.
        kms: the catalog's KMS client.
        cache: unwrapped KEKs.
        unused_keks: entries that were minted for the same commit but did not reach the metadata. A live KEK among them is used
            again, so that a commit wraps once however often it is tried.
        entropy: source of keys, nonces and ids.
        clock: ms since 1970, UTC.

    Raises:
        PolicyError: an invalid data key length, or no master key id.
        FormatError: one key id with two different entries.
    """

    table: str
    master_key_id: str
    data_key_length: int
    keys: Sequence[EncryptedKey] = field(repr=False)
    kms: KmsClient = field(repr=False)
    cache: KekCache = field(repr=False)
    unused_keks: Sequence[EncryptedKey] = field(default=(), repr=False)
    entropy: Entropy = field(default_factory=SystemEntropy, repr=False)
    clock: Callable[[], int] = field(default=system_clock_ms, repr=False)
    _entries: KeyEntries = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.master_key_id:
            raise PolicyError(f"table {self.table}: encryption.key-id is empty; it must name a master key")
        if self.data_key_length not in aes_gcm.KEY_LENGTHS:
            raise PolicyError(f"table {self.table}: encryption.data-key-length is {self.data_key_length}; it must be 16, 24 or 32 (bytes)")
        object.__setattr__(self, "keys", tuple(self.keys))
        object.__setattr__(self, "unused_keks", tuple(self.unused_keks))
        object.__setattr__(self, "_entries", KeyEntries(self.keys))

    def mint_file_key(self) -> FileKey:
        """Return a new file's DEK and AAD prefix; call it once for each file."""
        return mint_file_key(self.entropy, self.data_key_length)

    def open_manifest_list_key(self, snapshot_key_id: str) -> KeyMetadata:
        """Return the key metadata of a snapshot's manifest list.

        Args:
            snapshot_key_id: the snapshot's ``key-id``.

        Raises:
            KeyUnavailableError: an entry or a timestamp is missing, or the KEK is another master key's; KmsError if the KMS
                refused.
            IntegrityError: the entry or the KEK's timestamp was changed, or the KMS returned another key.
            FormatError: an invalid entry.
        """
        with self._naming(snapshot_key_id):
            entry = self._entries.get(snapshot_key_id)
            if entry.encrypted_by_id == self.master_key_id:
                raise FormatError("expected a manifest-list key, got a KEK; the snapshot's key-id is wrong: restore an older metadata file")
            kek = self._entries.kek(entry.encrypted_by_id)
            aad = timestamp_aad(kek)
            try:
                data = aes_gcm.decrypt(self._unwrapped(kek).reveal(), entry.encrypted_key_metadata, aad)
            except IntegrityError as e:
                raise IntegrityError(
                    f"KEK {kek.key_id!r} does not open the entry: expected an entry sealed under it at KEY_TIMESTAMP {aad.decode()!r}, got "
                    "changed bytes, a changed timestamp or another KEK; restore an older metadata file"
                ) from e
            self._tell_use("open", snapshot_key_id, kek)
            return KeyMetadata.decode(data)

    def prepare_kek(self) -> tuple[EncryptedKey, ...]:
        """Make sure, before anything is written, that there is a KEK to seal with.

        A live KEK of the metadata or among ``unused_keks`` is unwrapped; otherwise one is minted (one wrap and one trial unwrap).

        Returns:
            The new KEK's entry, to be given as ``unused_keks`` to the managers of this commit; empty if none was minted.

        Raises:
            KeyUnavailableError: a KEK of the table has no timestamp; KmsError if the KMS refused.
            FormatError: a KEK's timestamp is not a number.
        """
        with self._naming(self.master_key_id):
            kek, _ = self._kek_for_sealing()
        known = kek.key_id in self._entries or any(kek.key_id == key.key_id for key in self.unused_keks)
        return () if known else (kek,)

    def seal_manifest_list_key(self, key_metadata: KeyMetadata) -> SealedKey:
        """Seal the key metadata of a closed manifest list, and return the entries to commit with the snapshot.

        Args:
            key_metadata: with its encrypted length set.

        Raises:
            FormatError: the length is not set.
            KeyUnavailableError: a KEK of the table has no timestamp; KmsError if the KMS refused.
        """
        key_id = mint_key_id(self.entropy)
        with self._naming(key_id):
            if key_metadata.encrypted_length is None:
                raise FormatError("the manifest list's key metadata has no length; close the file first, then seal")
            kek, key = self._kek_for_sealing()
            nonce = self.entropy.random_bytes(aes_gcm.NONCE_LENGTH)
            sealed = aes_gcm.encrypt(key.reveal(), nonce, key_metadata.encode(), timestamp_aad(kek))
            entry = EncryptedKey(key_id=key_id, encrypted_key_metadata=sealed, encrypted_by_id=kek.key_id)
            self._tell_use("seal", key_id, kek)
        return SealedKey(key_id=key_id, new_entries=(entry,) if kek.key_id in self._entries else (kek, entry))

    def _tell_use(self, use: str, key_id: str, kek: EncryptedKey) -> None:
        telemetry.event(
            "keys", logging.DEBUG, "key-use", use=use, table=self.table, key_id=key_id, kek_id=kek.key_id, master_key_id=self.master_key_id
        )

    def _kek_for_sealing(self) -> tuple[EncryptedKey, SecretBytes]:
        now = self.clock()
        for entries in (self._entries, KeyEntries(self.unused_keks)):
            live = [kek for kek in entries.keks(self.master_key_id) if is_live(kek, now)]
            if live:
                newest = max(live, key=created_ms)
                return newest, self._unwrapped(newest)
        kek, key = mint_kek(self.entropy, self.data_key_length, kms=self.kms, master_key_id=self.master_key_id, now_ms=now)
        self.cache.put(self.kms, self.master_key_id, kek.encrypted_key_metadata, key)
        return kek, key

    def _unwrapped(self, kek: EncryptedKey) -> SecretBytes:
        if kek.encrypted_by_id != self.master_key_id:
            raise KeyUnavailableError(
                f"KEK {kek.key_id!r}: expected it to be wrapped by the table's master key {self.master_key_id!r} (encryption.key-id), got "
                f"{kek.encrypted_by_id!r}; set the table's key id back, it must not change"
            )
        return self.cache.get(self.kms, self.master_key_id, kek.encrypted_key_metadata, lambda: unwrap_kek(kek, kms=self.kms))

    @contextmanager
    def _naming(self, key_id: str) -> Iterator[None]:
        """Prefix error messages with the table's name and the key id."""
        try:
            yield
        except KmsError as e:
            raise ask.restated(e, f"table {self.table}: {e}") from e
        except (KeyUnavailableError, IntegrityError, FormatError) as e:
            raise type(e)(f"table {self.table}, key id {key_id!r}: {e}") from e

    def __reduce__(self) -> NoReturn:
        raise TypeError("EncryptionManager is not pickled: KMS clients and KEKs stay in the process that made them; send file keys instead")
