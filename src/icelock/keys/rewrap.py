"""KEKs that are wrapped anew: by another version of their master key, by another master key, or by another KMS.

A KEK stays the same key, with its id and ``KEY_TIMESTAMP``, so all that it seals stays as it is, and no file changes. Only who has both the
old KEK and the right to wrap can do it. So others need not believe it: ``are_the_same`` has the KMS open both forms.

Not here: the commit that replaces the entries (``table.maintenance.rotate``).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import replace

from icelock.format.encrypted_key import EncryptedKey
from icelock.kms import ask
from icelock.kms.client import KmsClient
from icelock.secret import SecretBytes


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
