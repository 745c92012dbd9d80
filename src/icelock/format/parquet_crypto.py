"""The tail of an encrypted Parquet file: which algorithm its pages are under, decided by bytes that no tag protects.

Wire layout::

    FileCryptoMetaData | uint32 n (little-endian) | encrypted footer (n bytes) | uint32 length of all that | "PARE"     encrypted footer
    FileMetaData, whose field 8 names the algorithm | nonce (12), tag (16) | uint32 length of all that | "PAR1"         signed footer

    FileCryptoMetaData {1: EncryptionAlgorithm, 2: key_metadata}; union EncryptionAlgorithm {1: AES_GCM_V1, 2: AES_GCM_CTR_V1}, each of
    {1: aad_prefix, 2: aad_file_unique, 3: supply_aad_prefix}; in Thrift's compact protocol

FileCryptoMetaData is neither encrypted nor part of any AAD. One changed byte there, AES_GCM_V1 to AES_GCM_CTR_V1, makes Parquet's readers
decrypt pages without a tag, so that someone without a key can choose values (ADR 0013). So only the form is accepted that Arrow,
parquet-java and parquet-rs write for AES_GCM_V1: fields in order, each once, no others, shortest numbers, and the encrypted footer right
after it, to the last byte. Key metadata in the file, which Iceberg's writers leave out, is ignored. What remains open is authenticated
by the footer's tag: aad_file_unique is in its AAD, and so is the prefix, whether stored or supplied. A signed footer's signature covers
the algorithm.

Source: parquet-format's Encryption.md and parquet.thrift; Thrift's compact protocol. Not here: reading the file (``io.parquet``).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, NoReturn

from icelock.errors import IntegrityError
from icelock.format.aes_gcm import OVERHEAD, decrypt

ENCRYPTED_MAGIC: Final = b"PARE"
PLAIN_MAGIC: Final = b"PAR1"
END_LENGTH: Final = 8
"""Bytes after the footer: its length and the magic."""

# Types of modules; data pages and their headers have a page ordinal in their AAD, the footer has no ordinal at all.
FOOTER, COLUMN, PAGE, DICTIONARY, PAGE_HEADER, DICTIONARY_HEADER, COLUMN_INDEX, OFFSET_INDEX, BLOOM_HEADER, BLOOM_BITS = range(10)

ALGORITHM: Final = "AES_GCM_V1"
_UNAUTHENTICATED: Final = "AES_GCM_CTR_V1"
_UNIQUE_LENGTH: Final = 8
_GCM, _CTR = 1, 2
_PREFIX, _UNIQUE, _SUPPLY = 1, 2, 3
_OF_FOOTER: Final = 8
"""FileMetaData.encryption_algorithm."""

# Types of Thrift's compact protocol; a boolean field's type is its value.
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(14)
_NUMBERS: Final = frozenset({_I16, _I32, _I64})
_TYPE_AND_ORDINALS: Final = [struct.Struct(f"<B{count}h") for count in range(4)]
_FIXED: Final = {_BYTE: 1, _DOUBLE: 8, _UUID: 16}
_LONG_LIST: Final = 15
_MAX_DEPTH: Final = 32
_MORE: Final = 0x80
_MAX_VARINT: Final = 10


class OpenFooter(NamedTuple):
    """An encrypted footer that authenticated: FileMetaData in Thrift's compact protocol, and the AAD that all modules begin with."""

    file_metadata: bytes
    aad: bytes


def footer_length(end: bytes, size: int, location: str) -> int:
    """Return the length of the footer, with all that is before the last eight bytes of a file of ``size`` bytes, which are ``end``.

    Raises:
        IntegrityError: no Parquet magic, or the footer would not fit into the file.
    """
    if len(end) != END_LENGTH or end[4:] not in (ENCRYPTED_MAGIC, PLAIN_MAGIC):
        _refuse(location, f"it ends with {end[4:]!r}, an encrypted Parquet file ends with {ENCRYPTED_MAGIC!r}")
    length = int(struct.unpack("<I", end[:4])[0])
    most = size - END_LENGTH - len(ENCRYPTED_MAGIC)
    if length > most:
        _refuse(location, f"its footer claims {length} bytes, there are {max(0, most)}")
    return length


