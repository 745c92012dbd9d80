"""What storage can do to an encrypted Parquet file without a key (ADR 0013), on the bytes alone."""

from __future__ import annotations

GCM, CTR = 0x1C, 0x2C
"""The header of member 1 and of member 2 of the union EncryptionAlgorithm, both structs, in Thrift's compact protocol."""
NONCE, TAG, LENGTH = 12, 16, 4


def head_at(stored: bytes) -> int:
    """Where FileCryptoMetaData begins."""
    return len(stored) - 8 - int.from_bytes(stored[-8:-4], "little")


def renamed(stored: bytes) -> bytes:
    """The file with AES_GCM_CTR_V1 in place of AES_GCM_V1: one byte."""
    at = head_at(stored) + 1
    assert stored[at] == GCM
    return stored[:at] + bytes([CTR]) + stored[at + 1 :]


def chosen(stored: bytes, *, row: int, mask: int, width: int = 8) -> bytes:
    """The renamed file with ``mask`` put by XOR on one value of each page of data of more than 1,000 bytes.

    For plain, required values of ``width`` bytes, not compressed. A page is ``length | nonce | ciphertext | tag``; GCM encrypts its first
    16 bytes with the nonce's counter 2, Parquet's CTR with counter 1, as GCM does the tag. So 16 bytes of anything before the ciphertext,
    and no tag, give the plain page after 16 bytes of noise, in as many bytes as before: values come 16 / ``width`` rows later.
    """
    out = bytearray(renamed(stored))
    position, end = LENGTH, head_at(stored)
    while position < end:
        length = int.from_bytes(out[position : position + LENGTH], "little")
        if length > 1000:
            first, last = position + LENGTH + NONCE, position + LENGTH + length
            out[first:last] = bytes(TAG) + out[first : last - TAG]
            value = first + TAG + row * width
            old = int.from_bytes(out[value : value + width], "little")
            out[value : value + width] = (old ^ mask).to_bytes(width, "little")
        position += LENGTH + length
    return bytes(out)
