"""Unlocking a keyring: passphrases and key files.

- A passphrase is NFC-normalised UTF-8 and goes through Argon2id with the parameters that the keyring names.
- A key file holds base64 of 32 bytes on one line. It must not be accessible to group or others.

Not here: the keyring (``kms/keyring_file.py``); prompting (the CLI).
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from icelock.errors import FormatError, KmsError, KmsErrorKind, PolicyError
from icelock.kms.keyring import KEY_LENGTH, KeyFileProtection, PassphraseProtection, Protection
from icelock.kms.private_file import file_error, sync_directory, write_new
from icelock.properties import KMS_LOCAL_KEY_FILE
from icelock.secret import SecretBytes

PASSPHRASE_ENV_DEFAULT: Final = "ICELOCK_KEYRING_PASSPHRASE"  # noqa: S105 - the name of a variable
_KEY_FILE_TEXT_LENGTH: Final = 44
KEY_FILE_REMEDY: Final = f"correct {KMS_LOCAL_KEY_FILE} (or --key-file), or restore the file"
_GROUP_AND_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Unlocker(Protocol):
    """Where the keyring key comes from."""

    def keyring_key(self, protection: Protection) -> SecretBytes:
        """Return the 32 bytes for a keyring so protected.

        Raises:
            KmsError: ``DENIED`` when the keyring asks for the other kind of protection or the secret may not be read,
                ``UNAVAILABLE`` when there is no secret.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PassphraseUnlocker:
    """Unlocks with a passphrase; ``read`` is called each time and returns the text."""

    read: Callable[[], str]

    def keyring_key(self, protection: Protection) -> SecretBytes:
        """Derive the key with Argon2id (see ``Unlocker``)."""
        if not isinstance(protection, PassphraseProtection):
            raise _denied("the keyring is protected by a key file, not by a passphrase; set kms.local.key-file (or give --key-file)")
        passphrase = unicodedata.normalize("NFC", self.read()).encode(errors="surrogateescape")
        if not passphrase:
            raise _denied("the passphrase is empty; give the one that the keyring was made with")
        argon2id = Argon2id(
            salt=protection.salt,
            length=KEY_LENGTH,
            iterations=protection.iterations,
            lanes=protection.lanes,
            memory_cost=protection.memory_kib,
        )
        return SecretBytes(argon2id.derive(passphrase))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFileUnlocker:
    """Unlocks with the key file at ``path``."""

    path: Path

    def keyring_key(self, protection: Protection) -> SecretBytes:
        """Read the key file (see ``Unlocker``)."""
        if not isinstance(protection, KeyFileProtection):
            raise _denied(
                f"the keyring is protected by a passphrase, not by the key file {self.path}; remove kms.local.key-file (or --key-file) "
                f"and set the environment variable {PASSPHRASE_ENV_DEFAULT}"
            )
        return read_key_file(self.path)


class RememberingUnlocker:
    """Asks another unlocker once for each protection, one thread at a time, and keeps the last keyring key."""

    def __init__(self, inner: Unlocker) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._known: tuple[Protection, SecretBytes] | None = None

    def keyring_key(self, protection: Protection) -> SecretBytes:
        """Return the key that is kept, or ask (see ``Unlocker``)."""
        with self._lock:
            if self._known is None or self._known[0] != protection:
                self._known = (protection, self._inner.keyring_key(protection))
            return self._known[1]

    def forget(self) -> None:
        """Ask again next time, because the key was wrong."""
        with self._lock:
            self._known = None


def passphrase_from_environment(variable: str) -> Callable[[], str]:
    """Return a reader of that environment variable, for ``PassphraseUnlocker``.

    Raises:
        KmsError: ``DENIED``, when it is called and the variable is not set.
    """

    def read() -> str:
        value = os.environ.get(variable)
        if value is None:
            raise _denied(
                f"the environment variable {variable} is not set; set it to the passphrase, or name another by kms.local.passphrase-env"
            )
        return value

    return read


def read_key_file(path: Path) -> SecretBytes:
    """Return the 32 bytes that a key file holds.

    Raises:
        KmsError: ``MISSING`` when it is not there; ``DENIED`` when it may not be read, or group or others may.
        FormatError: it holds something else.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_KEY_FILE_TEXT_LENGTH + 2)
    except OSError as e:
        raise file_error(e, "key file", path, KEY_FILE_REMEDY) from e
    if stat.S_IMODE(mode) & _GROUP_AND_OTHERS:
        raise _denied(f"key file {path}: expected a mode of 0600 or less, got {stat.S_IMODE(mode):04o}; run: chmod 600 {path}")
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error as e:
        raise _not_a_key_file(path) from e
    if len(key) != KEY_LENGTH:
        raise _not_a_key_file(path)
    return SecretBytes(key)


def make_key_file(path: Path, *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
    """Write a new key file with mode 0600.

    Raises:
        PolicyError: the file exists.
        KmsError: it cannot be written.
    """
    text = base64.b64encode(random_bytes(KEY_LENGTH)) + b"\n"
    try:
        write_new(path, text)
        sync_directory(path.parent)
    except FileExistsError as e:
        raise PolicyError(f"key file {path} already exists; name another, or use this one") from e
    except OSError as e:
        raise file_error(e, "key file", path, KEY_FILE_REMEDY) from e


def _denied(message: str) -> KmsError:
    return KmsError(message, kind=KmsErrorKind.DENIED, key_id="")


def _not_a_key_file(path: Path) -> FormatError:
    return FormatError(f"key file {path}: expected one line of base64 of {KEY_LENGTH} bytes, got something else; restore a copy")
