"""The tail of encrypted Parquet: one form is taken, by bytes written by hand from parquet.thrift and Thrift's compact protocol."""

from __future__ import annotations

import io
import re
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from icelock.errors import IntegrityError
from icelock.format.parquet_crypto import check_encrypted_footer, check_signed_footer, footer_length

UNIQUE = b"8 bytes."
PREFIX = b"AAD-PREFIX-16-B."
MODULE = bytes([40, 0, 0, 0]) + bytes(40)
# {1: {1: {2: binary(8), 3: true}}}: Arrow, parquet-java 1.16 and parquet-rs write this one for a prefix that the reader supplies.
SUPPLIED = b"\x1c\x1c\x28\x08" + UNIQUE + b"\x11\x00\x00\x00"
NO_PREFIX = {
    "supply false": b"\x1c\x1c\x28\x08" + UNIQUE + b"\x12\x00\x00\x00",
    "no supply": b"\x1c\x1c\x28\x08" + UNIQUE + b"\x00\x00\x00",
}
STORED = {
    "stored, supply false": b"\x1c\x1c\x18\x10" + PREFIX + b"\x18\x08" + UNIQUE + b"\x12\x00\x00\x00",
    "stored, no supply": b"\x1c\x1c\x18\x10" + PREFIX + b"\x18\x08" + UNIQUE + b"\x00\x00\x00",
}
KEYED = {"supplied, key metadata": SUPPLIED[:-1] + b"\x18\x03key\x00"}
TAKEN = {"supplied": SUPPLIED, **NO_PREFIX, **STORED, **KEYED}
# The same as a pattern; nothing here is of more than 127 bytes.
SIZED = b"(?:" + b"|".join(b"\\x18" + re.escape(bytes([n])) + b".{%d}" % n for n in range(128)) + b")"
FORM = re.compile(rb"\x1c\x1c(?:\x28\x08.{8}[\x11\x12]?|" + SIZED + rb"\x18\x08.{8}\x12?)\x00\x00" + SIZED + rb"?\x00", re.DOTALL)


def taken(footer: bytes) -> bool:
    try:
        check_encrypted_footer(footer, "f.parquet")
    except IntegrityError as e:
        assert "f.parquet" in str(e)  # noqa: PT017 - either outcome is right for some bytes
        return False
    return True


def of_form(footer: bytes) -> bool:
    """Whether bytes are of the form, by the pattern; the module takes all that is left."""
    for end in range(len(footer) - 3):
        if FORM.fullmatch(footer[:end]):
            length = int.from_bytes(footer[end : end + 4], "little")
            return 28 <= length == len(footer) - end - 4
    return False


@pytest.mark.parametrize("head", TAKEN.values(), ids=TAKEN)
def test_forms_that_writers_make_are_taken(head: bytes):
    assert taken(head + MODULE)
    assert of_form(head + MODULE)


def test_the_pinned_writer_makes_the_supplied_form():
    out = io.BytesIO()
    keys = pe.create_encryption_properties(footer_key=bytes(16), aad_prefix=PREFIX, store_aad_prefix=False)
    pq.write_table(pa.table({"a": [1]}), out, encryption_properties=keys)
    stored = out.getvalue()
    head = stored[len(stored) - 8 - int.from_bytes(stored[-8:-4], "little") :][:16]
    assert head == SUPPLIED.replace(UNIQUE, head[4:12])


