"""Decoders, given anything at all, return a value or raise FormatError; the reader also IntegrityError, and nothing else.

Each run draws other examples; ``ICELOCK_FUZZ=all`` draws more of them.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from icelock.errors import FormatError, IntegrityError
from icelock.format import aes_gcm, ags1
from icelock.format.encrypted_key import EncryptedKey
from icelock.format.key_metadata import KeyMetadata
from icelock.io.streams import Ags1Reader
from icelock.secret import SecretBytes
from tests.vectors.ags1 import reference

KEY = bytes(range(16))
PREFIX = bytes(range(16, 32))
ENTRY = {"key-id": "a", "encrypted-key-metadata": "YQ==", "encrypted-by-id": "b", "properties": {"KEY_TIMESTAMP": "1"}}
MORE = settings(max_examples=500 if os.environ.get("ICELOCK_FUZZ") == "all" else 150, deadline=None, derandomize=False)

sound_metadata = st.builds(
    KeyMetadata,
    dek=st.sampled_from([16, 24, 32]).flatmap(lambda n: st.binary(min_size=n, max_size=n)).map(SecretBytes),
    aad_prefix=st.none() | st.binary(max_size=40),
    encrypted_length=st.none() | st.integers(0, 2**63 - 1),
)
varints = st.integers(0, 2**70).map(lambda n: bytes([n >> shift & 0x7F | 0x80 for shift in range(0, 70, 7)][:9]) + bytes([n >> 63 & 0x7F]))
pieces = st.one_of(varints, st.binary(max_size=20), st.sampled_from([b"\x01", b"\x00", b"\x02", b"\x20" + KEY, b"\x02\x20" + PREFIX]))
nearly_metadata = st.lists(pieces, max_size=6).map(lambda parts: b"\x01" + b"".join(parts))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=8,
)


def changed(data, draw):
    """``data`` with bytes replaced, cut out or put in."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(out)))
        out[start : start + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(out)


@MORE
@given(st.binary(max_size=100) | nearly_metadata)
@example(b"")
@example(b"\x01" + b"\xff" * 200)
def test_key_metadata_decodes_or_is_a_format_error(data):
    with suppress(FormatError):
        decoded = KeyMetadata.decode(data)
        assert KeyMetadata.decode(decoded.encode()) == decoded


@MORE
@given(sound_metadata)
def test_key_metadata_round_trips(metadata):
    assert KeyMetadata.decode(metadata.encode()) == metadata


@MORE
@given(sound_metadata, st.data())
def test_damaged_key_metadata_decodes_or_is_a_format_error(metadata, data):
    with suppress(FormatError):
        KeyMetadata.decode(changed(metadata.encode(), data.draw))


@MORE
@given(sound_metadata, st.binary(min_size=1, max_size=50))
def test_key_metadata_with_more_after_it_is_a_format_error(metadata, more):
    try:
        KeyMetadata.decode(metadata.encode() + more)
    except FormatError as e:
        assert "left over" in str(e)  # noqa: PT017 - no other outcome is right, see else
    else:
        raise AssertionError(more)


@MORE
@given(json_values)
def test_any_json_is_an_encrypted_key_or_a_format_error(entry):
    with suppress(FormatError):
        EncryptedKey.from_json(entry)


@MORE
@given(st.dictionaries(st.sampled_from(list(ENTRY)), json_values), st.sets(st.sampled_from(list(ENTRY))))
def test_a_damaged_entry_is_an_encrypted_key_or_a_format_error(other, gone):
    entry = {k: v for k, v in {**ENTRY, **other}.items() if k not in gone}
    with suppress(FormatError):
        key = EncryptedKey.from_json(entry)
        assert EncryptedKey.from_json(key.to_json()) == key


@MORE
@given(st.text(max_size=30) | st.text("ABCDabcd0189+/=", max_size=12))
def test_any_text_is_base64_that_comes_back_or_a_format_error(text):
    with suppress(FormatError):
        assert EncryptedKey.from_json({**ENTRY, "encrypted-key-metadata": text}).to_json()["encrypted-key-metadata"] == text


@MORE
@given(st.binary(max_size=16) | st.binary(max_size=8).map(lambda tail: b"AGS1" + tail))
def test_any_header_is_ours_or_a_format_error(data):
    with suppress(FormatError):
        ags1.check_header(data, "f")
        assert data == b"AGS1\x00\x00\x10\x00"


@MORE
@given(st.integers())
def test_any_length_is_one_of_a_stream_or_a_format_error(length):
    for function in (ags1.plaintext_length, ags1.encrypted_length, ags1.block_count):
        with suppress(FormatError):
            assert function(length) >= 0


@MORE
@given(st.binary(max_size=40), st.binary(max_size=80), st.none() | st.binary(max_size=20))
def test_any_message_is_a_format_error_or_an_integrity_error(key, message, aad):
    with suppress(FormatError, IntegrityError):
        aes_gcm.decrypt(key, message, aad)
        raise AssertionError(message)


@MORE
@given(st.binary(max_size=200), st.none() | st.integers(0, 300) | st.integers(0, 2**63 - 1), st.booleans())
def test_any_bytes_are_a_format_error_or_an_integrity_error(data, length, with_header):
    stream = ags1.header() + data if with_header else data
    metadata = KeyMetadata(dek=SecretBytes(KEY), aad_prefix=PREFIX, encrypted_length=length)
    with suppress(FormatError, IntegrityError), Ags1Reader(io.BytesIO(stream), metadata, "f") as reader:
        reader.read()
        raise AssertionError(stream)


@MORE
@given(st.binary(max_size=100), st.data())
def test_a_damaged_stream_is_a_format_error_or_an_integrity_error(plain, data):
    sound = reference.stream(KEY, PREFIX, plain)
    damaged = changed(sound, data.draw)
    metadata = KeyMetadata(dek=SecretBytes(KEY), aad_prefix=PREFIX, encrypted_length=len(sound))
    with suppress(FormatError, IntegrityError), Ags1Reader(io.BytesIO(damaged), metadata, "f") as reader:
        assert reader.read() == plain
        assert damaged == sound
