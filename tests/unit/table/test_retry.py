"""``commit.retry.*``: Java's names and defaults, and waits with full jitter."""

from __future__ import annotations

import random
import time

from icelock.table.commit.retry import RetryPolicy


def upper(_: float, bound: float) -> float:
    return bound


def test_java_s_defaults() -> None:
    policy = RetryPolicy.of({})
    assert (policy.retries, policy.min_wait, policy.max_wait, policy.timeout) == (4, 100, 60_000, 1_800_000)
    assert [policy.seconds(failed, upper) for failed in range(1, 13)] == [
        0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60,
    ]  # fmt: skip
    assert not policy.over()


def test_waits_are_drawn_from_nothing_to_the_bound() -> None:
    draw = random.Random(1).uniform
    drawn = [RetryPolicy.of({"commit.retry.min-wait-ms": "1000"}).seconds(1, draw) for _ in range(1000)]
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) <= 1
    assert 0.45 < sum(drawn) / 1000 < 0.55


def test_negative_numbers_count_as_none() -> None:
    names = ("num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms")
    policy = RetryPolicy.of({f"commit.retry.{name}": "-5" for name in names})
    assert (policy.retries, policy.min_wait, policy.max_wait, policy.timeout) == (0, 0, 0, 0)
    assert policy.seconds(50, upper) == 0
    assert policy.over()


def test_the_time_is_counted_from_the_first_try() -> None:
    began = time.monotonic() - 10
    assert RetryPolicy(retries=1, min_wait=1, max_wait=1, timeout=9_000, began=began).over()
    assert not RetryPolicy(retries=1, min_wait=1, max_wait=1, timeout=3_600_000, began=began).over()
