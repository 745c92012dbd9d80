"""``KeystoreKms``: master keys in a PKCS#12 keystore, as Java's ``KeyStoreKmsClient``.

Wrapped key = ``nonce(12) | ciphertext | tag(16)``, AES-GCM under the alias's key, no AAD. Aliases are lower case: ``Lake`` and
``lake`` are one key. A keystore has no versions: a new key under the same alias does not open what the old one wrapped.

Properties: ``kms.client.keystore.path``, and ``kms.client.keystore.password-env``, the name of the environment variable with the
password (``KEYSTORE_PASSWORD``, which Java always takes). The file is read at every call. Its form is what Java's ``keytool -genseckey``
writes:

    PFX: authSafe = [ data: SafeContents = [ secretBag, friendlyName = alias in lower case ]], macData
    secretBag: id of pkcs8ShroudedKeyBag, [0] OCTET STRING = EncryptedPrivateKeyInfo: PBES2 (PBKDF2, AES-CBC)
    within: SEQUENCE { version, algorithm, OCTET STRING = the key }

``cryptography`` checks the file's MAC, and with it the password, but ignores secret bags; asn1crypto parses them.
Other entries (key pairs, certificates) are not returned. Keystores of Java 8 (PBE with 3DES) are refused.

Source: Iceberg ``KeyStoreKmsClient``, of which Java's documentation says that it is not for production; RFC 7292, RFC 8018; OpenJDK
``sun.security.pkcs12.PKCS12KeyStore``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from asn1crypto import core, pkcs12
from asn1crypto.keys import EncryptedPrivateKeyInfo
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from icelock.errors import FormatError, IntegrityError, KmsErrorKind, PolicyError
from icelock.format import aes_gcm
from icelock.kms.failure import Call, Service
from icelock.kms.private_file import check_there
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
_SHROUDED_KEY: Final = "1.2.840.113549.1.12.10.1.2"
_HASHES: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    "sha1": hashes.SHA1,
    "sha256": hashes.SHA256,
    "sha384": hashes.SHA384,
    "sha512": hashes.SHA512,
}
# Far above what keytool writes (10,000), and it still takes only seconds.
_MAX_ITERATIONS: Final = 10_000_000


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
            raise PolicyError(f"{KMS_KEYSTORE_PATH} is not set; set it to the PKCS#12 keystore (keytool -genseckey makes one)")
        self._path = Path(path).expanduser()
        check_there(self._path, "keystore", f"make one with keytool -genseckey, or correct {KMS_KEYSTORE_PATH}")
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


class _SecretKeyInfo(core.Sequence):  # type: ignore[misc]
    _fields: ClassVar = [("version", core.Integer), ("algorithm", core.Any), ("key", core.OctetString)]


def secret_keys(data: bytes, password: SecretBytes) -> dict[str, SecretBytes]:
    """Return the secret keys of a keystore by alias, in lower case.

    Raises:
        FormatError: not a PKCS#12 keystore with a MAC, or its keys are encrypted in another way.
        IntegrityError: the password is wrong, or the file was changed.
    """
    try:
        pfx = pkcs12.Pfx.load(data, strict=True)
        has_mac = pfx["mac_data"].native is not None
    except (ValueError, TypeError, KeyError) as e:
        raise _not_a_keystore() from e
    if not has_mac:
        raise FormatError("expected a keystore with a MAC, got one without; make it with a password")
    try:
        load_pkcs12(data, password.reveal())
    except ValueError as e:
        raise IntegrityError("the password is wrong, or the file was changed") from e
    try:
        bags = [bag for info in pfx.authenticated_safe if info["content_type"].native == "data" for bag in _bags(info)]
        return {_alias(bag): _secret_key(bag["bag_value"], password) for bag in bags if bag["bag_id"].native == "secret_bag"}
    except FormatError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise _not_a_keystore() from e


def _bags(info: Any) -> Any:
    return pkcs12.SafeContents.load(info["content"].native, strict=True)


def _alias(bag: Any) -> str:
    names = [attribute["values"].native[0] for attribute in bag["bag_attributes"] if attribute["type"].native == "friendly_name"]
    return str(names[0]).lower()


def _secret_key(bag: Any, password: SecretBytes) -> SecretBytes:
    if bag["secret_type_id"].native != _SHROUDED_KEY:
        raise _another_protection(bag["secret_type_id"].native)
    sealed = EncryptedPrivateKeyInfo.load(bag["secret_value"].native, strict=True)
    how = sealed["encryption_algorithm"]
    if how["algorithm"].native != "pbes2":
        raise _another_protection(how["algorithm"].native)
    if how.kdf != "pbkdf2" or how.kdf_hmac not in _HASHES or how.encryption_cipher != "aes" or how.encryption_mode != "cbc":
        raise _another_protection(f"{how.kdf} and {how.encryption_cipher}")
    if not 1 <= how.kdf_iterations <= _MAX_ITERATIONS:
        raise _another_protection(f"{how.kdf_iterations} iterations")
    derived = PBKDF2HMAC(_HASHES[how.kdf_hmac](), how.key_length, how.kdf_salt, how.kdf_iterations).derive(password.reveal())
    decryptor = Cipher(algorithms.AES(derived), modes.CBC(how.encryption_iv)).decryptor()
    padded = decryptor.update(sealed["encrypted_data"].native) + decryptor.finalize()
    unpadder = PKCS7(algorithms.AES.block_size).unpadder()
    plain = unpadder.update(padded) + unpadder.finalize()
    return SecretBytes(_SecretKeyInfo.load(plain, strict=True)["key"].native)


def _not_a_keystore() -> FormatError:
    return FormatError("expected a PKCS#12 keystore of keytool, got something else; make one with keytool -genseckey -storetype PKCS12")


def _another_protection(found: str) -> FormatError:
    return FormatError(
        f"expected secret keys protected by PBES2 with AES, got {found}; copy the keystore with keytool -importkeystore of JDK 17 or later"
    )
