"""``LocalKms``: the embedded default KMS, a keyring file with AES-256-GCM master keys.

Wrapped key = ``nonce(12) | ciphertext | tag(16)`` under the newest version of the master key, no AAD. The blob does not
name the version: to unwrap, each one is tried, newest first, until the tag matches (a wrong one with a chance of 2**-128).

The keyring file (``kms/keyring_format.py``) is read at every call, so a key added, rotated or disabled by another process
takes effect at once; the derived keyring key is kept, so that Argon2id runs once for each client and protection.

Properties: ``kms.local.path`` (the keyring file, required), and one of ``kms.local.key-file`` (a 0600 key file) and
``kms.local.passphrase-env`` (name of the environment variable with the passphrase; ``ICELOCK_KEYRING_PASSPHRASE`` if
neither is set). Making a client looks whether the files are there, and reads none.

Not here: changing the keyring (``icelock keyring``, ``kms/keyring_file.py``).

The format is icelock's own; Java has no such client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from icelock.errors import FormatError, IntegrityError, KmsError, KmsErrorKind, PolicyError
from icelock.format import aes_gcm
from icelock.kms import unlock
from icelock.kms.keyring import MasterKey, require_enabled
from icelock.kms.keyring_file import KEYRING_REMEDY, load_keyring
from icelock.kms.private_file import check_there
from icelock.properties import KMS_LOCAL_KEY_FILE, KMS_LOCAL_PASSPHRASE_ENV, KMS_LOCAL_PATH


class LocalKms:
    """A KMS whose master keys are in a keyring file.

    Args:
        properties: the catalog's properties.
        random_bytes: source of nonces.

    Raises:
        PolicyError: no path, or both a key file and a passphrase variable.
        KmsError: the keyring or the key file is not there.
    """

    def __init__(self, properties: Mapping[str, str], *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        path = properties.get(KMS_LOCAL_PATH)
        if not path:
            raise PolicyError(f"{KMS_LOCAL_PATH} is not set; set it to the keyring file (`icelock keyring init` makes one)")
        self._path = Path(path).expanduser()
        self._unlocker = unlock.RememberingUnlocker(_unlocker(properties))
        check_there(self._path, "keyring", KEYRING_REMEDY)
        self._random_bytes = random_bytes

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the newest version of the master key (see ``KmsClient.wrap_key``)."""
        master = self._master(wrapping_key_id)
        return aes_gcm.encrypt(master.newest.key.reveal(), self._random_bytes(aes_gcm.NONCE_LENGTH), key)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Decrypt what ``wrap_key`` returned under any version of the master key (see ``KmsClient.unwrap_key``)."""
        return self._unwrapped(wrapped_key, wrapping_key_id)[0]

    def wrapped_version(self, wrapped_key: bytes, wrapping_key_id: str) -> str:
        """Return the number of the version of the master key that opens a wrapped key.

        Raises:
            KmsError: see ``unwrap_key``.
        """
        return str(self._unwrapped(wrapped_key, wrapping_key_id)[1])

    def _unwrapped(self, wrapped_key: bytes, wrapping_key_id: str) -> tuple[bytes, int]:
        master = self._master(wrapping_key_id)
        cause: FormatError | IntegrityError | None = None
        for version in reversed(master.versions):
            try:
                return aes_gcm.decrypt(version.key.reveal(), wrapped_key), version.version
            except (FormatError, IntegrityError) as e:
                cause = e
        raise KmsError(
            f"keyring {self._path}: no version (1 to {master.newest.version}) of master key {wrapping_key_id!r} opens this wrapped key "
            f"({len(wrapped_key)} bytes); it was changed, or another keyring or key wrapped it: give that one",
            kind=KmsErrorKind.FOREIGN,
            key_id=wrapping_key_id,
        ) from cause

    def _master(self, key_id: str) -> MasterKey:
        try:
            master = load_keyring(self._path, self._unlocker).get(key_id)
            require_enabled(master)
        except KmsError as e:
            if e.kind is KmsErrorKind.DENIED:
                self._unlocker.forget()
            raise KmsError(str(e) if str(self._path) in str(e) else f"keyring {self._path}: {e}", kind=e.kind, key_id=key_id) from e
        return master

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"


def _unlocker(properties: Mapping[str, str]) -> unlock.Unlocker:
    key_file = properties.get(KMS_LOCAL_KEY_FILE)
    variable = properties.get(KMS_LOCAL_PASSPHRASE_ENV)
    if key_file and variable:
        raise PolicyError(
            f"{KMS_LOCAL_KEY_FILE} and {KMS_LOCAL_PASSPHRASE_ENV} are set; they exclude each other: keep the one that the keyring needs"
        )
    if key_file:
        path = Path(key_file).expanduser()
        check_there(path, "key file", unlock.KEY_FILE_REMEDY)
        return unlock.KeyFileUnlocker(path=path)
    return unlock.PassphraseUnlocker(read=unlock.passphrase_from_environment(variable or unlock.PASSPHRASE_ENV_DEFAULT))
