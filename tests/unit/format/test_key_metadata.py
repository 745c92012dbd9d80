from __future__ import annotations

import io
import pickle

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from icelock.errors import FormatError
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.secret import SecretBytes

# Key metadata of the first manifest lists of the golden tables avro_data and key32, as Java 1.12.0 wrote them.
JAVA_16 = "01 20 60854d58b6fafacdbaa9b4ff7db77ca0 02 20 2e80a2b7b32d830db34234ee0dec27a6 02 964b"
JAVA_32 = "01 40 c14cb2f0aa7f4b27775e218c6cf945a2dd4fe510d00bc490e91eafded2295032 02 20 7fa3f144eb2dd8933b69fe69d803a601 02 b84b"

SCHEMA = parse_schema(
    {
        "type": "record",
        "name": "StandardKeyMetadata",
        "fields": [
            {"name": "encryption_key", "type": "bytes"},
            {"name": "aad_prefix", "type": ["null", "bytes"], "default": None},
            {"name": "file_length", "type": ["null", "long"], "default": None},
        ],
    }
)
KEY = b"0123456789abcdef"
PREFIX = b"fedcba9876543210"


def avro(key, aad_prefix, length):
    """The bytes by another Avro implementation."""
    out = io.BytesIO(b"\x01")
    out.seek(1)
    schemaless_writer(out, SCHEMA, {"encryption_key": key, "aad_prefix": aad_prefix, "file_length": length})
    return out.getvalue()


def value(key=KEY, aad_prefix=PREFIX, length=4811):
    return KeyMetadata(dek=SecretBytes(key), aad_prefix=aad_prefix, encrypted_length=length)


@pytest.mark.parametrize(("text", "key_length", "encrypted_length"), [(JAVA_16, 16, 4811), (JAVA_32, 32, 4828)])
def test_javas_bytes_decode_and_encode_to_the_same(text, key_length, encrypted_length):
    """C-04: manifest-list lengths are those of the golden files on storage."""
    data = bytes.fromhex(text)
    decoded = KeyMetadata.decode(data)
    assert len(decoded.dek) == key_length
    assert len(decoded.aad_prefix) == 16
    assert decoded.encrypted_length == encrypted_length
    assert decoded.encode() == data


@pytest.mark.parametrize("key", [bytes(16), bytes(24), bytes(range(32))], ids=["16", "24", "32"])
@pytest.mark.parametrize("aad_prefix", [None, b"", b"\x80", PREFIX, bytes(200)], ids=["no prefix", "empty prefix", "1", "16", "200"])
@pytest.mark.parametrize("length", [None, 0, 36, 63, 64, 8191, 8192, 2**31, 2**62, 2**63 - 1])
def test_every_form_round_trips_as_another_avro_implementation_writes_it(key, aad_prefix, length):
    """C-04."""
    metadata = value(key, aad_prefix, length)
    data = metadata.encode()
    assert data == avro(key, aad_prefix, length)
    assert KeyMetadata.decode(data) == metadata
    assert schemaless_reader(io.BytesIO(data[1:]), SCHEMA, None) == {"encryption_key": key, "aad_prefix": aad_prefix, "file_length": length}


def test_the_bytes_are_those_of_the_format():
    assert value(bytes(16), None, None).encode() == bytes.fromhex("01 20 00000000000000000000000000000000 00 00")
    assert value(bytes(16), b"", 36).encode() == bytes.fromhex("01 20 00000000000000000000000000000000 02 00 02 48")


def test_key_metadata_without_length_has_37_bytes_and_with_one_of_two_varint_bytes_39():
    """J-07: the form that another implementation wrote decodes, and says that the length is not known."""
    assert len(value(length=None).encode()) == 37
    assert len(value(length=4811).encode()) == 39
    assert KeyMetadata.decode(value(length=None).encode()).encrypted_length is None


def test_no_prefix_and_an_empty_prefix_are_kept_apart():
    """C-04."""
    assert KeyMetadata.decode(value(aad_prefix=None).encode()).aad_prefix is None
    assert KeyMetadata.decode(value(aad_prefix=b"").encode()).aad_prefix == b""


