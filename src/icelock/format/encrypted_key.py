"""One entry of ``encryption-keys`` in table metadata: a KEK or a manifest-list key, always encrypted.

JSON, in Java's order::

    {"key-id", "encrypted-key-metadata" (base64), "encrypted-by-id", "properties"? (text to text)}

A KEK names the table's master key in ``encrypted-by-id`` and has ``properties.KEY_TIMESTAMP`` (decimal ms); a
manifest-list key names a KEK and has no properties. Key ids are opaque text.

Source: Iceberg table spec, "Encryption keys"; Java ``EncryptedKeyParser``. Not here: which entry is which, and how it is
opened (``keys``).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from icelock.errors import FormatError

KEY_TIMESTAMP: Final = "KEY_TIMESTAMP"
_KEY_ID: Final = "key-id"
_KEY_METADATA: Final = "encrypted-key-metadata"
_BY_ID: Final = "encrypted-by-id"
_PROPERTIES: Final = "properties"


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class EncryptedKey:
    """An encrypted key, the id of the key that encrypts it, and its properties.

    Raises:
        FormatError: An empty id or empty key metadata.
    """

    key_id: str
    encrypted_key_metadata: bytes = field(repr=False)
    encrypted_by_id: str
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.key_id:
            raise FormatError("encryption key entry with an empty key-id")
        if not self.encrypted_by_id:
            raise FormatError(f"encryption key {self.key_id!r} has an empty encrypted-by-id")
        if not self.encrypted_key_metadata:
            raise FormatError(f"encryption key {self.key_id!r} has empty encrypted-key-metadata")
        object.__setattr__(self, "properties", dict(self.properties))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, fields in Java's order, ``properties`` only if there are any."""
        entry: dict[str, Any] = {
            _KEY_ID: self.key_id,
            _KEY_METADATA: base64.b64encode(self.encrypted_key_metadata).decode("ascii"),
            _BY_ID: self.encrypted_by_id,
        }
        if self.properties:
            entry[_PROPERTIES] = dict(self.properties)
        return entry

    @classmethod
    def from_json(cls, entry: object) -> EncryptedKey:
        """Return the value of one JSON entry; fields that the spec does not know are ignored.

        Raises:
            FormatError: Not an object, a field is missing or has another type, or the base64 is broken.
        """
        if not isinstance(entry, dict):
            raise FormatError(f"an entry of encryption-keys is a JSON object, not {type(entry).__name__}")
        key_id = _text(entry, _KEY_ID, "?")
        return cls(
            key_id=key_id,
            encrypted_key_metadata=_base64(_text(entry, _KEY_METADATA, key_id), key_id),
            encrypted_by_id=_text(entry, _BY_ID, key_id),
            properties=_properties(entry.get(_PROPERTIES), key_id),
        )


def _text(entry: Mapping[str, object], name: str, key_id: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        found = type(value).__name__ if name in entry else "nothing"
        raise FormatError(f"encryption key {key_id!r}: {name} is text, found {found}")
    return value


def _base64(text: str, key_id: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as e:
        raise FormatError(f"encryption key {key_id!r}: {_KEY_METADATA} is not base64: {e}") from e
    if base64.b64encode(data).decode("ascii") != text:
        raise FormatError(f"encryption key {key_id!r}: {_KEY_METADATA} is not base64 in its one canonical form (padding, last bits)")
    return data


def _properties(value: object, key_id: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise FormatError(f"encryption key {key_id!r}: {_PROPERTIES} maps text to text")
    return dict(value)