REFUSED = {
    "CTR": (SUPPLIED.replace(b"\x1c\x1c", b"\x1c\x2c"), "names AES_GCM_CTR_V1 as its algorithm"),
    "an unknown third algorithm": (SUPPLIED.replace(b"\x1c\x1c", b"\x1c\x3c"), "unknown algorithm"),
    "no algorithm": (b"\x1c\x00\x00", "unknown algorithm"),
    "nothing": (b"\x00", "does not begin with the algorithm"),
    "another field first": (b"\x18\x01k" + SUPPLIED, "does not begin with the algorithm"),
    "GCM, then CTR": (SUPPLIED[:-2] + b"\x1c\x28\x08" + UNIQUE + b"\x11\x00\x00\x00", "second algorithm"),
    "CTR, then GCM by a long header": (b"\x1c\x2c\x00\x0c\x02" + SUPPLIED[2:], "AES_GCM_CTR_V1"),
    "key metadata of another type": (SUPPLIED[:-1] + b"\x15\x02\x00", "more than algorithm and key metadata"),
    "key metadata twice": (SUPPLIED[:-1] + b"\x18\x03key\x18\x03key\x00", "more than algorithm and key metadata"),
    "an unknown field": (SUPPLIED[:-1] + b"\x25\x02\x00", "more than algorithm and key metadata"),
    "an unknown field of the algorithm": (SUPPLIED[:-3] + b"\x15\x02\x00\x00\x00", "unknown field"),
    "unique of another type": (b"\x1c\x1c\x25\x08\x11\x00\x00\x00", "unknown field"),
    "supply of another type": (b"\x1c\x1c\x28\x08" + UNIQUE + b"\x15\x01\x00\x00\x00", "unknown field"),
    "no unique": (b"\x1c\x1c\x31\x00\x00\x00", "aad_file_unique has 0 bytes"),
    "a short unique": (b"\x1c\x1c\x28\x07" + UNIQUE[:7] + b"\x11\x00\x00\x00", "aad_file_unique has 7 bytes"),
    "a length past the end": (b"\x1c\x1c\x28\xff\xff\xff\xff\x0f" + UNIQUE, "ends where"),
    "a number of endless bytes": (b"\x1c\x1c\x28" + b"\xff" * 40, "more than 10 bytes"),
    "a number in more bytes than needed": (SUPPLIED.replace(b"\x28\x08", b"\x28\x88\x00"), "longer than necessary"),
    "a field header in its long form": (SUPPLIED.replace(b"\x28\x08", b"\x08\x04\x08"), "no writer begins"),
    "a stop with a number": (SUPPLIED[:-1] + b"\x10", "no writer begins"),
    "stored and supplied": (b"\x1c\x1c\x18\x10" + PREFIX + b"\x18\x08" + UNIQUE + b"\x11\x00\x00\x00", "both stored and supplied"),
    "bytes before the footer": (SUPPLIED + b"\x00", "encrypted footer claims"),
}


@pytest.mark.parametrize(("head", "message"), REFUSED.values(), ids=REFUSED)
def test_other_forms_are_refused_with_what_they_are(head: bytes, message: str):
    with pytest.raises(IntegrityError, match=rf"f\.parquet failed authentication at its end: .*{re.escape(message)}.*AES_GCM_V1"):
        check_encrypted_footer(head + MODULE, "f.parquet")
    assert not of_form(head + MODULE)


@pytest.mark.parametrize("module", [b"", b"\x28\x00\x00", MODULE[:-1], MODULE + b"\x00", b"\x1b\x00\x00\x00" + bytes(27), b"\xff" * 44])
def test_an_encrypted_footer_fills_the_rest(module: bytes):
    with pytest.raises(IntegrityError, match=r"f\.parquet"):
        check_encrypted_footer(SUPPLIED + module, "f.parquet")


@pytest.mark.parametrize("head", TAKEN.values(), ids=TAKEN)
def test_each_value_of_each_byte_is_taken_as_the_form_says(head: bytes):
    whole = head + MODULE
    free = 0
    for position in range(len(head) + 4):
        for value in range(256):
            changed = whole[:position] + bytes([value]) + whole[position + 1 :]
            assert taken(changed) == of_form(changed), (position, value)
            free += changed != whole and taken(changed)
    # The unique, a stored prefix and key metadata are free, and of supply, where there is one, the other value if no prefix is stored.
    flags = int(head[12:13] in (b"\x11", b"\x12") and PREFIX not in head)
    assert free == 255 * (8 + len(PREFIX) * (PREFIX in head) + 3 * (b"key" in head)) + flags


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(sorted(TAKEN.values())), st.data())
def test_what_is_cut_put_in_or_exchanged_is_taken_as_the_form_says(head: bytes, data: st.DataObject):
    out = bytearray(head + MODULE)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(head) + 4))
        out[start : start + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\x00", b"\x1c", b"\x2c", head])
        )
    assert taken(bytes(out)) == of_form(bytes(out))


