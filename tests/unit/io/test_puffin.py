"""Deletion vectors byte by byte: the form is written out here, each negative case has one fault."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icelock.errors import FormatError, IntegrityError
from icelock.io.plain_input import PlainBytes
from icelock.io.puffin.read import decode_deletion_vector, read_blob
from tests.unit.arrow.deleting import blob, puffin, roaring64

VALUES = [0, 1, 65_535, 65_536, 4_000_000_000, (1 << 32) + 7, (5 << 32) + 1]


def decode(data: bytes, cardinality: int = len(VALUES)) -> list[int]:
    return list(decode_deletion_vector(data, cardinality=cardinality, name="dv.puffin"))


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def test_positions_of_several_high_words_and_container_kinds_are_read():
    assert decode(blob(VALUES)) == VALUES
    dense = [*range(0, 20_000, 2), *range(70_000, 70_003)]
    assert decode(blob(dense), len(dense)) == dense
    assert decode(blob([]), 0) == []


def test_run_containers_as_java_writes_them_are_read():
    """Cookie 12347: one container with one run of 10 values from 5 on; no offsets below four containers."""
    bitmap = struct.pack("<I", 12347) + b"\x01" + struct.pack("<HH", 0, 9) + struct.pack("<HHH", 1, 5, 9)
    body = bytes.fromhex("d1d33964") + struct.pack("<q", 1) + struct.pack("<I", 0) + bitmap
    assert decode(framed(body), 10) == list(range(5, 15))


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (b"", FormatError, "at least 20 bytes, got 0"),
        (blob(VALUES)[:-1], FormatError, "says"),
        (blob(VALUES) + b"\0", FormatError, "says"),
        (framed(b"PFA1" + roaring64(VALUES)), FormatError, "expected magic d1d33964"),
        (blob(VALUES)[:-1] + b"\0", IntegrityError, "CRC-32"),
        (blob(VALUES[:-1]), IntegrityError, "has 6 positions, its manifest entry says 7"),
        (framed(bytes.fromhex("d1d33964") + roaring64(VALUES)[:-2]), FormatError, "not a Roaring bitmap"),
        (framed(bytes.fromhex("d1d33964") + roaring64(VALUES) + b"\0\0"), FormatError, "left over"),
        (framed(bytes.fromhex("d1d33964") + struct.pack("<q", -1)), FormatError, "not a Roaring bitmap"),
        (blob([*VALUES[:-1], (1 << 63) + 5]), FormatError, "position 9223372036854775813"),
    ],
)
def test_each_fault_is_told(data: bytes, error: type[Exception], says: str):
    with pytest.raises(error, match=f"dv.puffin.*{says}"):
        decode(data)


def test_every_single_bit_of_a_vector_matters():
    """Whatever bit is turned, the vector is refused."""
    sound = blob([1, 5, 70_000])
    for index in range(len(sound) * 8):
        damaged = bytearray(sound)
        damaged[index // 8] ^= 1 << (index % 8)
        with pytest.raises((FormatError, IntegrityError)):
            decode(bytes(damaged), 3)


def test_blobs_are_found_by_offset_and_size():
    blobs = [blob([1]), blob([2, 3])]
    plain, offsets = puffin(blobs, gap=9)
    file = PlainBytes(location="dv.puffin", data=plain)
    assert [read_blob(file, offset, len(one)) for offset, one in zip(offsets, blobs, strict=True)] == blobs


@pytest.mark.parametrize(
    ("offset", "size", "says"), [(4, 10_000, "but the file has"), (-5, 3, "would overlap the magic"), (4, -1, "but the file has")]
)
def test_a_blob_that_is_not_in_the_file_is_refused(offset: int, size: int, says: str):
    plain, _ = puffin([blob([1])])
    with pytest.raises(FormatError, match=says):
        read_blob(PlainBytes(location="dv.puffin", data=plain), offset, size)


def test_a_file_without_puffins_magic_is_refused():
    with pytest.raises(FormatError, match=r"dv\.puffin is not a Puffin file"):
        read_blob(PlainBytes(location="dv.puffin", data=b"PAR1" + bytes(40)), 4, 10)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_changed_bitmaps_with_a_right_checksum_are_refused_or_have_the_right_number_of_positions(data: st.DataObject):
    """House rule 12: whoever has the key may write anything, and the bitmap library is not Python."""
    sound = roaring64([*range(0, 9000, 2), *VALUES])
    out = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, min(len(out), 200)) | st.integers(0, len(out)))
        out[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    body = bytes.fromhex("d1d33964") + bytes(out)
    with suppress(FormatError, IntegrityError):
        found = decode(framed(body), 4506)
        assert len(found) == len(set(found)) == 4506
