from __future__ import annotations

import base64
import pickle

import pytest

from icelock.errors import FormatError
from icelock.keys.entropy import SystemEntropy, mint_file_key, mint_key_id
from tests.unit.keys.fakes import CountedEntropy


@pytest.mark.parametrize("length", [16, 24, 32])
def test_file_key_has_a_dek_of_that_length_and_16_bytes_of_prefix(length):
    key = mint_file_key(CountedEntropy(), length)
    assert key.dek.reveal() == bytes(length - 1) + b"\x01"
    assert key.aad_prefix == bytes(15) + b"\x02"


@pytest.mark.parametrize("length", [0, 1, 15, 17, 33])
def test_other_lengths_are_refused(length):
    with pytest.raises(FormatError):
        mint_file_key(SystemEntropy(), length)


def test_file_keys_are_never_the_same():
    keys = [mint_file_key(SystemEntropy(), 16) for _ in range(1_000)]
    assert len({key.dek for key in keys} | {key.aad_prefix for key in keys}) == 2_000


def test_key_id_is_base64_of_16_bytes_as_in_java():
    assert mint_key_id(CountedEntropy()) == "AAAAAAAAAAAAAAAAAAAAAQ=="
    assert len(base64.b64decode(mint_key_id(SystemEntropy()))) == 16


def test_system_entropy_goes_to_other_processes():
    assert len(pickle.loads(pickle.dumps(SystemEntropy())).random_bytes(7)) == 7  # noqa: S301
