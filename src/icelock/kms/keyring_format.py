"""The keyring file's format, version 1: master keys with versions, all of it authenticated.

The file is UTF-8 JSON, indented by two spaces, keys in this order, a newline at its end::

    {
      "format": "icelock-keyring",
      "version": 1,
      "protection": {"type": "passphrase", "kdf": "argon2id", "salt": base64 of 16 bytes,
                     "iterations": 3, "lanes": 4, "memory-kib": 65536}     or   {"type": "key-file"},
      "check": base64,
      "keys": [{"key-id": "...", "state": "enabled" | "disabled", "versions": [{"version": 1, "created-ms": 1700000000000}]}],
      "sealed": base64
    }

- The keyring key (32 bytes) is Argon2id of the passphrase (NFC, UTF-8), or what the key file holds.
- ``check`` = AES-GCM of the empty text under the keyring key, AAD = the first three members. It tells a wrong passphrase
  from a damaged file.
- ``sealed`` = AES-GCM of all master keys under the keyring key, 32 bytes each, in the order of ``keys`` and ``versions``,
  AAD = every other member. AAD = UTF-8 of the compact JSON of those members. So ids, versions, states and order are
  authenticated along with the keys.
- A file that is not byte for byte what its content encodes to is refused, so any changed byte is noticed.

Not noticed: an older copy of the whole file that was put back.

Not here: the rules of a keyring (``kms/keyring.py``), reading and replacing the file (``kms/keyring_file.py``). Pure: no I/O,
no clock, no randomness.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from icelock.errors import FormatError, IntegrityError, KmsError, KmsErrorKind
from icelock.format import aes_gcm
from icelock.kms import keyring as ring
from icelock.secret import SecretBytes

FORMAT: Final = "icelock-keyring"
VERSION: Final = 1

Unlock = Callable[[ring.Protection], SecretBytes]

T = TypeVar("T")


def encode_keyring(keyring: ring.Keyring, keyring_key: SecretBytes, *, check_nonce: bytes, nonce: bytes) -> bytes:
    """Return the file's bytes.

    Args:
        keyring: the content.
        keyring_key: 32 bytes, the one that ``keyring.protection`` derives.
        check_nonce: 12 fresh random bytes.
        nonce: 12 other fresh random bytes.
    """
    head = _head(keyring.protection)
    document = head | {
        "check": _b64(aes_gcm.encrypt(keyring_key.reveal(), check_nonce, b"", _aad(head))),
        "keys": [_key_json(key) for key in keyring.keys],
    }
    secrets = b"".join(version.key.reveal() for key in keyring.keys for version in key.versions)
    return _render(document | {"sealed": _b64(aes_gcm.encrypt(keyring_key.reveal(), nonce, secrets, _aad(document)))})


def decode_keyring(data: bytes, unlock: Unlock) -> tuple[ring.Keyring, SecretBytes]:
    """Return the keyring and the key that opened it.

    Args:
        data: the file's bytes.
        unlock: makes the keyring key for the protection that the file names. What it raises passes through.

    Raises:
        FormatError: not a keyring file of this version.
        KmsError: ``DENIED``, the keyring key is wrong.
        IntegrityError: the keyring key is right and the file was changed.
    """
    document = _parse(data)
    protection = _protection(document["protection"])
    head = _head(protection)
    check, sealed = _bytes(document, "check"), _bytes(document, "sealed")
    listed = [_listed_key(item) for item in _typed(document, "keys", list)]
    _require_canonical(data, document)
    keyring_key = unlock(protection)
    try:
        aes_gcm.decrypt(keyring_key.reveal(), check, _aad(head))
    except IntegrityError as e:
        raise KmsError(
            "the passphrase or key file is not this keyring's, or the file's protection was changed; give the right one or restore a copy",
            kind=KmsErrorKind.DENIED,
            key_id="",
        ) from e
    del document["sealed"]
    try:
        secrets = aes_gcm.decrypt(keyring_key.reveal(), sealed, _aad(document))
    except IntegrityError as e:
        raise IntegrityError("the keyring was changed after it was written; restore a copy") from e
    return ring.Keyring(protection=protection, keys=_with_secrets(listed, secrets)), keyring_key


_ListedKey = tuple[str, ring.KeyState, list[tuple[int, int]]]


def _with_secrets(listed: list[_ListedKey], secrets: bytes) -> tuple[ring.MasterKey, ...]:
    expected = ring.KEY_LENGTH * sum(len(versions) for _, _, versions in listed)
    if len(secrets) != expected:
        raise FormatError(f"keyring: expected {expected} sealed bytes, got {len(secrets)}")
    pieces = iter([SecretBytes(secrets[i : i + ring.KEY_LENGTH]) for i in range(0, expected, ring.KEY_LENGTH)])
    return tuple(
        ring.MasterKey(
            key_id=key_id,
            state=state,
            versions=tuple(ring.MasterKeyVersion(version=n, created_ms=created, key=next(pieces)) for n, created in versions),
        )
        for key_id, state, versions in listed
    )


def _head(protection: ring.Protection) -> dict[str, Any]:
    if isinstance(protection, ring.PassphraseProtection):
        value = {
            "type": "passphrase",
            "kdf": "argon2id",
            "salt": _b64(protection.salt),
            "iterations": protection.iterations,
            "lanes": protection.lanes,
            "memory-kib": protection.memory_kib,
        }
    else:
        value = {"type": "key-file"}
    return {"format": FORMAT, "version": VERSION, "protection": value}


def _key_json(key: ring.MasterKey) -> dict[str, Any]:
    versions = [{"version": v.version, "created-ms": v.created_ms} for v in key.versions]
    return {"key-id": key.key_id, "state": key.state.value, "versions": versions}


def _parse(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise FormatError(
            "expected a keyring in JSON, got other bytes; restore a copy, or make a keyring with `icelock keyring init`"
        ) from e
    members = ("format", "version", "protection", "check", "keys", "sealed")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError(
            f"expected a file of the format {FORMAT!r}, got another; restore a copy, or make a keyring with `icelock keyring init`"
        )
    if document.get("version") is True or document.get("version") != VERSION:
        raise FormatError(f"expected keyring version {VERSION}, got {document.get('version')!r}; a newer icelock may read it")
    if tuple(document) != members:
        raise FormatError(f"keyring: expected the members {members}, got {tuple(document)}; restore a copy")
    return document


def _protection(value: Any) -> ring.Protection:
    if value == {"type": "key-file"}:
        return ring.KeyFileProtection()
    members = ("type", "kdf", "salt", "iterations", "lanes", "memory-kib")
    if not isinstance(value, dict) or tuple(value) != members or value["type"] != "passphrase" or value["kdf"] != "argon2id":
        raise FormatError(
            "keyring: expected the protection 'passphrase' with Argon2id or 'key-file', got another; a newer icelock may read it"
        )
    return ring.PassphraseProtection(
        salt=_bytes(value, "salt"),
        iterations=_typed(value, "iterations", int),
        lanes=_typed(value, "lanes", int),
        memory_kib=_typed(value, "memory-kib", int),
    )


def _listed_key(item: Any) -> _ListedKey:
    if not isinstance(item, dict) or tuple(item) != ("key-id", "state", "versions"):
        raise FormatError("keyring: expected keys of key-id, state and versions, got another; restore a copy")
    versions = _typed(item, "versions", list)
    if not all(isinstance(v, dict) and tuple(v) == ("version", "created-ms") for v in versions):
        raise FormatError("keyring: expected versions of version and created-ms, got another; restore a copy")
    try:
        state = ring.KeyState(_typed(item, "state", str))
    except ValueError as e:
        raise FormatError(f"keyring: expected the state 'enabled' or 'disabled', got {item['state']!r}; restore a copy") from e
    return _typed(item, "key-id", str), state, [(_typed(v, "version", int), _typed(v, "created-ms", int)) for v in versions]


def _typed(value: dict[str, Any], name: str, kind: type[T]) -> T:
    found = value[name]
    if not isinstance(found, kind) or isinstance(found, bool):
        raise FormatError(f"keyring: expected {name!r} of type {kind.__name__}, got {type(found).__name__}; restore a copy")
    return found


def _bytes(value: dict[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(_typed(value, name, str), validate=True)
    except (binascii.Error, ValueError) as e:
        raise FormatError(f"keyring: expected {name!r} in base64; restore a copy") from e


def _require_canonical(data: bytes, document: dict[str, Any]) -> None:
    # Base64, too, has several spellings of the same bytes. Lone surrogates are valid JSON, but not UTF-8.
    spelt = all(_b64(_bytes(document, name)) == document[name] for name in ("check", "sealed"))
    try:
        same = _render(document) == data
    except UnicodeEncodeError:
        same = False
    if not spelt or not same:
        raise FormatError("keyring: expected the bytes that icelock writes, got another spelling of the same JSON; restore a copy")


def _render(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _aad(members: dict[str, Any]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
