"""Objects that no snapshot reaches, and whose key nobody knows: which are taken for encrypted."""

from __future__ import annotations

import json
import random
from array import array

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.unit.audit.conftest import look
from tests.unit.audit.surgery import Patient


def parquet_like(modules: bytes, footer: bytes) -> bytes:
    """A file of Parquet's encrypted form (Encryption.md): modules, FileCryptoMetaData of AES_GCM_V1, footer."""
    crypto = bytes.fromhex("1c1c2808") + random.randbytes(8) + bytes.fromhex("11000000")
    tail = crypto + len(footer).to_bytes(4, "little") + footer
    return b"PARE" + modules + tail + len(tail).to_bytes(4, "little") + b"PARE"


def module(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


RANDOM = random.Random(7).randbytes(5_000)
CARDS = b"".join(b"%d,4000 1234 5678 %04d,Ann\n" % (number, number) for number in range(200))
AGS1 = b"AGS1" + (1 << 20).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("content", "words"),
    {
        "text behind the magic of a stream": (b"AGS1" + CARDS, "no such header"),
        "a stream of another block size": (b"AGS1" + (1 << 16).to_bytes(4, "little") + RANDOM, "no such header"),
        "a stream that is shorter than one": (AGS1 + RANDOM[:27], "no such length"),
        "a stream of a length that none has": (AGS1 + random.Random(1).randbytes((1 << 20) + 28 + 28), "no such length"),
        "text behind the header of a stream": (AGS1 + CARDS, "not encrypted: some bytes are far too frequent"),
        "little text behind the header of a stream": (AGS1 + CARDS[:64], "far too frequent"),
        "numbers behind the header of a stream": (AGS1 + array("q", range(1_000)).tobytes(), "far too frequent"),
        "text between Parquet's magics": (b"PARE" + CARDS + b"PARE", "no such footer"),
        "random bytes between Parquet's magics": (b"PARE" + RANDOM + b"PARE", "no such footer"),
        "Parquet without its end": (parquet_like(module(RANDOM), RANDOM[:200])[:-1], "does not end as one"),
        "text in Parquet's first module": (parquet_like(module(CARDS), RANDOM[:200]), "far too frequent"),
        "text instead of Parquet's modules": (parquet_like(CARDS, RANDOM[:200]), "no modules follow"),
        "text in Parquet's footer": (parquet_like(module(RANDOM), CARDS), "far too frequent"),
    }.values(),
)
def test_bytes_that_only_begin_as_an_encrypted_file_are_plain(patient: Patient, content: bytes, words: str) -> None:
    (patient.file.parent / "left-m0.avro").write_bytes(content)
    report = look(patient.file, "foreign")
    assert (report.counts, report.objects["plain, left over"].files) == ({"plain-object": 1}, 1)
    assert words in report.findings[0].sentence
    assert "4000" not in json.dumps(report.to_json())


@pytest.mark.parametrize("length", [0, 1, 63, 64, 1_000, 70_000, (1 << 20) + 1])
def test_files_of_all_lengths_that_are_encrypted_pass(patient: Patient, length: int) -> None:
    """Streams as docs/reference/format.md says, by another library; and files of Parquet's form whose bytes are as even as AES-GCM's."""
    key, stream = random.randbytes(16), bytearray(AGS1)
    for start in range(0, max(1, length), 1 << 20):
        nonce, plain = random.randbytes(12), bytes(min(1 << 20, length - start))
        stream += nonce + AESGCM(key).encrypt(nonce, plain, b"prefix" + (start >> 20).to_bytes(4, "little"))
    (patient.file.parent / "left-m0.avro").write_bytes(stream)
    (patient.file.parent / "left.parquet").write_bytes(
        parquet_like(module(random.randbytes(length + 28)) * 2, random.randbytes(length + 28))
    )
    report = look(patient.file, "foreign")
    assert (report.counts, report.objects["encrypted, left over"].files) == ({}, 2)