def check_encrypted_footer(footer: bytes, location: str) -> None:
    """Check that ``footer``, FileCryptoMetaData and the encrypted footer, is of the one form for AES_GCM_V1.

    Args:
        footer: all bytes before the footer's length; only its first ones are looked at.
        location: of the file, for the message.

    Raises:
        IntegrityError: another algorithm, above all AES_GCM_CTR_V1; bytes that no writer produces; bytes between the parts.
    """
    _encrypted_footer(footer, location)


def open_footer(footer: bytes, dek: bytes, aad_prefix: bytes, location: str) -> OpenFooter:
    """Return the plain FileMetaData of an encrypted footer, after `check_encrypted_footer`.

    Raises:
        IntegrityError: see `check_encrypted_footer`; or its tag does not match.
    """
    reader, unique = _encrypted_footer(footer, location)
    aad = aad_prefix + unique
    message = reader.take(reader.left())
    return OpenFooter(file_metadata=decrypt(dek, message, module_aad(aad, FOOTER)), aad=aad)


def file_crypto_metadata(unique: bytes) -> bytes:
    """Return FileCryptoMetaData of AES_GCM_V1 with this aad_file_unique and a supplied AAD prefix, as all of Parquet's writers do."""
    return bytes.fromhex("1c1c2808") + unique + bytes.fromhex("11000000")


def module_aad(aad: bytes, kind: int, *ordinals: int) -> bytes:
    """Return the AAD of a module: what its file's modules share, its type, and its row group, column and page as far as it has them."""
    return aad + _TYPE_AND_ORDINALS[len(ordinals)].pack(kind, *ordinals)


def _encrypted_footer(footer: bytes, location: str) -> tuple[_Thrift, bytes]:
    """Return a reader that stands at the encrypted footer's nonce, and aad_file_unique."""
    reader = _Thrift(footer, location, strict=True)
    if reader.field(0) != (1, _STRUCT):
        _refuse(location, "its FileCryptoMetaData does not begin with the algorithm")
    unique = reader.algorithm()
    reader.key_metadata()
    length = int.from_bytes(reader.take(4), "little")
    if length < OVERHEAD or length != reader.left():
        _refuse(location, f"its encrypted footer claims {length} bytes, there are {reader.left()}")
    return reader, unique


def check_signed_footer(footer: bytes, location: str) -> bool:
    """Check that a plaintext footer, if it names an algorithm, names AES_GCM_V1; its signature is for Parquet's reader to verify.

    Return whether it names one; a footer that does not belongs to a plain file, and refusing that is up to the caller.

    Args:
        footer: all bytes before the footer's length.
        location: of the file, for the message.

    Raises:
        IntegrityError: another algorithm, above all AES_GCM_CTR_V1; bytes that are not Thrift; no signature, or more than one.
    """
    reader = _Thrift(footer, location, strict=False)
    named = 0
    field, kind = reader.field(0)
    while kind != _STOP:
        if (field, kind) == (_OF_FOOTER, _STRUCT):
            named += 1
            reader.algorithm()
        else:
            reader.skip(kind)
        field, kind = reader.field(field)
    if named and (named > 1 or reader.left() != OVERHEAD):
        _refuse(location, f"its footer names {named} algorithms and has {reader.left()} bytes of signature, not {OVERHEAD}")
    return bool(named)


