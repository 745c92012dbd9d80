"""The rules of a KEK: how it is made, how long it lives, how the KMS wraps and unwraps it.

- Generated locally, ``encryption.data-key-length`` bytes; the KMS gets only these bytes, to wrap. A new KEK is unwrapped once before
  anything is sealed under it: if the KMS did not give it back, all that it protects would be unreadable.
- ``KEY_TIMESTAMP`` (decimal ms) is its creation time. The exact text is the AAD of all that the KEK encrypts, so an old
  KEK cannot be made to look new (iceberg PR 14396). A KEK without it cannot be used.
- New snapshots use a KEK for 730 days from then (NIST SP 800-57; Java ``StandardEncryptionManager``); old snapshots keep
  theirs forever.
- A KEK from the future, made by a clock that was ahead, is not used for new snapshots until its time comes: otherwise it would be the
  newest for as long as the clock was ahead, plus 730 days. Clocks may differ by five minutes. Java uses such a KEK.

``KekCache`` keeps unwrapped KEKs for a bounded time and number. The key is (KMS client, master key id, wrapped blob): two clients that both
know ``key1`` never see each other's KEKs (case C-69). A client is told apart by its identity; its entry keeps it alive, so that no other
client gets that identity. Sixteen threads that need one KEK cause one KMS call; if it fails, all get its error and nothing is kept. An
entry expires ``max_age_seconds`` after its load began, at most one hour (Java's limit).

Source: format "Key entries in table metadata". Not here: which KEK is chosen (``keys/manager.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, final

from cachetools import TLRUCache

from icelock import metrics
from icelock.errors import FormatError, KeyUnavailableError, KmsError, PolicyError
from icelock.format.encrypted_key import KEY_TIMESTAMP, EncryptedKey
from icelock.keys.entropy import Entropy, mint_key_id
from icelock.kms import ask
from icelock.kms.client import KmsClient
from icelock.properties import KEK_CACHE_SECONDS, is_number
from icelock.secret import SecretBytes
from icelock.single_flight import SingleFlight

KEK_LIFESPAN_MS: Final = 730 * 24 * 60 * 60 * 1_000
CLOCKS_DIFFER_MS: Final = 5 * 60 * 1_000
MAX_AGE_SECONDS: Final = 3_600
MAX_ENTRIES: Final = 256
_INT64_DIGITS: Final = 19
_INT64_MAX: Final = 2**63 - 1
_Key = tuple[int, str, bytes]


def timestamp_aad(kek: EncryptedKey) -> bytes:
    """Return the AAD of all that the KEK encrypts: UTF-8 of its ``KEY_TIMESTAMP`` exactly as it is stored.

    Raises:
        KeyUnavailableError: it has none.
        FormatError: it cannot be encoded as UTF-8.
    """
    text = _timestamp_text(kek)
    try:
        return text.encode()
    except UnicodeEncodeError as e:
        raise _bad_timestamp(kek, text) from e


def created_ms(kek: EncryptedKey) -> int:
    """Return the KEK's creation time in ms since 1970, UTC.

    Raises:
        KeyUnavailableError: it has no timestamp.
        FormatError: the timestamp is not a decimal number of at most 63 bits.
    """
    text = _timestamp_text(kek)
    if not (is_number(text) and len(text) <= _INT64_DIGITS and int(text) <= _INT64_MAX):
        raise _bad_timestamp(kek, text)
    return int(text)


def is_live(kek: EncryptedKey, now_ms: int) -> bool:
    """Whether new snapshots may use the KEK: it is younger than 730 days, and not from the future.

    Raises:
        KeyUnavailableError: it has no timestamp.
        FormatError: the timestamp is not a decimal number.
    """
    return -CLOCKS_DIFFER_MS <= now_ms - created_ms(kek) < KEK_LIFESPAN_MS


def mint_kek(entropy: Entropy, length: int, *, kms: KmsClient, master_key_id: str, now_ms: int) -> tuple[EncryptedKey, SecretBytes]:
    """Generate a KEK of ``length`` bytes, have the master key wrap it, and unwrap it once as a trial.

    Two KMS calls; returns its entry for table metadata, and its raw bytes.

    Raises:
        KmsError: the KMS refused.
        KeyUnavailableError: the KMS client failed otherwise, or did not give the KEK back.
    """
    raw = entropy.random_bytes(length)
    blob = ask.wrapped_for_good(kms, raw, master_key_id)
    entry = EncryptedKey(
        key_id=mint_key_id(entropy), encrypted_key_metadata=blob, encrypted_by_id=master_key_id, properties={KEY_TIMESTAMP: str(now_ms)}
    )
    return entry, SecretBytes(raw)


def unwrap_kek(kek: EncryptedKey, *, kms: KmsClient) -> SecretBytes:
    """Have the KMS unwrap a KEK, in one call.

    Raises:
        KmsError: the KMS refused.
        KeyUnavailableError: the KMS client failed otherwise, or returned no key.
    """
    try:
        return SecretBytes(ask.unwrapped(kms, kek.encrypted_key_metadata, kek.encrypted_by_id))
    except KmsError:
        raise
    except KeyUnavailableError as e:
        msg = f"KEK {kek.key_id!r}: {e}"
        raise ask.restated(e, msg) from e


def _timestamp_text(kek: EncryptedKey) -> str:
    text = kek.properties.get(KEY_TIMESTAMP)
    if text is None:
        raise KeyUnavailableError(
            f"KEK {kek.key_id!r} has no {KEY_TIMESTAMP}, so it cannot open anything; restore a metadata file that still has it"
        )
    return text


def _bad_timestamp(kek: EncryptedKey, text: str) -> FormatError:
    return FormatError(
        f"KEK {kek.key_id!r}: expected {KEY_TIMESTAMP} in decimal milliseconds, got {text!r}; restore an older metadata file"
    )


class _Entry(NamedTuple):
    kms: KmsClient
    since: float
    kek: SecretBytes


@final
class KekCache:
    """A thread-safe cache of unwrapped KEKs; one may serve many tables and KMS clients.

    Args:
        clock: monotonic seconds.
        max_age_seconds: 0 (nothing is kept) to 3600.
        max_entries: above this number, the least recently used one is dropped.

    Raises:
        PolicyError: an age or number out of range.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, max_age_seconds: float = MAX_AGE_SECONDS, *, max_entries: int = MAX_ENTRIES
    ) -> None:
        if not 0 <= max_age_seconds <= MAX_AGE_SECONDS:
            raise PolicyError(f"{KEK_CACHE_SECONDS} is {max_age_seconds}; it must be 0 to {MAX_AGE_SECONDS}")
        if max_entries < 1:
            raise PolicyError(f"a KEK cache holds 1 entry or more, not {max_entries}")
        self._clock = clock
        self._max_age = max_age_seconds
        self._max_entries = max_entries
        self._entries = SingleFlight(TLRUCache[_Key, _Entry](max_entries, lambda _, entry, __: entry.since + max_age_seconds, clock))

    def get(self, kms: KmsClient, master_key_id: str, blob: bytes, load: Callable[[], SecretBytes]) -> SecretBytes:
        """Return the KEK of that blob, from the cache or by calling ``load`` once.

        Raises:
            Exception: whatever ``load`` raises.
        """
        loaded = False

        def unwrap() -> _Entry:
            nonlocal loaded
            loaded = True
            return _Entry(kms, self._clock(), load())

        kek = self._entries.get((id(kms), master_key_id, blob), unwrap).kek
        metrics.add(key_cache_misses=loaded, key_cache_hits=not loaded)
        return kek

    def put(self, kms: KmsClient, master_key_id: str, blob: bytes, kek: SecretBytes) -> None:
        """Keep a KEK that was just minted."""
        self._entries.put((id(kms), master_key_id, blob), _Entry(kms, self._clock(), kek))

    def clear(self) -> None:
        """Forget all KEKs."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(max_age_seconds={self._max_age}, max_entries={self._max_entries})"
