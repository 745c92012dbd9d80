from __future__ import annotations

import traceback

import pytest

from icelock.errors import FormatError, KeyUnavailableError, KmsError, KmsErrorKind
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.kek import KEK_LIFESPAN_MS, created_ms, is_live, mint_kek, unwrap_kek
from tests.unit.keys.fakes import NOW_MS, CountedEntropy, CountingKms


def kek(timestamp):
    properties = {} if timestamp is None else {"KEY_TIMESTAMP": timestamp}
    return EncryptedKey(key_id="kek", encrypted_key_metadata=b"blob", encrypted_by_id="keyA", properties=properties)


def test_lifespan_is_730_days():
    assert KEK_LIFESPAN_MS == 63_072_000_000


@pytest.mark.parametrize(
    ("age", "live"),
    [
        (0, True),
        (-1, True),
        (-300_000, True),
        (-300_001, False),
        (-(10**12), False),
        (KEK_LIFESPAN_MS - 1, True),
        (KEK_LIFESPAN_MS, False),
        (10**15, False),
    ],
)
def test_kek_is_live_for_less_than_730_days_and_not_more_than_five_minutes_ahead_of_its_time(age, live):
    assert is_live(kek(str(NOW_MS)), NOW_MS + age) is live


def test_kek_without_timestamp_is_unavailable():
    with pytest.raises(KeyUnavailableError, match="'kek' has no KEY_TIMESTAMP"):
        created_ms(kek(None))


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "1_000", "\u0661", "soon", "9" * 20, str(2**63), "9" * 5_000, "\ud800"])
def test_timestamp_that_is_no_decimal_number_is_refused(text):
    with pytest.raises(FormatError, match="'kek': expected KEY_TIMESTAMP in decimal"):
        created_ms(kek(text))


@pytest.mark.parametrize("length", [16, 24, 32])
def test_minting_sends_the_raw_kek_to_the_kms_and_tries_it_once(length):
    kms = CountingKms(limit=32)
    entry, key = mint_kek(CountedEntropy(), length, kms=kms, master_key_id="keyA", now_ms=NOW_MS)
    assert kms.wrapped == [key.reveal()]
    assert kms.calls == {"wrap": 1, "unwrap": 1}
    assert len(key) == length
    assert entry.encrypted_by_id == "keyA"
    assert entry.properties == {"KEY_TIMESTAMP": "1800000000000"}
    assert unwrap_kek(entry, kms=kms) == key


class ReturningKms:
    def __init__(self, answer):
        self.answer = answer

    def wrap_key(self, key, _wrapping_key_id):
        return self.answer(key) if callable(self.answer) else self.answer

    def unwrap_key(self, wrapped_key, wrapping_key_id):
        return self.wrap_key(wrapped_key, wrapping_key_id)


@pytest.mark.parametrize("answer", [None, "text", b"", 7])
def test_client_that_returns_no_bytes_is_refused(answer):
    kms = ReturningKms(answer)
    with pytest.raises(KeyUnavailableError, match="ReturningKms did not wrap"):
        mint_kek(CountedEntropy(), 16, kms=kms, master_key_id="keyA", now_ms=0)
    with pytest.raises(KeyUnavailableError, match="ReturningKms did not unwrap"):
        unwrap_kek(kek("1"), kms=kms)


@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: b"v1:" + key + b"!"], ids=["itself", "packed"])
def test_client_that_does_not_encrypt_is_refused(wrap):
    with pytest.raises(KeyUnavailableError, match="returned the key itself"):
        mint_kek(CountedEntropy(), 16, kms=ReturningKms(wrap), master_key_id="keyA", now_ms=0)


@pytest.mark.parametrize("other", [bytes(16), bytes(15) + b"\x02", bytes(24)], ids=["another", "one bit", "longer"])
def test_a_kek_that_does_not_come_back_as_it_was_is_refused(other):
    class LosingKms(CountingKms):
        def unwrap_key(self, wrapped_key, wrapping_key_id):
            assert super().unwrap_key(wrapped_key, wrapping_key_id) == bytes(15) + b"\x01"
            return other

    kms = LosingKms()
    with pytest.raises(KeyUnavailableError, match=r"LosingKms wrapped a new key with master key 'keyA' and unwrapped it to another"):
        mint_kek(CountedEntropy(), 16, kms=kms, master_key_id="keyA", now_ms=NOW_MS)
    assert kms.calls == {"wrap": 1, "unwrap": 1}


@pytest.mark.parametrize("length", [1, 15, 17, 33])
def test_unwrapped_key_of_another_length_is_refused(length):
    with pytest.raises(KeyUnavailableError, match=f"expected 16, 24 or 32 bytes from the KMS, got {length}"):
        unwrap_kek(kek("1"), kms=ReturningKms(bytes(length)))


def test_bytearray_of_a_client_is_taken():
    assert unwrap_kek(kek("1"), kms=ReturningKms(bytearray(16))).reveal() == bytes(16)


def test_errors_of_the_kms_pass_through():
    with pytest.raises(KmsError) as caught:
        unwrap_kek(kek("1"), kms=CountingKms(deny={"unwrap"}))
    assert caught.value.kind is KmsErrorKind.DENIED


def test_foreign_errors_are_chained_and_their_text_kept_back():
    def fail(_key):
        msg = "token s3cr3t was refused"
        raise RuntimeError(msg)

    with pytest.raises(KeyUnavailableError, match="ReturningKms failed to unwrap with master key 'keyA': RuntimeError") as caught:
        unwrap_kek(kek("1"), kms=ReturningKms(fail))
    assert "s3cr3t" not in str(caught.value)
    assert "s3cr3t" in "".join(traceback.format_exception(caught.value))
