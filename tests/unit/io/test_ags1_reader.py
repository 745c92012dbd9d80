from __future__ import annotations

import io

import pyarrow as pa
import pytest

from icelock.errors import FormatError, IntegrityError
from icelock.io.streams import Ags1Reader
from tests.unit.io.fakes import (
    MIB,
    NAME,
    FailingSource,
    LyingSource,
    PlainSource,
    ShortSource,
    Source,
    key_metadata,
    sound,
)

PLAIN, STREAM = sound(2 * MIB + 5)
EDGES = sorted({0, 1, 7, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 2 * MIB + 4, 2 * MIB + 5, 2 * MIB + 6})


def reader_of(data=STREAM, source=Source, length=2097249):
    return Ags1Reader(source(data), key_metadata(length), NAME)


def flipped(offset):
    data = bytearray(STREAM)
    data[offset] ^= 1
    return bytes(data)


def test_every_offset_and_length_around_the_block_edges_is_read():
    """C-02."""
    with reader_of() as reader:
        for offset in EDGES:
            for length in EDGES:
                reader.seek(offset)
                assert reader.read(length) == PLAIN[offset : offset + length]
                assert reader.tell() == max(offset, min(offset + length, len(PLAIN)))


def test_readinto_fills_the_buffer_across_blocks_and_is_short_only_at_the_end():
    with reader_of() as reader:
        for offset in EDGES:
            for length in EDGES:
                reader.seek(offset)
                buffer = bytearray(length)
                expected = PLAIN[offset : offset + length]
                assert reader.readinto(buffer) == len(expected)
                assert buffer == expected + bytes(length - len(expected))


@pytest.mark.parametrize("step", [1000, 4096, 65537, MIB, MIB + 1])
def test_steps_give_the_whole_in_order(step):
    with reader_of() as reader:
        parts = list(iter(lambda: reader.read(step), b""))
    assert b"".join(parts) == PLAIN
    assert all(len(part) == step for part in parts[:-1])


def test_read_takes_what_is_left_for_none_and_negative_sizes():
    with reader_of() as reader:
        for size in (None, -1, -7):
            reader.seek(2 * MIB)
            assert reader.read(size) == PLAIN[2 * MIB :]
            assert reader.read(size) == b""
        reader.seek(2 * MIB)
        assert reader.readall() == PLAIN[2 * MIB :]
        assert reader.readall() == b""


def test_a_huge_read_takes_only_what_is_there():
    with reader_of() as reader:
        assert reader.read(1 << 50) == PLAIN


def test_seek_counts_from_start_position_and_end():
    with reader_of() as reader:
        assert reader.seek(10) == 10
        assert reader.seek(5, io.SEEK_CUR) == 15
        assert reader.seek(-15, io.SEEK_CUR) == 0
        assert reader.seek(-5, io.SEEK_END) == 2 * MIB
        assert reader.read() == PLAIN[-5:]
        assert reader.seek(100, io.SEEK_END) == 2 * MIB + 105
        assert reader.read(1) == b""
        assert reader.tell() == 2 * MIB + 105


@pytest.mark.parametrize(("offset", "whence"), [(-1, 0), (-1, 1), (-(2 * MIB + 6), 2), (0, 3)])
def test_a_position_before_the_start_is_refused_and_the_reader_goes_on(offset, whence):
    with reader_of() as reader:
        with pytest.raises(ValueError, match=r"seek to -|whence"):
            reader.seek(offset, whence)
        assert reader.read(3) == PLAIN[:3]


def test_it_is_a_readable_seekable_raw_stream():
    reader = reader_of()
    assert isinstance(reader, io.RawIOBase)
    assert (reader.readable(), reader.seekable(), reader.writable()) == (True, True, False)
    with pytest.raises(io.UnsupportedOperation):
        reader.write(b"x")
    with pytest.raises(io.UnsupportedOperation):
        reader.truncate()


def test_it_carries_a_buffered_reader_and_lines():
    with io.BufferedReader(reader_of(), 100) as buffered:
        assert buffered.read(10) == PLAIN[:10]
        assert buffered.peek()[:1] == PLAIN[10:11]
        buffered.seek(MIB - 3)
        assert buffered.read(6) == PLAIN[MIB - 3 : MIB + 3]
        assert buffered.readline() == PLAIN[MIB + 3 :].split(b"\n")[0] + b"\n"


def test_it_carries_an_arrow_random_access_file():
    with pa.PythonFile(reader_of(), mode="r") as file:
        assert file.size() == 2 * MIB + 5
        assert file.read_at(20, MIB - 10) == PLAIN[MIB - 10 : MIB + 10]
        file.seek(0)
        assert file.read() == PLAIN


@pytest.mark.parametrize("source", [ShortSource, PlainSource, pa.BufferReader])
def test_other_sources_do(source):
    with reader_of(source=source) as reader:
        assert reader.read() == PLAIN


def test_opening_reads_the_storage_once_and_small_reads_each_block_once():
    source = Source(STREAM)
    with Ags1Reader(source, key_metadata(len(STREAM)), NAME) as reader:
        assert source.reads == 1
        while reader.read(10_000):
            pass
        assert source.reads == 3


