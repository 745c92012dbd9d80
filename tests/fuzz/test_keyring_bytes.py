"""A keyring file is read or refused with an error of ours, whatever its bytes."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st

from icelock.errors import FormatError, IntegrityError, KmsError
from icelock.kms.keyring import KeyFileProtection, Keyring, PassphraseProtection
from icelock.kms.keyring_format import decode_keyring, encode_keyring
from icelock.secret import SecretBytes

KEY = SecretBytes(b"K" * 32)
RINGS = [
    Keyring(protection=protection)
    .added("orders", key=SecretBytes(b"m" * 32), now_ms=1)
    .rotated("orders", key=SecretBytes(b"n" * 32), now_ms=2)
    for protection in (KeyFileProtection(), PassphraseProtection(salt=b"s" * 16, iterations=1, lanes=1, memory_kib=8))
]
FILES = [encode_keyring(ring, KEY, check_nonce=b"c" * 12, nonce=b"n" * 12) for ring in RINGS]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def read(data):
    with contextlib.suppress(FormatError):
        decode_keyring(data, lambda _: KEY)


@given(st.binary(max_size=300))
def test_any_bytes(data):
    read(data)


@given(st.sampled_from(FILES), st.data())
def test_a_file_with_a_piece_replaced_is_refused(file, data):
    start = data.draw(st.integers(0, len(file)))
    end = data.draw(st.integers(start, min(len(file), start + 20)))
    changed = file[:start] + data.draw(st.binary(max_size=20)) + file[end:]
    if changed == file:
        return
    try:
        decode_keyring(changed, lambda _: KEY)
    except (FormatError, IntegrityError, KmsError):
        return
    msg = "a changed keyring was read"
    raise AssertionError(msg)


@given(st.sampled_from(FILES), st.sampled_from(["format", "version", "protection", "check", "keys", "sealed"]), JSON)
def test_a_member_with_any_other_value_is_refused(file, member, value):
    document = json.loads(file)
    if document[member] == value:
        return
    document[member] = value
    changed = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
    try:
        decode_keyring(changed, lambda _: KEY)
    except (FormatError, IntegrityError, KmsError):
        return
    msg = "a changed keyring was read"
    raise AssertionError(msg)
