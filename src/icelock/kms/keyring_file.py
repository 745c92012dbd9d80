"""The keyring file on disk: reading it, and replacing it under a lock.

- A reader takes no lock: the file is only ever replaced by an atomic rename, so it is whole.
- A writer holds an exclusive ``flock`` on ``<keyring>.lock`` from reading to renaming. The lock file stays.
- The keyring and its temporary file are made with mode 0600 and are written through to the disk.

Not here: the lock and the rename (``kms/private_file.py``), the format (``kms/keyring_format.py``), passphrases and key files
(``kms/unlock.py``), the KMS client (``kms/local.py``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from icelock.errors import FormatError, IntegrityError, KmsError, KmsErrorKind, PolicyError
from icelock.format.aes_gcm import NONCE_LENGTH
from icelock.kms.keyring import SALT_LENGTH, Keyring, PassphraseProtection
from icelock.kms.keyring_format import decode_keyring, encode_keyring
from icelock.kms.private_file import file_error, lock_path, replace_file, take_lock
from icelock.kms.unlock import Unlocker
from icelock.secret import SecretBytes

_LOCK_WAIT_SECONDS: Final = 10.0
KEYRING_REMEDY: Final = "make one with `icelock keyring init`, or correct kms.local.path"


def load_keyring(path: Path, unlocker: Unlocker) -> Keyring:
    """Read, unlock and check a keyring file.

    Raises:
        KmsError: ``UNAVAILABLE`` when a file is missing; ``DENIED`` when it may not be read or the secret is wrong.
        FormatError: not a keyring.
        IntegrityError: the keyring was changed.
    """
    return _load(path, unlocker)[0]


def create_keyring(path: Path, unlocker: Unlocker, keyring: Keyring, *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
    """Write a keyring to a new file.

    Raises:
        PolicyError: the file exists.
        KmsError: the secret cannot be had, or the file cannot be written.
    """
    path = path.resolve()
    with _locked(path):
        if path.exists():
            raise PolicyError(f"keyring {path} already exists; add keys with `icelock keyring add`, or name another file")
        _replace(path, keyring, unlocker.keyring_key(keyring.protection), random_bytes)


def change_keyring(
    path: Path, unlocker: Unlocker, change: Callable[[Keyring], Keyring], *, random_bytes: Callable[[int], bytes] = os.urandom
) -> Keyring:
    """Replace a keyring by what ``change`` makes of it, under the lock; return the new one.

    If ``change`` raises, the file stays as it was.

    Raises:
        KmsError: as ``load_keyring``; ``UNAVAILABLE`` also when another process holds the lock for 10 seconds.
        FormatError: not a keyring.
        IntegrityError: the keyring was tampered with.
    """
    path = path.resolve()
    with _locked(path):
        keyring, keyring_key = _load(path, unlocker)
        changed = change(keyring)
        _replace(path, changed, keyring_key, random_bytes)
    return changed


def new_passphrase_protection(*, random_bytes: Callable[[int], bytes] = os.urandom) -> PassphraseProtection:
    """Return the default Argon2id parameters with a fresh salt."""
    return PassphraseProtection(salt=random_bytes(SALT_LENGTH))


def _load(path: Path, unlocker: Unlocker) -> tuple[Keyring, SecretBytes]:
    try:
        data = path.read_bytes()
    except OSError as e:
        raise file_error(e, "keyring", path, KEYRING_REMEDY) from e
    try:
        return decode_keyring(data, unlocker.keyring_key)
    except KmsError as e:
        raise KmsError(f"keyring {path}: {e}", kind=e.kind, key_id=e.key_id) from e
    except (FormatError, IntegrityError) as e:
        raise type(e)(f"keyring {path}: {e}") from e


def _replace(path: Path, keyring: Keyring, keyring_key: SecretBytes, random_bytes: Callable[[int], bytes]) -> None:
    data = encode_keyring(keyring, keyring_key, check_nonce=random_bytes(NONCE_LENGTH), nonce=random_bytes(NONCE_LENGTH))
    try:
        replace_file(path, data)
    except OSError as e:
        raise file_error(e, "keyring", path) from e


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = lock_path(path)
    try:
        descriptor = take_lock(lock, wait_seconds=_LOCK_WAIT_SECONDS)
    except TimeoutError as e:
        raise KmsError(str(e), kind=KmsErrorKind.UNAVAILABLE, key_id="") from e
    except OSError as e:
        raise file_error(e, "lock file", lock) from e
    try:
        yield
    finally:
        os.close(descriptor)