def test_a_stream_of_nothing_is_authenticated_too():
    plain, stream = sound(0)
    with reader_of(stream, length=36) as reader:
        assert reader.read() == plain == b""
        assert reader.seek(0, io.SEEK_END) == 0
    with pytest.raises(IntegrityError, match="block 0 of 1"):
        reader_of(stream[:-1] + bytes([stream[-1] ^ 1]), length=36)


@pytest.mark.parametrize("offset", [8, 8 + 12, 8 + 1048604 - 1])
def test_a_changed_first_block_shows_at_opening(offset):
    with pytest.raises(IntegrityError, match=f"^{NAME}: block 0 of 3 does not authenticate"):
        reader_of(flipped(offset))


@pytest.mark.parametrize("cut", [8, 8 + 1048604, 8 + 2 * 1048604, len(STREAM)])
@pytest.mark.parametrize("before", [0, 1, 100])
def test_a_cut_at_or_before_any_block_edge_is_refused(cut, before):
    """J-01, C-03."""
    data = STREAM[: max(0, cut - before)]
    if len(data) == len(STREAM):
        return
    with pytest.raises(IntegrityError, match=f"^{NAME}: {len(STREAM) - len(data)} bytes are missing"):
        reader_of(data)


def test_a_storage_that_reports_the_right_size_but_lacks_bytes_is_caught():
    """C-03."""
    reader = Ags1Reader(LyingSource(STREAM[:-1], len(STREAM)), key_metadata(len(STREAM)), NAME)
    assert reader.read(2 * MIB) == PLAIN[: 2 * MIB]
    with pytest.raises(IntegrityError, match="block 2 of 3 is cut: expected 33 bytes, the storage gave 32"):
        reader.read()
    with pytest.raises(IntegrityError, match="block 0 of 3 is cut: expected 1048612 bytes, the storage gave 100"):
        Ags1Reader(LyingSource(STREAM[:100], len(STREAM)), key_metadata(len(STREAM)), NAME)


@pytest.mark.parametrize("key", [{"key": bytes(16)}, {"key": bytes(range(32))}, {"aad_prefix": bytes(16)}, {"aad_prefix": None}])
def test_another_files_key_or_prefix_shows_at_opening(key):
    """C-62."""
    with pytest.raises(IntegrityError, match="block 0 of 3 does not authenticate"):
        Ags1Reader(Source(STREAM), key_metadata(len(STREAM), **key), NAME)


def test_key_metadata_without_length_is_refused_before_the_storage_is_read():
    """C-03, J-07."""
    source = Source(STREAM)
    with pytest.raises(FormatError, match=f"^{NAME}: its key metadata has no file length"):
        Ags1Reader(source, key_metadata(None), NAME)
    assert source.reads == 0


def test_after_an_error_every_call_fails_with_it():
    reader = reader_of(flipped(8 + 1048604 + 50))
    assert reader.read(MIB) == PLAIN[:MIB]
    with pytest.raises(IntegrityError, match="block 1 of 3") as first:
        reader.read(1)
    calls = (
        reader.read,
        reader.readall,
        lambda: reader.readinto(bytearray(1)),
        reader.tell,
        lambda: reader.seek(0),
        reader.readable,
        reader.seekable,
    )
    for call in calls:
        with pytest.raises(IntegrityError) as again:
            call()
        assert again.value is first.value
    reader.close()


def test_an_error_of_the_storage_sticks():
    reader = Ags1Reader(FailingSource(STREAM, 1), key_metadata(len(STREAM)), NAME)
    reader.seek(MIB)
    for _ in range(2):
        with pytest.raises(OSError, match="storage is away"):
            reader.read(1)


@pytest.mark.parametrize("start", [MIB, MIB - 5, MIB + 5])
def test_no_unauthenticated_byte_reaches_the_callers_buffer(start):
    reader = reader_of(flipped(len(STREAM) - 40))
    buffer = bytearray(b"\xee" * (2 * MIB - start))
    reader.seek(start)
    with pytest.raises(IntegrityError, match="block 1 of 3"):
        reader.readinto(buffer)
    before = max(0, MIB - start)
    assert buffer[:before] == PLAIN[start : start + before]
    assert set(buffer[before:]) <= {0, 0xEE}


def test_a_buffer_that_cannot_be_written_is_refused_and_the_reader_goes_on():
    with reader_of() as reader:
        with pytest.raises(TypeError, match="writable"):
            reader.readinto(b"123")
        assert reader.read(3) == PLAIN[:3]


def test_the_source_is_closed_with_the_reader_and_when_opening_fails():
    source = Source(STREAM)
    reader = Ags1Reader(source, key_metadata(len(STREAM)), NAME)
    reader.close()
    reader.close()
    assert source.closed
    assert reader.closed
    for data, length in ((STREAM[:-1], len(STREAM)), (STREAM, None), (b"", len(STREAM)), (flipped(8), len(STREAM))):
        source = Source(data)
        with pytest.raises((IntegrityError, FormatError)):
            Ags1Reader(source, key_metadata(length), NAME)
        assert source.closed


def test_a_closed_reader_refuses_every_call():
    reader = reader_of()
    reader.close()
    for call in (reader.read, reader.readall, reader.tell, lambda: reader.seek(0), lambda: reader.readinto(bytearray(1)), reader.readable):
        with pytest.raises(ValueError, match="closed file"):
            call()
