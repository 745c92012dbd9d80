"""``Pkcs11Kms``: a hardware security module, or any other token with a PKCS#11 library.

Wrapped key = ``nonce(12) | ciphertext | tag(16)``, AES-GCM in the token under a secret key that never leaves it, no AAD. The format is
icelock's own; Java has no such client.

The master key's id is a label (CKA_LABEL). Keys of one label are its versions: the one with the greatest CKA_ID, as a number, wraps; to
unwrap, each is tried, greatest first, until the tag matches.

Properties: ``kms.pkcs11.library``, ``kms.pkcs11.token-label``, and one of ``kms.pkcs11.pin-file`` and ``kms.pkcs11.pin-env`` (the name of
an environment variable, ``ICELOCK_PKCS11_PIN`` if neither is set).

One session per client, one call at a time; a session that the token has ended is reopened once within the call. A token has one login
per process: if another client holds it, that is shared, and the PIN is not checked.

A reader needs a key with CKA_DECRYPT, a writer with CKA_ENCRYPT too. A key without the attribute counts as disabled.

Source: PKCS#11 3.1, "AES-GCM". Not here: making keys (the HSM's own tools).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pkcs11
from pkcs11 import Attribute, GCMParams, Mechanism, ObjectClass, exceptions

from icelock.errors import FormatError, KmsErrorKind, PolicyError
from icelock.format.aes_gcm import NONCE_LENGTH, OVERHEAD, TAG_LENGTH
from icelock.kms.failure import Call, Service
from icelock.kms.private_file import read_secret_line
from icelock.properties import KMS_PKCS11_LIBRARY, KMS_PKCS11_PIN_ENV, KMS_PKCS11_PIN_FILE, KMS_PKCS11_TOKEN_LABEL

PIN_ENV_DEFAULT: Final = "ICELOCK_PKCS11_PIN"
_SERVICE: Final = Service(
    name="PKCS#11 token",
    remedies={
        KmsErrorKind.MISSING: "make a secret key with this label, or correct encryption.key-id",
        KmsErrorKind.DISABLED: "set the key's CKA_ENCRYPT or CKA_DECRYPT, or use a key of type AES",
        KmsErrorKind.DENIED: f"set {PIN_ENV_DEFAULT} or {KMS_PKCS11_PIN_FILE} to the user's PIN",
        KmsErrorKind.UNAVAILABLE: f"connect the token, or correct {KMS_PKCS11_LIBRARY} or {KMS_PKCS11_TOKEN_LABEL}",
    },
)
_METHODS: Final[Mapping[Call, str]] = {"wrap": "encrypt", "unwrap": "decrypt"}
_DENIED: Final = (
    exceptions.PinIncorrect,
    exceptions.PinInvalid,
    exceptions.PinLenRange,
    exceptions.PinExpired,
    exceptions.PinLocked,
    exceptions.UserPinNotInitialized,
    exceptions.FunctionRejected,
)
_DISABLED: Final = (
    exceptions.KeyTypeInconsistent,
    exceptions.KeySizeRange,
    exceptions.MechanismInvalid,
    exceptions.FunctionNotSupported,
)
# What tokens raise for a ciphertext that is not theirs. SoftHSM raises GeneralError, which may mean anything.
_FOREIGN: Final = (
    exceptions.GeneralError,
    exceptions.EncryptedDataInvalid,
    exceptions.EncryptedDataLenRange,
    exceptions.DataInvalid,
    exceptions.DataLenRange,
    exceptions.FunctionFailed,
    exceptions.ArgumentsBad,
)
_ENDED: Final = (
    exceptions.SessionHandleInvalid,
    exceptions.SessionClosed,
    exceptions.UserNotLoggedIn,
    exceptions.ObjectHandleInvalid,
    exceptions.KeyHandleInvalid,
    exceptions.DeviceRemoved,
    exceptions.TokenNotPresent,
)


class Pkcs11Kms:
    """A KMS whose master keys are in a PKCS#11 token.

    Args:
        properties: the catalog's properties.
        client: a ready session, logged in, used unchanged; it must not be used elsewhere at the same time.
        random_bytes: source of nonces.

    Raises:
        PolicyError: no library or token, or both a PIN file and a PIN variable.
    """

    def __init__(
        self, properties: Mapping[str, str], *, client: pkcs11.Session | None = None, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._library = properties.get(KMS_PKCS11_LIBRARY, "")
        self._token = properties.get(KMS_PKCS11_TOKEN_LABEL, "")
        if client is None and not (self._library and self._token):
            raise PolicyError(
                f"{KMS_PKCS11_LIBRARY} and {KMS_PKCS11_TOKEN_LABEL} are needed; set them to the token's library (.so) and label"
            )
        self._pin_file = properties.get(KMS_PKCS11_PIN_FILE)
        self._pin_variable = properties.get(KMS_PKCS11_PIN_ENV)
        if self._pin_file and self._pin_variable:
            raise PolicyError(f"{KMS_PKCS11_PIN_FILE} and {KMS_PKCS11_PIN_ENV} are set; they exclude each other: keep one")
        self._random_bytes = random_bytes
        self._given = client
        self._session = client
        self._lock = threading.Lock()

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` in the token with the newest version of the master key (see ``KmsClient.wrap_key``)."""
        return self._call("wrap", wrapping_key_id, lambda versions: self._encrypted(versions[0], key))

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Decrypt in the token what ``wrap_key`` returned under any version (see ``KmsClient.unwrap_key``)."""
        return self._call("unwrap", wrapping_key_id, lambda versions: self._opened(versions, wrapped_key, wrapping_key_id))

    def _call(self, call: Call, key_id: str, use: Callable[[list[Any]], bytes]) -> bytes:
        with self._lock:
            try:
                try:
                    return use(self._versions(call, key_id))
                except _ENDED:
                    self._session = None
                    return use(self._versions(call, key_id))
            except exceptions.PKCS11Error as e:
                self._session = self._given
                raise _SERVICE.failure(_kind(e), call=call, key_id=key_id, code=type(e).__name__) from e

    def _versions(self, call: Call, key_id: str) -> list[Any]:
        """Return the keys with this label that allow the call, newest first."""
        is_new = self._session is None
        if self._session is None:
            self._session = self._given if self._given is not None else self._open(call, key_id)
        found = list(self._session.get_objects({Attribute.LABEL: key_id, Attribute.CLASS: ObjectClass.SECRET_KEY}))
        if not found and not is_new:
            # After a logout a token hides private keys.
            raise exceptions.UserNotLoggedIn
        if not found:
            raise _SERVICE.failure(KmsErrorKind.MISSING, call=call, key_id=key_id, code=f"no secret key of this label on {self._token!r}")
        usable = [key for key in found if hasattr(key, _METHODS[call])]
        if not usable:
            code = f"no secret key of this label may {_METHODS[call]}"
            raise _SERVICE.failure(KmsErrorKind.DISABLED, call=call, key_id=key_id, code=code)
        return sorted(usable, key=lambda key: int.from_bytes(key[Attribute.ID] or b""), reverse=True)

    def _open(self, call: Call, key_id: str) -> pkcs11.Session:
        pin = self._pin(call, key_id)
        token = pkcs11.lib(self._library).get_token(token_label=self._token)
        try:
            return token.open(user_pin=pin)
        except exceptions.UserAlreadyLoggedIn:
            return token.open()

    def _pin(self, call: Call, key_id: str) -> str:
        if self._pin_file is None:
            variable = self._pin_variable or PIN_ENV_DEFAULT
            pin = os.environ.get(variable)
            if pin is None:
                code = f"the environment variable {variable} is not set"
                raise _SERVICE.failure(KmsErrorKind.DENIED, call=call, key_id=key_id, code=code)
            return pin
        path = Path(self._pin_file).expanduser()
        try:
            return read_secret_line(path)
        except (OSError, FormatError) as e:
            code = f"PIN file {path}: {e.strerror if isinstance(e, OSError) else 'not one line of text'}"
            raise _SERVICE.failure(KmsErrorKind.DENIED, call=call, key_id=key_id, code=code) from e

    def _encrypted(self, key: Any, plaintext: bytes) -> bytes:
        nonce = self._random_bytes(NONCE_LENGTH)
        return nonce + bytes(key.encrypt(plaintext, mechanism=Mechanism.AES_GCM, mechanism_param=_gcm(nonce)))

    def _opened(self, versions: list[Any], blob: bytes, key_id: str) -> bytes:
        cause: Exception | None = None
        if len(blob) > OVERHEAD:
            for key in versions:
                try:
                    return bytes(key.decrypt(blob[NONCE_LENGTH:], mechanism=Mechanism.AES_GCM, mechanism_param=_gcm(blob[:NONCE_LENGTH])))
                except _FOREIGN as e:
                    cause = e
            if isinstance(cause, exceptions.GeneralError) and not self._works(versions[0]):
                raise cause
        code = f"{len(blob)} bytes, {len(versions)} keys of this label"
        raise _SERVICE.failure(KmsErrorKind.FOREIGN, call="unwrap", key_id=key_id, code=code) from cause

    def _works(self, key: Any) -> bool:
        """Whether the token opens what it has just encrypted; True where it may not encrypt."""
        if not hasattr(key, "encrypt"):
            return True
        probe = self._encrypted(key, bytes(TAG_LENGTH))
        try:
            key.decrypt(probe[NONCE_LENGTH:], mechanism=Mechanism.AES_GCM, mechanism_param=_gcm(probe[:NONCE_LENGTH]))
        except exceptions.PKCS11Error:
            return False
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._library!r}, token {self._token!r})"


def _gcm(nonce: bytes) -> GCMParams:
    return GCMParams(nonce=nonce, aad=b"", tag_bits=8 * TAG_LENGTH)


def _kind(error: exceptions.PKCS11Error) -> KmsErrorKind:
    if isinstance(error, _DENIED):
        return KmsErrorKind.DENIED
    return KmsErrorKind.DISABLED if isinstance(error, _DISABLED) else KmsErrorKind.UNAVAILABLE
