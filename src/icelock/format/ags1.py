"""The layout of an AGS1 stream (manifest lists, manifests, Avro files, Puffin files), as arithmetic.

Wire layout, integers little-endian::

    "AGS1" | uint32 block size = 1048576 | block 0 | block 1 | ...
    block i = nonce (12) | ciphertext (1 MiB, the last block less) | tag (16)
    AAD of block i = AAD prefix | int32 i

Invariants: only the last block may be short; a stream has at least one block, so an empty plaintext is one empty block (36
bytes); no other block is empty. A plaintext length has exactly one encrypted length, and the encrypted length comes
from key metadata, never from the file system: a stream cut between two blocks is otherwise valid.

Source: Iceberg's AES GCM Stream spec; Java ``Ciphers``, ``AesGcmInputStream``, ``AesGcmOutputStream``. Not here: I/O and
the cipher (``io.streams``).
"""

from __future__ import annotations

import struct
from typing import Final, NewType

from icelock.errors import FormatError
from icelock.format.aes_gcm import OVERHEAD
from icelock.format.key_metadata import KeyMetadata

PlaintextLength = NewType("PlaintextLength", int)
EncryptedLength = NewType("EncryptedLength", int)

MAGIC: Final = b"AGS1"
BLOCK_SIZE: Final = 1 << 20
ENCRYPTED_BLOCK_SIZE: Final = BLOCK_SIZE + OVERHEAD
HEADER_LENGTH: Final = 8
MIN_ENCRYPTED_LENGTH: Final = HEADER_LENGTH + OVERHEAD
MAX_BLOCKS: Final = 1 << 31
"""The block index is a non-negative int32."""

_HEADER: Final = struct.Struct("<4sI")
_INDEX: Final = struct.Struct("<i")


def encrypted_length(plaintext: PlaintextLength) -> EncryptedLength:
    """Return the bytes on storage of ``plaintext`` plain bytes: ``8 + n + 28 * max(1, ceil(n / 1 MiB))``.

    Raises:
        FormatError: A negative length, or more than 2^31 blocks.
    """
    if not 0 <= plaintext <= MAX_BLOCKS * BLOCK_SIZE:
        raise FormatError(f"an AGS1 stream holds 0 to 2^51 plain bytes, not {plaintext}")
    blocks = max(1, -(-plaintext // BLOCK_SIZE))
    return EncryptedLength(HEADER_LENGTH + plaintext + OVERHEAD * blocks)


def plaintext_length(encrypted: EncryptedLength) -> PlaintextLength:
    """Return the plain bytes in a stream of ``encrypted`` bytes on storage; the inverse of `encrypted_length`.

    Raises:
        FormatError: No AGS1 stream has this length.
    """
    return PlaintextLength(encrypted - HEADER_LENGTH - OVERHEAD * block_count(encrypted))


def block_count(encrypted: EncryptedLength) -> int:
    """Return the number of blocks, at least 1, in a stream of ``encrypted`` bytes on storage.

    Raises:
        FormatError: No AGS1 stream has this length.
    """
    if encrypted < MIN_ENCRYPTED_LENGTH:
        raise FormatError(f"an AGS1 stream has at least {MIN_ENCRYPTED_LENGTH} bytes, not {encrypted}")
    full, rest = divmod(encrypted - HEADER_LENGTH, ENCRYPTED_BLOCK_SIZE)
    if 0 < rest < OVERHEAD or (rest == OVERHEAD and full):
        raise FormatError(f"no AGS1 stream has {encrypted} bytes: {rest} bytes are left for the last block, it needs more than {OVERHEAD}")
    blocks = full + (1 if rest else 0)
    if blocks > MAX_BLOCKS:
        raise FormatError(f"an AGS1 stream has at most 2^31 blocks, {encrypted} bytes would be {blocks}")
    return blocks


def authenticated_length(key_metadata: KeyMetadata, location: str) -> EncryptedLength:
    """Return the encrypted length of the stream at ``location``, as the file's parent vouches for it.

    Raises:
        FormatError: The key metadata has no length, or one that no AGS1 stream has.
    """
    if key_metadata.encrypted_length is None:
        raise FormatError(
            f"{location}: its key metadata has no file length, so a stream cut between two blocks would not be noticed; "
            "rewrite it with a writer that sets the length"
        )
    length = EncryptedLength(key_metadata.encrypted_length)
    try:
        block_count(length)
    except FormatError as e:
        raise FormatError(f"{location}: its key metadata has a wrong file length: {e}") from e
    return length


def block_offset(index: int) -> int:
    """Return where block ``index`` begins on storage."""
    return HEADER_LENGTH + index * ENCRYPTED_BLOCK_SIZE


def block_length(index: int, encrypted: EncryptedLength) -> int:
    """Return the bytes on storage of block ``index``, nonce and tag included.

    Raises:
        IndexError: The stream has no such block.
    """
    if not 0 <= index < block_count(encrypted):
        raise IndexError(f"an AGS1 stream of {encrypted} bytes has no block {index}")
    return min(ENCRYPTED_BLOCK_SIZE, encrypted - block_offset(index))


def block_aad(aad_prefix: bytes, index: int) -> bytes:
    """Return the AAD that ties block ``index`` to its place in its file.

    Raises:
        FormatError: The index is not a non-negative int32.
    """
    if not 0 <= index < MAX_BLOCKS:
        raise FormatError(f"an AGS1 block index is a non-negative int32, not {index}")
    return aad_prefix + _INDEX.pack(index)


def header() -> bytes:
    """Return the 8 bytes that every stream begins with."""
    return _HEADER.pack(MAGIC, BLOCK_SIZE)


def check_header(data: bytes, location: str) -> None:
    """Check the first 8 bytes of the file at ``location``.

    Raises:
        FormatError: Too few bytes, another magic, or another block size.
    """
    if len(data) != HEADER_LENGTH:
        raise FormatError(f"{location}: an AGS1 header has {HEADER_LENGTH} bytes, got {len(data)}; the file was cut or is another file")
    magic, block_size = _HEADER.unpack(data)
    if magic != MAGIC:
        raise FormatError(
            f"{location}: not an AGS1 stream: it begins with {magic!r}, expected {MAGIC!r}; it was replaced, or never encrypted"
        )
    if block_size != BLOCK_SIZE:
        raise FormatError(f"{location}: AGS1 block size is {block_size}, only {BLOCK_SIZE} exists; the header was changed")
