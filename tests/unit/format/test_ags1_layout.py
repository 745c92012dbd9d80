from __future__ import annotations

import pytest

from icelock.errors import FormatError
from icelock.format import ags1

MIB = 1048576
# C-02 and the format's own table.
SIZES = [
    (0, 36),
    (1, 37),
    (15, 51),
    (16, 52),
    (17, 53),
    (MIB - 1, 1048611),
    (MIB, 1048612),
    (MIB + 1, 1048641),
    (2 * MIB, 2097216),
    (2 * MIB + 5, 2097249),
]


@pytest.mark.parametrize(("plain", "encrypted"), SIZES)
def test_lengths_are_those_of_the_format(plain, encrypted):
    """C-02."""
    assert ags1.encrypted_length(plain) == encrypted
    assert ags1.plaintext_length(encrypted) == plain


@pytest.mark.parametrize(
    ("encrypted", "blocks"), [(36, 1), (37, 1), (1048612, 1), (1048641, 2), (2097216, 2), (2097249, 3), (8 + 1000 * 1048604, 1000)]
)
def test_blocks_are_counted(encrypted, blocks):
    assert ags1.block_count(encrypted) == blocks


def test_constants_are_those_of_the_format():
    assert ags1.MAGIC == b"AGS1"
    assert (ags1.BLOCK_SIZE, ags1.HEADER_LENGTH, ags1.MIN_ENCRYPTED_LENGTH, ags1.ENCRYPTED_BLOCK_SIZE) == (1048576, 8, 36, 1048604)


def test_header_has_the_block_size_little_endian():
    assert ags1.header() == bytes.fromhex("41475331 00001000")
    ags1.check_header(b"AGS1\x00\x00\x10\x00", "f.avro")


def test_blocks_lie_one_after_the_other():
    assert [ags1.block_offset(i) for i in range(3)] == [8, 1048612, 2097216]
    assert [ags1.block_length(i, 2097249) for i in range(3)] == [1048604, 1048604, 33]
    assert ags1.block_length(0, 36) == 28


@pytest.mark.parametrize("index", [-1, 3])
def test_a_block_outside_the_stream_has_no_length(index):
    with pytest.raises(IndexError, match=f"no block {index}"):
        ags1.block_length(index, 2097249)


@pytest.mark.parametrize(("index", "tail"), [(0, "00000000"), (1, "01000000"), (258, "02010000"), (2**31 - 1, "ffffff7f")])
def test_block_aad_is_the_prefix_and_the_index_as_little_endian_int32(index, tail):
    assert ags1.block_aad(b"prefix", index) == b"prefix" + bytes.fromhex(tail)


@pytest.mark.parametrize("index", [-1, 2**31, 2**63])
def test_a_block_index_beyond_int32_is_refused(index):
    with pytest.raises(FormatError, match="non-negative int32"):
        ags1.block_aad(b"", index)


@pytest.mark.parametrize("encrypted", [-(2**63), -1, 0, 1, 8, 9, 35])
def test_a_stream_shorter_than_one_empty_block_is_refused(encrypted):
    with pytest.raises(FormatError, match=f"at least 36 bytes, not {encrypted}"):
        ags1.plaintext_length(encrypted)


@pytest.mark.parametrize("rest", [1, 2, 12, 27, 28])
@pytest.mark.parametrize("full", [1, 2, 1000])
def test_a_last_block_without_a_plain_byte_is_refused(full, rest):
    """Only a stream of nothing has an empty block, so a plaintext length has one encrypted length."""
    with pytest.raises(FormatError, match=f"{rest} bytes are left for the last block"):
        ags1.block_count(8 + full * 1048604 + rest)


def test_more_blocks_than_an_int32_counts_are_refused():
    most = ags1.encrypted_length(2**31 * MIB)
    assert most == 8 + 2**31 * 1048604
    assert ags1.plaintext_length(most) == 2**51
    with pytest.raises(FormatError, match=r"2\^31 blocks"):
        ags1.plaintext_length(most + 29)
    with pytest.raises(FormatError, match=r"2\^51"):
        ags1.encrypted_length(2**51 + 1)


def test_a_negative_plaintext_length_is_refused():
    with pytest.raises(FormatError, match="not -1"):
        ags1.encrypted_length(-1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 8 bytes, got 0"),
        (b"AGS1\x00\x00\x10", "has 8 bytes, got 7"),
        (b"AGS1\x00\x00\x10\x00\x00", "has 8 bytes, got 9"),
        (b"AGS2\x00\x00\x10\x00", "begins with b'AGS2', expected b'AGS1'"),
        (b"Obj\x01\x00\x00\x10\x00", "begins with b'Obj\\x01', expected b'AGS1'"),
        (b"AGS1\x00\x00\x20\x00", "block size is 2097152, only 1048576"),
        (b"AGS1\x00\x10\x00\x00", "block size is 4096, only 1048576"),
        (b"AGS1\x00\x00\x00\x00", "block size is 0, only 1048576"),
        (b"AGS1\xff\xff\xff\xff", "block size is 4294967295, only 1048576"),
    ],
)
def test_another_header_is_refused_and_the_file_named(data, message):
    """C-67: the message shows what the file begins with."""
    with pytest.raises(FormatError) as caught:
        ags1.check_header(data, "s3://lake/m0.avro")
    assert message in str(caught.value)
    assert str(caught.value).startswith("s3://lake/m0.avro: ")
