"""A second AGS1 encoder, from the format's description, with ``cryptography`` only, and the faults of the vectors.

It shares no code with icelock: what it makes stands in for another implementation's files. Plaintext and nonces are
fixed functions of their place, so that a vector is a few lines of JSON however large its stream is; each vector pins
the stream by its SHA-256. A negative vector has exactly one fault:

- ``made``: the stream was made by other rules (``WRITERS``),
- ``fault``: a sound stream was changed on storage (``damage``),
- ``opened_with``: a sound stream is opened with other key metadata.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

BLOCK = 1024 * 1024
SEALED = 12 + BLOCK + 16


def plaintext(length: int) -> bytes:
    """Bytes that differ from block to block: 251 is prime to the block size."""
    return (bytes(range(251)) * (length // 251 + 1))[:length]


def nonce(index: int) -> bytes:
    return hashlib.sha256(b"nonce %d" % index).digest()[:12]


def seal(key: bytes, data: bytes, aad: bytes | None, index: int) -> bytes:
    return nonce(index) + AESGCM(key).encrypt(nonce(index), data, aad)


def blocks_of(data: bytes) -> list[bytes]:
    return [data[start : start + BLOCK] for start in range(0, max(1, len(data)), BLOCK)]


def stream(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:
    """The AGS1 stream of ``data``."""
    sealed = [seal(key, block, aad_prefix + struct.pack("<i", i), i) for i, block in enumerate(blocks_of(data))]
    return b"AGS1" + struct.pack("<I", BLOCK) + b"".join(sealed)


def big_endian_index(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:
    sealed = [seal(key, block, aad_prefix + struct.pack(">i", i), i) for i, block in enumerate(blocks_of(data))]
    return b"AGS1" + struct.pack("<I", BLOCK) + b"".join(sealed)


def index_from_one(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:
    sealed = [seal(key, block, aad_prefix + struct.pack("<i", i + 1), i) for i, block in enumerate(blocks_of(data))]
    return b"AGS1" + struct.pack("<I", BLOCK) + b"".join(sealed)


def no_index(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:
    sealed = [seal(key, block, aad_prefix, i) for i, block in enumerate(blocks_of(data))]
    return b"AGS1" + struct.pack("<I", BLOCK) + b"".join(sealed)


def no_aad(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:  # noqa: ARG001
    sealed = [seal(key, block, None, i) for i, block in enumerate(blocks_of(data))]
    return b"AGS1" + struct.pack("<I", BLOCK) + b"".join(sealed)


def tag_first(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:
    sealed = [seal(key, block, aad_prefix + struct.pack("<i", i), i) for i, block in enumerate(blocks_of(data))]
    return b"AGS1" + struct.pack("<I", BLOCK) + b"".join(s[:12] + s[-16:] + s[12:-16] for s in sealed)


def nonce_last(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:
    sealed = [seal(key, block, aad_prefix + struct.pack("<i", i), i) for i, block in enumerate(blocks_of(data))]
    return b"AGS1" + struct.pack("<I", BLOCK) + b"".join(s[12:] + s[:12] for s in sealed)


def trailing_empty_block(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:
    index = len(blocks_of(data))
    return stream(key, aad_prefix, data) + seal(key, b"", aad_prefix + struct.pack("<i", index), index)


def no_block_when_empty(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:  # noqa: ARG001
    return b"AGS1" + struct.pack("<I", BLOCK)


def big_endian_block_size(key: bytes, aad_prefix: bytes, data: bytes) -> bytes:
    return b"AGS1" + struct.pack(">I", BLOCK) + stream(key, aad_prefix, data)[8:]


WRITERS = {
    writer.__name__: writer
    for writer in (
        stream,
        big_endian_index,
        index_from_one,
        no_index,
        no_aad,
        tag_first,
        nonce_last,
        trailing_empty_block,
        no_block_when_empty,
        big_endian_block_size,
    )
}


def damage(sound: bytes, fault: dict[str, Any] | None) -> bytes:
    """Apply the one fault of a vector to a sound stream; negative offsets count from the end."""
    match fault:
        case None:
            return sound
        case {"do": "flip", "offset": offset, "bit": bit}:
            out = bytearray(sound)
            out[offset] ^= 1 << bit
            return bytes(out)
        case {"do": "cut", "length": length}:
            return sound[:length]
        case {"do": "append", "hex": text}:
            return sound + bytes.fromhex(text)
        case {"do": "put", "offset": offset, "hex": text}:
            data = bytes.fromhex(text)
            return sound[:offset] + data + sound[offset + len(data) :]
        case {"do": "order", "blocks": order}:
            sealed = [sound[start : start + SEALED] for start in range(8, len(sound), SEALED)]
            return sound[:8] + b"".join(sealed[i] for i in order)
    msg = f"unknown fault {fault}"
    raise ValueError(msg)


def load() -> list[dict[str, Any]]:
    """All vectors, by name."""
    return [json.loads(path.read_text()) for path in sorted(Path(__file__).parent.glob("*.json"))]
