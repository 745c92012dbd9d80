"""``KeystoreKms``: master keys in a PKCS#12 keystore, as Java's ``KeyStoreKmsClient``.

Wrapped key = ``nonce(12) | ciphertext | tag(16)``, AES-GCM under the alias's key, no AAD. Aliases are lower case: ``Lake`` and
``lake`` are one key. A keystore has no versions: a new key under the same alias does not open what the old one wrapped.

Properties: ``kms.client.keystore.path``, and ``kms.client.keystore.password-env``, the name of the environment variable with the
password (``KEYSTORE_PASSWORD``, which Java always takes). The file is read at every call.

Not here: the file's format (``kms/pkcs12.py``).

Source: Iceberg ``KeyStoreKmsClient``, of which Java's documentation says that it is not for production.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from icelock.errors import FormatError, IntegrityError, KmsErrorKind, PolicyError
from icelock.format import aes_gcm
from icelock.kms.failure import Call, Service
from icelock.kms.pkcs12 import secret_keys
from icelock.properties import KMS_KEYSTORE_PASSWORD_ENV, KMS_KEYSTORE_PATH
from icelock.secret import SecretBytes

PASSWORD_ENV_DEFAULT: Final = "KEYSTORE_PASSWORD"  # noqa: S105 - the name of a variable
_SERVICE: Final = Service(
    name="Keystore",
    remedies={
        KmsErrorKind.MISSING: "add it with keytool -genseckey, or correct encryption.key-id",
        KmsErrorKind.DISABLED: "make it with keytool -genseckey -keyalg AES",
        KmsErrorKind.DENIED: f"set {PASSWORD_ENV_DEFAULT} to the keystore's password, and let this user read the file",
        KmsErrorKind.UNAVAILABLE: f"put the keystore there, or correct {KMS_KEYSTORE_PATH}",
    },
)


class KeystoreKms:
    """A KMS whose master keys are the secret keys of a keystore file.

    Args:
        properties: the catalog's properties.
        random_bytes: source of nonces.

    Raises:
        PolicyError: no path.
    """

    def __init__(self, properties: Mapping[str, str], *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        path = properties.get(KMS_KEYSTORE_PATH)
        if not path:
            msg = f"{KMS_KEYSTORE_PATH} is not set; set it to the PKCS#12 keystore (keytool -genseckey makes one)"
            raise PolicyError(msg)
        self._path = Path(path).expanduser()
        self._variable = properties.get(KMS_KEYSTORE_PASSWORD_ENV) or PASSWORD_ENV_DEFAULT
        self._random_bytes = random_bytes

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the alias's key (see ``KmsClient.wrap_key``)."""
        master = self._master("wrap", wrapping_key_id)
        return aes_gcm.encrypt(master.reveal(), self._random_bytes(aes_gcm.NONCE_LENGTH), key)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Decrypt what ``wrap_key`` returned (see ``KmsClient.unwrap_key``)."""
        master = self._master("unwrap", wrapping_key_id)
        try:
            return aes_gcm.decrypt(master.reveal(), wrapped_key)
        except (FormatError, IntegrityError) as e:
            code = f"{len(wrapped_key)} bytes, keystore {self._path}"
            raise _SERVICE.failure(KmsErrorKind.FOREIGN, call="unwrap", key_id=wrapping_key_id, code=code) from e

    def _master(self, call: Call, key_id: str) -> SecretBytes:
        password = os.environ.get(self._variable)
        if password is None:
            code = f"the environment variable {self._variable} is not set"
            raise _SERVICE.failure(KmsErrorKind.DENIED, call=call, key_id=key_id, code=code)
        try:
            keys = secret_keys(self._path.read_bytes(), SecretBytes(password.encode(errors="surrogateescape")))
        except OSError as e:
            kind = KmsErrorKind.DENIED if isinstance(e, PermissionError) else KmsErrorKind.UNAVAILABLE
            raise _SERVICE.failure(kind, call=call, key_id=key_id, code=f"keystore {self._path}: {e.strerror}") from e
        except IntegrityError as e:
            raise _SERVICE.failure(KmsErrorKind.DENIED, call=call, key_id=key_id, code=f"keystore {self._path}: {e}") from e
        except FormatError as e:
            raise FormatError(f"keystore {self._path}, master key {key_id!r}: {e}") from e
        master = keys.get(key_id.lower())
        if master is None:
            code = f"no secret key of this alias in {self._path}, it has {', '.join(map(repr, sorted(keys))) or 'none'}"
            raise _SERVICE.failure(KmsErrorKind.MISSING, call=call, key_id=key_id, code=code)
        if len(master) not in aes_gcm.KEY_LENGTHS:
            code = f"a key of {len(master)} bytes, AES has 16, 24 or 32"
            raise _SERVICE.failure(KmsErrorKind.DISABLED, call=call, key_id=key_id, code=code)
        return master

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"
