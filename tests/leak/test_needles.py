"""The search finds each form of a secret; else the tests beside it could not fail."""

from __future__ import annotations

import base64
import os

import pytest

from tests.leak.needles import Needles, forms, texts

KEY = bytes(range(200, 216))


@pytest.mark.parametrize("form", forms(KEY))
@pytest.mark.parametrize("before", range(9))
def test_each_form_is_found_at_each_offset(form: str, before: int) -> None:
    noise = os.urandom(1000)
    data = noise[: 200 + before] + forms(KEY)[form] + noise
    found = list(Needles({"other": bytes(16), "key": KEY}).find("here", data))
    assert (form in {f.form for f in found}) or forms(KEY)[form] in {forms(KEY)[f.form] for f in found}
    assert {f.secret for f in found} == {"key"}


@pytest.mark.parametrize("before", range(3))
def test_a_key_inside_of_encoded_data_is_found(before: int) -> None:
    """As key metadata in base64 would be: the key begins at the third byte."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        data = b'{"k":"' + encode(os.urandom(before + 3) + KEY + os.urandom(19)).rstrip(b"=") + b'"}'
        assert {f.secret for f in Needles({"key": KEY}).find("here", data)} == {"key"}


def test_python_text_of_bytes_is_found() -> None:
    for key in (KEY, b"0123456789012345", b"\\'\"\n\0" * 4):
        assert list(Needles({"key": key}).find("here", f"locals: dek = {b'x' + key + b'y'!r}".encode()))


def test_other_data_is_not_taken_for_a_key() -> None:
    assert not list(Needles({"key": KEY}).find("here", os.urandom(1 << 20)))
    assert not list(Needles({"key": KEY}).find("here", b""))
    assert not list(Needles({"key": KEY}).find("here", KEY[:15]))


def test_values_are_found_as_text_and_encoded() -> None:
    for data in (b"..canary-1..", base64.b64encode(b"x canary-1 y"), b"canary-1".hex().encode()):
        assert {f.secret for f in texts({"value": "canary-1"}, "here", data)} == {"value"}
