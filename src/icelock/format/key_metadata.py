"""Key metadata: what opens one file, in the bytes that its parent stores.

Wire layout (Java ``StandardKeyMetadata``)::

    0x01 | Avro binary of record {
        encryption_key: bytes,              the DEK, 16, 24 or 32 bytes
        aad_prefix: union(null, bytes),
        file_length: union(null, long),     bytes on storage (encrypted length), not plain bytes
    }

Two types stand for two moments: a `FileKey` is what a writer needs before the file exists; `FileKey.closed` turns it
into `KeyMetadata` when the length is known. So a writer cannot store key metadata that lacks the length by oversight.

Kept in manifest_file field 519 and data_file field 131, and sealed under a KEK for manifest lists. Not here: sealing
(``keys.manager``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from icelock.errors import FormatError
from icelock.format.aes_gcm import check_key_length
from icelock.secret import SecretBytes

VERSION: Final = 1
AAD_PREFIX_LENGTH: Final = 16
_NULL, _VALUE = 0, 1
_MAX_VARINT_BYTES: Final = 10
_MAX_LONG: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKey:
    """The fresh key of one file that is about to be written: a DEK and 16 random bytes of AAD prefix.

    Raises:
        FormatError: The DEK does not have 16, 24 or 32 bytes, or the prefix does not have 16.
    """

    dek: SecretBytes
    aad_prefix: bytes

    def __post_init__(self) -> None:
        check_key_length(len(self.dek))
        if len(self.aad_prefix) != AAD_PREFIX_LENGTH:
            raise FormatError(f"the AAD prefix of a new file has {AAD_PREFIX_LENGTH} bytes, this one has {len(self.aad_prefix)}")

    def closed(self, encrypted_length: int) -> KeyMetadata:
        """Return the key metadata of the finished file, which takes ``encrypted_length`` bytes on storage.

        Raises:
            FormatError: A negative length.
        """
        return KeyMetadata(dek=self.dek, aad_prefix=self.aad_prefix, encrypted_length=encrypted_length)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMetadata:
    """The DEK, AAD prefix and encrypted length of one stored file.

    ``None`` means that the writer left the field null; icelock's own files always have both.

    Raises:
        FormatError: The DEK does not have 16, 24 or 32 bytes, or the length is negative or beyond int64.
    """

    dek: SecretBytes
    aad_prefix: bytes | None
    encrypted_length: int | None

    def __post_init__(self) -> None:
        check_key_length(len(self.dek))
        if self.encrypted_length is not None and not 0 <= self.encrypted_length <= _MAX_LONG:
            raise FormatError(f"the file length in key metadata is a non-negative int64, not {self.encrypted_length}")

    def encode(self) -> bytes:
        """Return the bytes that the parent stores; they hold the raw DEK, so the parent has to be encrypted itself."""
        parts = [bytes([VERSION]), encode_bytes(self.dek.reveal())]
        parts.append(encode_long(_NULL) if self.aad_prefix is None else encode_long(_VALUE) + encode_bytes(self.aad_prefix))
        parts.append(encode_long(_NULL) if self.encrypted_length is None else encode_long(_VALUE) + encode_long(self.encrypted_length))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> KeyMetadata:
        """Return the value of ``data``, of which every byte is accounted for.

        Raises:
            FormatError: Another version, bytes missing or left over, a bad key length, a negative length.
        """
        if not data:
            raise FormatError("key metadata is empty; the file has none, or it was cut")
        if data[0] != VERSION:
            raise FormatError(f"key metadata has version {data[0]}, only version {VERSION} is known")
        cursor = _Cursor(data, 1)
        dek = cursor.byte_string("encryption_key")
        aad_prefix = cursor.byte_string("aad_prefix") if cursor.branch("aad_prefix") else None
        length = cursor.long("file_length") if cursor.branch("file_length") else None
        cursor.end()
        return cls(dek=SecretBytes(dek), aad_prefix=aad_prefix, encrypted_length=length)


def encode_long(value: int) -> bytes:
    """Return an Avro long: zigzag, then 7 bits a byte, low bits first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:  # noqa: PLR2004
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_bytes(value: bytes) -> bytes:
    """Return Avro bytes, or text if they are its UTF-8: the length, then the bytes."""
    return encode_long(len(value)) + value


class _Cursor:
    """Reads Avro values from ``data``; every failure is a FormatError that names the field."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def long(self, field: str) -> int:
        raw = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            if self._position >= len(self._data):
                raise FormatError(f"key metadata ends inside {field} ({len(self._data)} bytes)")
            byte = self._data[self._position]
            self._position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004
                break
        else:
            raise FormatError(f"key metadata: {field} has a number of more than {_MAX_VARINT_BYTES} bytes")
        if raw >> 64:
            raise FormatError(f"key metadata: {field} has a number beyond int64")
        return (raw >> 1) ^ -(raw & 1)

    def byte_string(self, field: str) -> bytes:
        length = self.long(field)
        left = len(self._data) - self._position
        if not 0 <= length <= left:
            raise FormatError(f"key metadata: {field} claims {length} bytes, {left} are left")
        self._position += length
        return self._data[self._position - length : self._position]

    def branch(self, field: str) -> bool:
        """Read a union's branch: whether a value follows."""
        index = self.long(field)
        if index not in (_NULL, _VALUE):
            raise FormatError(f"key metadata: {field} is null (0) or a value (1), not branch {index}")
        return index == _VALUE

    def end(self) -> None:
        left = len(self._data) - self._position
        if left:
            raise FormatError(f"key metadata: {left} bytes are left over after file_length")
