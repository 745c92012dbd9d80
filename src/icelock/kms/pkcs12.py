"""Secret keys of a PKCS#12 keystore, as Java's ``keytool -genseckey`` writes them.

    PFX: authSafe = [ data: SafeContents = [ secretBag, friendlyName = alias in lower case ]], macData
    secretBag: id of pkcs8ShroudedKeyBag, [0] OCTET STRING = EncryptedPrivateKeyInfo: PBES2 (PBKDF2, AES-CBC)
    within: SEQUENCE { version, algorithm, OCTET STRING = the key }

``cryptography`` checks the file's MAC, and with it the password, but ignores secret bags; asn1crypto parses them.
Other entries (key pairs, certificates) are not returned. Keystores of Java 8 (PBE with 3DES) are refused.

Source: RFC 7292, RFC 8018; OpenJDK ``sun.security.pkcs12.PKCS12KeyStore``. Not here: files and wrapping (``kms/keystore.py``).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from asn1crypto import core, keys, pkcs12
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from icelock.errors import FormatError, IntegrityError
from icelock.secret import SecretBytes

_SHROUDED_KEY: Final = "1.2.840.113549.1.12.10.1.2"
_HASHES: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    "sha1": hashes.SHA1,
    "sha256": hashes.SHA256,
    "sha384": hashes.SHA384,
    "sha512": hashes.SHA512,
}
# Far above what keytool writes (10,000), and it still takes only seconds.
_MAX_ITERATIONS: Final = 10_000_000


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
    sealed = keys.EncryptedPrivateKeyInfo.load(bag["secret_value"].native, strict=True)
    how = sealed["encryption_algorithm"]
    if how["algorithm"].native != "pbes2":
        raise _another_protection(how["algorithm"].native)
    if how.kdf != "pbkdf2" or how.kdf_hmac not in _HASHES or how.encryption_cipher != "aes" or how.encryption_mode != "cbc":
        found = f"{how.kdf} and {how.encryption_cipher}"
        raise _another_protection(found)
    if not 1 <= how.kdf_iterations <= _MAX_ITERATIONS:
        found = f"{how.kdf_iterations} iterations"
        raise _another_protection(found)
    derived = PBKDF2HMAC(_HASHES[how.kdf_hmac](), how.key_length, how.kdf_salt, how.kdf_iterations).derive(password.reveal())
    decryptor = Cipher(algorithms.AES(derived), modes.CBC(how.encryption_iv)).decryptor()
    padded = decryptor.update(sealed["encrypted_data"].native) + decryptor.finalize()
    unpadder = PKCS7(algorithms.AES.block_size).unpadder()
    plain = unpadder.update(padded) + unpadder.finalize()
    return SecretBytes(_SecretKeyInfo.load(plain, strict=True)["key"].native)


def _not_a_keystore() -> FormatError:
    return FormatError("expected a PKCS#12 keystore of keytool, got something else; make one with keytool -genseckey -storetype PKCS12")


def _another_protection(found: str) -> FormatError:
    msg = (
        f"expected secret keys protected by PBES2 with AES, got {found}; copy the keystore with keytool -importkeystore of JDK 17 or later"
    )
    return FormatError(msg)
