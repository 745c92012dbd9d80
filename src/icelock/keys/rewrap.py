"""KEKs that are wrapped anew: by another version of their master key, by another master key, or by another KMS.

A KEK stays the same key, with its id and ``KEY_TIMESTAMP``, so all that it seals stays as it is, and no file changes. Only who has both the
old KEK and the right to wrap can do it. So others need not believe it: ``are_the_same`` has the KMS open both forms.

Java seals new snapshots under the KEK that it finds first among those young enough, in the order of a ``HashMap`` of all entries
(``StandardEncryptionManager.keyEncryptionKeyID``, ``SerializableMap``). So that it finds the one that a rotation made, this has an id that
falls into the first bucket of every map of at most 3,072 entries; of two such ids the one that stands first in the metadata comes first.

Not here: the commit that replaces the entries (``table.maintenance.rotate``).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.entropy import Entropy, mint_key_id
from icelock.kms import ask
from icelock.kms.client import KmsClient
from icelock.secret import SecretBytes

_BUCKETS: Final = 4096  # of a map that is three quarters full


def mint_first_key_id(entropy: Entropy) -> str:
    """Return a new key id that Java's map has before others; about 4,096 are tried, and a random one is as good for all but Java."""
    for _ in range(32 * _BUCKETS):
        key_id = mint_key_id(entropy)
        code = _java_hash(key_id)
        if (code ^ code >> 16) % _BUCKETS == 0:
            break
    return key_id


def _java_hash(text: str) -> int:
    """Return what Java's ``String.hashCode`` says of ASCII text, as an unsigned number of 32 bits."""
    code = 0
    for byte in text.encode("ascii"):
        code = (31 * code + byte) & 0xFFFFFFFF
    return code


def keks_under(keys: Iterable[EncryptedKey], master_key_id: str | None) -> tuple[EncryptedKey, ...]:
    """Return the entries that a master key wraps, in order."""
    return tuple(key for key in keys if key.encrypted_by_id == master_key_id)


def rewrap(kek: EncryptedKey, raw: SecretBytes, *, kms: KmsClient, master_key_id: str) -> EncryptedKey:
    """Return a KEK's entry with its bytes wrapped by a master key: one call, and one to unwrap it as a trial.

    Raises:
        KmsError: the KMS refused.
        KeyUnavailableError: the KMS client failed otherwise, or did not give the KEK back.
    """
    blob = ask.wrapped_for_good(kms, raw.reveal(), master_key_id)
    return replace(kek, encrypted_key_metadata=blob, encrypted_by_id=master_key_id)


def are_the_same(
    before: Iterable[EncryptedKey], now: Iterable[EncryptedKey], master_key_id: str | None, *, opened: Callable[[EncryptedKey], SecretBytes]
) -> bool:
    """Whether a table's KEKs, which ``master_key_id`` should wrap now, are those from before, as far as their ids are the same.

    At least one must be. ``opened`` unwraps an entry; it is called for entries that differ.

    Raises:
        Exception: whatever ``opened`` raises.
    """
    present = {kek.key_id: kek for kek in now}
    pairs = [(old, present[old.key_id]) for old in before if old.key_id in present]
    if not pairs or any(new.encrypted_by_id != master_key_id or new.properties != old.properties for old, new in pairs):
        return False
    return all(old == new or hmac.compare_digest(opened(old).reveal(), opened(new).reveal()) for old, new in pairs)