anything = st.binary(max_size=80) | st.lists(
    st.sampled_from([b"\x1c", b"\x2c", b"\x18", b"\x19", b"\x1b", b"\xff", b"\x00", b"\x08", b"\x99\xfc", UNIQUE, SUPPLIED]), max_size=40
).map(b"".join)


@settings(max_examples=1000, deadline=None)
@given(anything)
@example(b"\x1c" * 5000)
@example(b"\x19" * 5000)
@example(b"\x19\xf0\xff\xff\xff\xff\x0f")
@example(b"\x1b\xff\xff\xff\xff\x0f\x55")
def test_any_bytes_are_taken_or_an_integrity_error(data: bytes):
    with suppress(IntegrityError):
        check_encrypted_footer(data, "f.parquet")
    with suppress(IntegrityError):
        check_signed_footer(data, "f.parquet")


def signed(algorithm: str, **options: object) -> bytes:
    out = io.BytesIO()
    nested = pa.table({"a": [1, 2], "l": [[{"x": 1.5, "m": [("k", b"v")]}], []]}, pa.schema([("a", pa.int64()), ("l", NESTED)], {"k": "v"}))
    keys = pe.create_encryption_properties(footer_key=bytes(16), plaintext_footer=True, encryption_algorithm=algorithm, **options)
    pq.write_table(nested, out, encryption_properties=keys)
    stored = out.getvalue()
    assert stored[-4:] == b"PAR1"
    return stored[len(stored) - 8 - int.from_bytes(stored[-8:-4], "little") : -8]


NESTED = pa.list_(pa.struct([("x", pa.float64()), ("m", pa.map_(pa.string(), pa.binary()))]))


@pytest.mark.parametrize(
    "options", [{}, {"aad_prefix": PREFIX, "store_aad_prefix": True}, {"aad_prefix": PREFIX, "store_aad_prefix": False}]
)
def test_a_signed_footer_names_its_algorithm_inside(options: dict[str, object]):
    check_signed_footer(signed("AES_GCM_V1", **options), "f.parquet")
    with pytest.raises(IntegrityError, match=r"f\.parquet .*names AES_GCM_CTR_V1"):
        check_signed_footer(signed("AES_GCM_CTR_V1", **options), "f.parquet")


def test_a_signed_footer_has_one_signature_and_nothing_else():
    footer = signed("AES_GCM_V1")
    for changed in (footer + b"\x00", footer[:-1], footer[:-28]):
        with pytest.raises(IntegrityError, match=r"f\.parquet .*bytes of signature"):
            check_signed_footer(changed, "f.parquet")


def test_a_plain_footer_names_none():
    """{1: i32 1, 2: list of no structs, 3: i64 0, 4: the same list}: the required fields of FileMetaData."""
    check_signed_footer(b"\x15\x02\x19\x0c\x16\x00\x19\x0c\x00", "f.parquet")


def test_the_length_of_a_footer_is_inside_the_file():
    for magic in (b"PARE", b"PAR1"):
        assert footer_length(b"\x10\x00\x00\x00" + magic, 28, "f.parquet") == 16
        with pytest.raises(IntegrityError, match=r"f\.parquet .*claims 16 bytes, there are 15"):
            footer_length(b"\x10\x00\x00\x00" + magic, 27, "f.parquet")
        with pytest.raises(IntegrityError, match=r"claims 4294967295 bytes"):
            footer_length(b"\xff\xff\xff\xff" + magic, 1000, "f.parquet")
    for end in (b"", b"\x10\x00\x00\x00PAR2", b"PARE"):
        with pytest.raises(IntegrityError, match=r"f\.parquet .*ends with"):
            footer_length(end, 28, "f.parquet")
