"""KEKs that are wrapped anew: by another version of their master key, by another master key, or by another KMS.

A KEK stays the same key, with its id and ``KEY_TIMESTAMP``, so all that it seals stays as it is, and no file changes. Only who has both the
old KEK and the right to wrap can do it. So others need not believe it: ``are_the_same`` has the KMS open both forms.

Older forms lie in older metadata files, and somebody could put one back. So rotations are numbered: an entry's property
``icelock-rotation`` is its number, and AES-GCM of nothing under the KEK, with the number and all of the entry as AAD. Java keeps properties
that it does not know.

Java seals new snapshots under the KEK that it finds first among those young enough, in the order of a ``HashMap`` of all entries
(``StandardEncryptionManager.keyEncryptionKeyID``, ``SerializableMap``). So that it finds the one that a rotation made, this has an id that
falls into the first bucket of every map of at most 3,072 entries; of two such ids the one that stands first in the metadata comes first.

Not here: the commit that replaces the entries (``table.maintenance.rotation.rotate``).
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from typing import Final, TypeVar

from icelock.errors import FormatError, IntegrityError
from icelock.format import aes_gcm
from icelock.format.encrypted_key import KEY_TIMESTAMP, EncryptedKey
from icelock.keys.entropy import Entropy, mint_key_id
from icelock.kms import ask
from icelock.kms.client import KmsClient
from icelock.secret import SecretBytes

ROTATION: Final = "icelock-rotation"
_DIGITS: Final = 19
_BUCKETS: Final = 4096  # of a map that is three quarters full
_CALLS: Final = 8  # of the KMS at a time
T = TypeVar("T")
R = TypeVar("R")


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


def rewrap(
    keks: Sequence[tuple[EncryptedKey, SecretBytes]], *, kms: KmsClient, master_key_id: str, entropy: Entropy
) -> tuple[EncryptedKey, ...]:
    """Return the entries of KEKs with their bytes wrapped by a master key: one call each, and then one each to unwrap it as a trial.

    Each KEK has its trial: a client may lose some keys and keep others (those that end with a byte that it strips, say), and with a KEK go
    all rows below it. All are wrapped before the first one is tried, so that a client that only knows its last answer is found out.

    Raises:
        IntegrityError: the number of the last rotation was changed.
        KmsError: the KMS refused.
        KeyUnavailableError: the KMS client failed otherwise, or did not give a KEK back.
    """
    number = max((_number(kek, raw) for kek, raw in keks), default=0) + 1
    blobs = at_once(lambda one: ask.wrapped(kms, one[1].reveal(), master_key_id), keks)
    at_once(lambda one: ask.check_unwraps(kms, one[0], one[1][1].reveal(), master_key_id), list(zip(blobs, keks, strict=True)))
    return tuple(
        _numbered(replace(kek, encrypted_key_metadata=blob, encrypted_by_id=master_key_id), raw, number, entropy)
        for blob, (kek, raw) in zip(blobs, keks, strict=True)
    )


def at_once(call: Callable[[T], R], keks: Sequence[T]) -> list[R]:
    """Return what a KMS answers for each KEK, a few calls at a time: a service takes tens of milliseconds for each.

    Raises:
        Exception: what a call raised, that of the first KEK of which one did; no further ones are begun then.
    """
    with ThreadPoolExecutor(_CALLS, thread_name_prefix="icelock-kms") as pool:
        running = [pool.submit(call, kek) for kek in keks]
        try:
            return [one.result() for one in running]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def are_the_same(
    before: Iterable[EncryptedKey], now: Iterable[EncryptedKey], master_key_id: str | None, *, opened: Callable[[EncryptedKey], SecretBytes]
) -> bool:
    """Whether a table's KEKs, which ``master_key_id`` should wrap now, are those from before, as far as their ids are the same.

    The newest one, which an expiry keeps, must be, and an entry that differs must be of a later rotation. ``opened`` unwraps an entry;
    it is called for those.

    Raises:
        Exception: whatever ``opened`` raises.
    """
    present, known = {kek.key_id: kek for kek in now}, list(before)
    pairs = [(old, present[old.key_id]) for old in known if old.key_id in present]
    newest = max(known, key=lambda kek: kek.properties.get(KEY_TIMESTAMP, "").rjust(_DIGITS, "0"), default=None)
    return (
        newest is not None
        and newest.key_id in present
        and all(
            new.encrypted_by_id == master_key_id
            and new.properties.get(KEY_TIMESTAMP) == old.properties.get(KEY_TIMESTAMP)
            and (old == new or _follows(old, new, opened))
            for old, new in pairs
        )
    )


def _follows(old: EncryptedKey, new: EncryptedKey, opened: Callable[[EncryptedKey], SecretBytes]) -> bool:
    raw, present = opened(old), opened(new)
    try:
        return hmac.compare_digest(raw.reveal(), present.reveal()) and _number(new, present) > _number(old, raw)
    except IntegrityError:
        return False


def _numbered(kek: EncryptedKey, raw: SecretBytes, number: int, entropy: Entropy) -> EncryptedKey:
    seal = aes_gcm.encrypt(raw.reveal(), entropy.random_bytes(aes_gcm.NONCE_LENGTH), b"", _statement(kek, number))
    text = f"{number} {base64.b64encode(seal).decode()}"
    # In the order of Java's HashMap, in which Java writes them: its hash of the metadata goes by that.
    return replace(kek, properties={ROTATION: text, **{name: value for name, value in kek.properties.items() if name != ROTATION}})


def _number(kek: EncryptedKey, raw: SecretBytes) -> int:
    """Return the number of the rotation that wrapped a KEK, 0 if none did.

    Raises:
        IntegrityError: it, or the entry, was changed.
    """
    text = kek.properties.get(ROTATION)
    if text is None:
        return 0
    number, _, seal = text.partition(" ")
    try:
        aes_gcm.decrypt(raw.reveal(), base64.b64decode(seal, validate=True), _statement(kek, int(number)))
    except (ValueError, FormatError, IntegrityError) as e:
        raise IntegrityError(f"KEK {kek.key_id!r}: its {ROTATION} was changed, or is another entry's; restore the metadata file") from e
    return int(number)


def _statement(kek: EncryptedKey, number: int) -> bytes:
    """Return the AAD of a rotation's seal: what was wrapped, by what, to what, and when in the order of rotations."""
    digest = sha256(kek.encrypted_key_metadata).hexdigest()
    return json.dumps([ROTATION, number, kek.key_id, kek.properties.get(KEY_TIMESTAMP), kek.encrypted_by_id, digest]).encode()
