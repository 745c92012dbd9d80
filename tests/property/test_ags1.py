"""AGS1 by properties: the arithmetic has one answer and one inverse; a reader and a writer behave as ``io.BytesIO`` does."""

from __future__ import annotations

import io
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from icelock.errors import FormatError, IntegrityError
from icelock.format import ags1
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.io.streams import Ags1Reader, Ags1Writer
from icelock.secret import SecretBytes
from tests.vectors.ags1 import reference

MIB = 1 << 20
KEY = bytes(range(16))
PREFIX = bytes(range(16, 32))
SIZE = 3 * MIB + 11
EDGES = [edge * MIB + near for edge in range(4) for near in (-28, -1, 0, 1, 28) if edge * MIB + near >= 0] + [SIZE - 1, SIZE, SIZE + 1]

lengths = st.one_of(
    st.integers(0, 2**51),
    st.builds(lambda blocks, near: max(0, blocks * MIB + near), st.integers(0, 2**31 - 1), st.integers(-30, 30)),
)
positions = st.one_of(st.sampled_from(EDGES), st.integers(0, SIZE + 5))


@cache
def sound(size=SIZE):
    plain = reference.plaintext(size)
    return plain, reference.stream(KEY, PREFIX, plain)


def opened(stream, length=None):
    metadata = KeyMetadata(dek=SecretBytes(KEY), aad_prefix=PREFIX, encrypted_length=len(stream) if length is None else length)
    return Ags1Reader(io.BytesIO(stream), metadata, "f")


class Nonces:
    def __init__(self):
        self.drawn = 0

    def random_bytes(self, n):
        assert n == 12
        self.drawn += 1
        return reference.nonce(self.drawn - 1)


@given(lengths)
def test_encrypted_length_is_the_formula_and_has_an_inverse(plain):
    blocks = max(1, (plain + MIB - 1) // MIB)
    encrypted = ags1.encrypted_length(plain)
    assert encrypted == 8 + plain + 28 * blocks
    assert ags1.plaintext_length(encrypted) == plain
    assert ags1.block_count(encrypted) == blocks


@given(st.integers(-100, 2**52))
def test_a_length_on_storage_is_refused_or_has_one_plaintext_length(encrypted):
    try:
        plain = ags1.plaintext_length(encrypted)
    except FormatError:
        rest = (encrypted - 8) % 1048604
        assert encrypted < 36 or 0 < rest <= 28 or encrypted > 8 + 2**31 * 1048604
    else:
        assert ags1.encrypted_length(plain) == encrypted


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_a_longer_plaintext_has_a_longer_stream(plain, more):
    assert ags1.encrypted_length(plain + more) >= ags1.encrypted_length(plain) + more


@given(st.integers(0, 20 * MIB))
def test_blocks_tile_the_stream(plain):
    encrypted = ags1.encrypted_length(plain)
    end = 8
    for index in range(ags1.block_count(encrypted)):
        assert ags1.block_offset(index) == end
        end += ags1.block_length(index, encrypted)
    assert end == encrypted


@given(positions, positions)
def test_any_range_reads_as_the_plain_bytes(offset, length):
    plain, stream = sound()
    with opened(stream) as reader:
        reader.seek(offset)
        assert reader.read(length) == plain[offset : offset + length]
        buffer = bytearray(length)
        reader.seek(offset)
        assert reader.readinto(buffer) == len(plain[offset : offset + length])
        assert buffer[: max(0, SIZE - offset)] == plain[offset : offset + length]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.one_of(st.just(-1), st.integers(0, 100), positions)),
        st.tuples(st.just("readinto"), st.one_of(st.integers(0, 100), positions)),
        st.tuples(st.just("seek"), positions, st.just(io.SEEK_SET)),
        st.tuples(st.just("seek"), st.integers(0, SIZE), st.just(io.SEEK_CUR)),
        st.tuples(st.just("seek"), st.integers(-SIZE, 5), st.just(io.SEEK_END)),
        st.tuples(st.just("tell")),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(steps)
def test_any_sequence_of_calls_answers_as_a_plain_file(calls):
    plain, stream = sound()
    model = io.BytesIO(plain)
    with opened(stream) as reader:
        for name, *args in calls:
            if name == "readinto":
                expected, got = bytearray(args[0]), bytearray(args[0])
                assert reader.readinto(got) == model.readinto(expected)
                assert got == expected
            else:
                assert getattr(reader, name)(*args) == getattr(model, name)(*args)
            assert reader.tell() == model.tell()


@settings(deadline=None)
@given(st.data())
def test_any_way_of_writing_gives_the_same_bytes(data):
    size = data.draw(st.sampled_from([0, 1, 1000, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 5]))
    cuts = data.draw(st.lists(st.one_of(st.integers(0, size), st.sampled_from([e for e in EDGES if e <= size])), max_size=8).map(sorted))
    plain, stream = sound(size)
    sink = io.BytesIO()
    sink.close = lambda: None
    with Ags1Writer(sink, FileKey(dek=SecretBytes(KEY), aad_prefix=PREFIX), "f", Nonces()) as writer:
        for start, end in zip([0, *cuts], [*cuts, size], strict=True):
            assert writer.write(plain[start:end]) == end - start
            assert writer.tell() == end
    assert sink.getvalue() == stream
    assert writer.encrypted_length == len(stream) == ags1.encrypted_length(size)


@settings(deadline=None)
@given(st.integers(0, 8 * (8 + SIZE + 4 * 28) - 1))
def test_any_flipped_bit_is_refused(bit):
    """C-02."""
    _, stream = sound()
    changed = bytearray(stream)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises((FormatError, IntegrityError)):
        opened(bytes(changed)).read()


@settings(deadline=None)
@given(st.integers(0, 8 + SIZE + 4 * 28 - 1))
def test_any_cut_is_refused(length):
    """C-03, J-01."""
    _, stream = sound()
    with pytest.raises(IntegrityError, match=f"{len(stream) - length} bytes are missing"):
        opened(stream[:length], len(stream))


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_any_other_order_of_blocks_is_refused(order):
    """C-02."""
    assume(order != [0, 1, 2, 3])
    _, stream = sound()
    with pytest.raises(IntegrityError):
        opened(reference.damage(stream, {"do": "order", "blocks": order}), len(stream)).read()