class _Thrift:
    """Reads Thrift's compact protocol. ``strict``: fields ascend, and numbers are as short as they can be."""

    def __init__(self, data: bytes, location: str, *, strict: bool) -> None:
        self._data = data
        self._location = location
        self._strict = strict
        self._position = 0

    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        if count > self.left():
            _refuse(self._location, f"its footer ends where {count} bytes should follow")
        self._position += count
        return self._data[self._position - count : self._position]

    def field(self, last: int) -> tuple[int, int]:
        """Return the id and type of the next field after that of id ``last``; (0, _STOP) at the end."""
        header = self.take(1)[0]
        step, kind = header >> 4, header & 0x0F
        if self._strict and (kind == _STOP) == bool(step):
            _refuse(self._location, f"no writer begins or ends a field with the byte {header:#04x}")
        if kind == _STOP:
            return 0, _STOP
        if step:
            return last + step, kind
        zigzag = self._varint()
        return (zigzag >> 1) ^ -(zigzag & 1), kind

    def algorithm(self) -> bytes:
        """Read a union EncryptionAlgorithm, which has to be AES_GCM_V1; return aad_file_unique."""
        member, kind = self.field(0)
        if (member, kind) == (_CTR, _STRUCT):
            _refuse(self._location, f"it names {_UNAUTHENTICATED} as its algorithm, which leaves pages without authentication")
        if (member, kind) != (_GCM, _STRUCT):
            _refuse(self._location, f"it names an unknown algorithm (member {member} of type {kind})")
        unique = self._aes_gcm()
        if self.field(_GCM) != (0, _STOP):
            _refuse(self._location, "it names a second algorithm")
        return unique

    def key_metadata(self) -> None:
        """Read what ends FileCryptoMetaData; key metadata there names a key to readers that have none, and decides nothing here."""
        following = self.field(1)
        if following == (2, _BINARY):
            self.take(self._varint())
            following = self.field(2)
        if following != (0, _STOP):
            _refuse(self._location, "its FileCryptoMetaData has more than algorithm and key metadata")

    def _aes_gcm(self) -> bytes:
        """Read what an algorithm is given (the AAD prefix, or that the reader supplies it), and return aad_file_unique."""
        found: dict[int, bytes] = {}
        field, kind = self.field(0)
        while kind != _STOP:
            if field in found:
                _refuse(self._location, f"field {field} of its algorithm occurs twice")
            if field == _SUPPLY and kind in (_TRUE, _FALSE):
                found[field] = b"supplied" if kind == _TRUE else b""
            elif field in (_PREFIX, _UNIQUE) and kind == _BINARY:
                found[field] = self.take(self._varint())
            else:
                _refuse(self._location, f"its algorithm has an unknown field (id {field}, type {kind})")
            field, kind = self.field(field)
        unique = found.get(_UNIQUE, b"")
        if len(unique) != _UNIQUE_LENGTH:
            _refuse(self._location, f"its aad_file_unique has {len(unique)} bytes, not {_UNIQUE_LENGTH}")
        if _PREFIX in found and found.get(_SUPPLY):
            _refuse(self._location, "its AAD prefix is said to be both stored and supplied")
        return unique

    def skip(self, kind: int, depth: int = 0, *, element: bool = False) -> None:
        """Skip a value; booleans in a list or map (``element``) take a byte, those of a field none."""
        if depth > _MAX_DEPTH:
            _refuse(self._location, "its footer is nested too deep")
        if kind in (_TRUE, _FALSE):
            self.take(1 if element else 0)
        elif kind in _NUMBERS:
            self._varint()
        elif kind in _FIXED:
            self.take(_FIXED[kind])
        elif kind == _BINARY:
            self.take(self._varint())
        elif kind == _STRUCT:
            field, inner = self.field(0)
            while inner != _STOP:
                self.skip(inner, depth + 1)
                field, inner = self.field(field)
        else:
            self._skip_elements(kind, depth)

    def _skip_elements(self, kind: int, depth: int) -> None:
        if kind in (_LIST, _SET):
            header = self.take(1)[0]
            count = self._varint() if header >> 4 == _LONG_LIST else header >> 4
            kinds = [header & 0x0F]
        elif kind == _MAP:
            count = self._varint()
            both = self.take(1)[0] if count else 0
            kinds = [both >> 4, both & 0x0F]
        else:
            _refuse(self._location, f"its footer has a value of type {kind}, which Thrift does not have")
        if count > self.left():
            _refuse(self._location, f"its footer claims {count} values in {self.left()} bytes")
        for _ in range(count):
            for inner in kinds:
                self.skip(inner, depth + 1, element=True)

    def _varint(self) -> int:
        value = index = 0
        while True:
            if index == _MAX_VARINT:
                _refuse(self._location, f"its footer has a number of more than {_MAX_VARINT} bytes")
            byte = self.take(1)[0]
            value |= (byte & ~_MORE) << 7 * index
            if byte < _MORE:
                break
            index += 1
        if self._strict and index and not byte:
            _refuse(self._location, "it has a number that is longer than necessary")
        return value


def _refuse(location: str, what: str) -> NoReturn:
    raise IntegrityError(
        f"{location} failed authentication at its end: {what}. Encrypted Iceberg files have the algorithm {ALGORITHM}, in the one form "
        "that Parquet's writers give it: the file was changed, or its writer chose another algorithm; restore it from a "
        "backup, read a snapshot that does not need it, or rewrite it"
    )
