from __future__ import annotations

import pytest

from icelock.errors import KmsError, KmsErrorKind
from icelock.kms.retry import RetryingKms, RetryPolicy


class FailingKms:
    """Fails with the given kinds, one a call, then works."""

    def __init__(self, *kinds, seconds=0.0, time=None):
        self.kinds = list(kinds)
        self.calls = 0
        self.seconds = seconds
        self.time = time

    def wrap_key(self, key, wrapping_key_id):
        self.calls += 1
        if self.time is not None:
            self.time.now += self.seconds
        if self.kinds:
            msg = "throttled"
            raise KmsError(msg, kind=self.kinds.pop(0), key_id=wrapping_key_id)
        return b"blob " + key

    unwrap_key = wrap_key


class Time:
    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def retrying(inner, time, *, jitter=1.0, **policy):
    return RetryingKms(inner, RetryPolicy(**policy), clock=time.clock, sleep=time.sleep, jitter=lambda: jitter)


DOWN = KmsErrorKind.UNAVAILABLE


@pytest.mark.parametrize("method", ["wrap_key", "unwrap_key"])
def test_throttled_twice_succeeds(method):
    time, inner = Time(), FailingKms(DOWN, DOWN)
    assert getattr(retrying(inner, time), method)(b"k", "keyA") == b"blob k"
    assert inner.calls == 3
    assert time.slept == [0.1, 0.2]


def test_always_throttled_ends_in_one_clear_error():
    time, inner = Time(), FailingKms(*[DOWN] * 99)
    with pytest.raises(KmsError, match=r"throttled \(gave up after 5 calls in 1\.5 s\)") as caught:
        retrying(inner, time).wrap_key(b"k", "keyA")
    assert caught.value.kind is DOWN
    assert caught.value.key_id == "keyA"
    assert inner.calls == 5


@pytest.mark.parametrize("kind", [kind for kind in KmsErrorKind if kind is not DOWN])
def test_answers_are_not_asked_for_again(kind):
    time, inner = Time(), FailingKms(kind)
    with pytest.raises(KmsError) as caught:
        retrying(inner, time).unwrap_key(b"k", "keyA")
    assert caught.value.kind is kind
    assert (inner.calls, time.slept) == (1, [])


def test_an_answer_after_a_failure_is_final():
    time, inner = Time(), FailingKms(DOWN, KmsErrorKind.DENIED)
    with pytest.raises(KmsError) as caught:
        retrying(inner, time).wrap_key(b"k", "keyA")
    assert caught.value.kind is KmsErrorKind.DENIED
    assert inner.calls == 2


def test_other_errors_pass_through():
    class Broken(FailingKms):
        def wrap_key(self, _key, _wrapping_key_id):
            self.calls += 1
            raise ZeroDivisionError

    inner = Broken()
    with pytest.raises(ZeroDivisionError):
        retrying(inner, Time()).wrap_key(b"k", "keyA")
    assert inner.calls == 1


def test_waits_double_up_to_the_longest():
    time, inner = Time(), FailingKms(*[DOWN] * 6)
    retrying(inner, time, attempts=7, min_wait_ms=1_000, max_wait_ms=5_000, total_timeout_ms=99_000).wrap_key(b"k", "keyA")
    assert time.slept == [1, 2, 4, 5, 5, 5]


def test_half_of_a_wait_is_random():
    assert RetryPolicy().wait_seconds(1, 0.0) == 0.05
    assert RetryPolicy().wait_seconds(1, 0.5) == 0.075


def test_total_time_is_bounded_although_calls_are_slow():
    time = Time()
    inner = FailingKms(*[DOWN] * 99, seconds=4.0, time=time)
    with pytest.raises(KmsError, match=r"gave up after 3 calls in 12\.3 s"):
        retrying(inner, time, attempts=99, total_timeout_ms=12_500).wrap_key(b"k", "keyA")
    assert time.now - 1000 <= 12.5


def test_one_attempt_means_no_retry():
    time, inner = Time(), FailingKms(DOWN)
    with pytest.raises(KmsError, match=r"^throttled$"):
        retrying(inner, time, attempts=1).wrap_key(b"k", "keyA")
    assert (inner.calls, time.slept) == (1, [])


def test_a_huge_number_of_attempts_does_not_overflow():
    assert RetryPolicy(attempts=10**9).wait_seconds(10**9, 1.0) == 5.0