def test_a_closed_file_key_has_the_length_in_its_bytes():
    """C-01."""
    file_key = FileKey(dek=SecretBytes(KEY), aad_prefix=PREFIX)
    metadata = file_key.closed(2097249)
    assert metadata == value(length=2097249)
    assert metadata.encode() == avro(KEY, PREFIX, 2097249)


WHOLE = value().encode()


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_any_cut_is_refused(length):
    with pytest.raises(FormatError):
        KeyMetadata.decode(WHOLE[:length])


KEY_FIELD = b"\x20" + KEY


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\x00" + WHOLE[1:], "version 0"),
        (b"\x02" + WHOLE[1:], "version 2"),
        (b"\xff" + WHOLE[1:], "version 255"),
        (WHOLE + b"\x00", "1 bytes are left over"),
        (WHOLE + WHOLE, "39 bytes are left over"),
        (b"\x01\x1e" + KEY[:15] + b"\x00\x00", "this one has 15"),
        (b"\x01\x22" + KEY + b"x\x00\x00", "this one has 17"),
        (b"\x01\x00\x00\x00", "this one has 0"),
        (b"\x01\x1f" + KEY + b"\x00\x00", "encryption_key claims -16 bytes"),
        (b"\x01\x01", "encryption_key claims -1 bytes"),
        (b"\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + KEY, "encryption_key claims 9223372036854775807 bytes"),
        (b"\x01" + KEY_FIELD + b"\x02\x24" + PREFIX + b"\x00", "aad_prefix claims 18 bytes, 17 are left"),
        (b"\x01" + KEY_FIELD + b"\x02\x21" + PREFIX + b"\x00", "aad_prefix claims -17 bytes"),
        (b"\x01" + KEY_FIELD + b"\x04\x00\x00", "not branch 2"),
        (b"\x01" + KEY_FIELD + b"\x01\x00\x00", "not branch -1"),
        (b"\x01" + KEY_FIELD + b"\x00\x06\x00", "not branch 3"),
        (b"\x01" + KEY_FIELD + b"\x00\x02\x01", "non-negative int64, not -1"),
        (b"\x01" + KEY_FIELD + b"\x00\x02" + b"\xff" * 9 + b"\x01", "non-negative int64, not -9223372036854775808"),
        (b"\x01" + KEY_FIELD + b"\x00\x02" + b"\xff" * 9 + b"\x02", "beyond int64"),
        (b"\x01" + KEY_FIELD + b"\x00\x02" + b"\x80" * 10 + b"\x00", "more than 10 bytes"),
    ],
)
def test_one_fault_is_named(data, message):
    with pytest.raises(FormatError) as caught:
        KeyMetadata.decode(data)
    assert message in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 15, 17, 25, 33])
def test_a_key_of_another_length_is_refused(length):
    with pytest.raises(FormatError, match=f"this one has {length}"):
        value(key=bytes(length))
    with pytest.raises(FormatError, match=f"this one has {length}"):
        FileKey(dek=SecretBytes(bytes(length)), aad_prefix=PREFIX)


@pytest.mark.parametrize("length", [-1, 2**63])
def test_a_length_that_is_no_int64_is_refused(length):
    with pytest.raises(FormatError, match="non-negative int64"):
        value(length=length)


@pytest.mark.parametrize("length", [0, 15, 17])
def test_a_new_file_has_a_prefix_of_16_bytes(length):
    with pytest.raises(FormatError, match=f"this one has {length}"):
        FileKey(dek=SecretBytes(KEY), aad_prefix=bytes(length))


def test_neither_repr_nor_pickle_shows_the_key():
    for secret in (value(), FileKey(dek=SecretBytes(KEY), aad_prefix=PREFIX)):
        assert KEY.decode() not in repr(secret)
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(secret)


def test_errors_do_not_show_the_key():
    with pytest.raises(FormatError) as caught:
        KeyMetadata.decode(WHOLE[:20])
    assert KEY.decode() not in str(caught.value)
    assert KEY.hex() not in str(caught.value)
