"""``commit.retry.*``: Java's names and defaults, and waits with full jitter."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_exponential

from icelock.table.commit.protocol import retries_of, retrying

QUICK = {"commit.retry.min-wait-ms": "0"}


def failed(policy: Retrying, number: int, *, seconds: float = 0.0) -> RetryCallState:
    """Return the state after a number of failed attempts."""
    state = RetryCallState(policy, None, (), {})
    state.attempt_number, state.outcome_timestamp = number, state.start_time + seconds
    return state


def counted(error: Callable[[], Exception]) -> tuple[Callable[[], None], list[int]]:
    calls: list[int] = []

    def attempt() -> None:
        calls.append(1)
        raise error()

    return attempt, calls


def test_java_s_defaults() -> None:
    assert retries_of({}) == 4
    assert retries_of({}, 20) == 20
    policy = retrying({}, 12)
    assert isinstance(policy.wait, wait_exponential)
    bounds = [wait_exponential.__call__(policy.wait, failed(policy, number)) for number in range(1, 13)]
    assert bounds == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60]
    assert not policy.stop(failed(policy, 12, seconds=1_799))
    assert policy.stop(failed(policy, 13))
    assert policy.stop(failed(policy, 1, seconds=1_801))


def test_waits_are_drawn_from_nothing_to_the_bound() -> None:
    random.seed(1)
    policy = retrying({"commit.retry.min-wait-ms": "1000"}, 4)
    drawn = [policy.wait(failed(policy, 1)) for _ in range(1000)]
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) <= 1
    assert 0.45 < sum(drawn) / 1000 < 0.55


def test_negative_numbers_count_as_0() -> None:
    properties = {f"commit.retry.{name}": "-5" for name in ("num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms")}
    assert retries_of(properties) == 0
    policy = retrying(properties, 100)
    assert policy.wait(failed(policy, 50)) == 0
    assert policy.stop(failed(policy, 1))


@pytest.mark.parametrize("retries", [0, 3])
def test_a_refused_commit_is_tried_again_and_the_last_error_is_raised_as_it_is(retries: int) -> None:
    attempt, calls = counted(lambda: CommitFailedException(f"refusal {len(calls)}"))
    with pytest.raises(CommitFailedException, match=f"refusal {retries + 1}"):
        retrying(QUICK, retries)(attempt)
    assert len(calls) == retries + 1


def test_no_attempt_begins_after_the_total_time() -> None:
    attempt, calls = counted(lambda: CommitFailedException("refused"))
    with pytest.raises(CommitFailedException):
        retrying({"commit.retry.total-timeout-ms": "0"}, 5)(attempt)
    assert len(calls) == 1


def test_other_errors_are_final_and_so_is_a_refusal_that_would_not_change() -> None:
    attempt, calls = counted(lambda: ValidationException("a conflict"))
    with pytest.raises(ValidationException, match="a conflict"):
        retrying(QUICK, 5)(attempt)
    attempt, again = counted(lambda: CommitFailedException("refused"))
    with pytest.raises(CommitFailedException, match="refused"):
        retrying(QUICK, 5, unless=lambda: len(again) == 2)(attempt)
    assert (len(calls), len(again)) == (1, 2)
