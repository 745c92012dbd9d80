"""``RetryingKms``: the one retry policy, around any KMS client.

Only ``KmsErrorKind.UNAVAILABLE`` is retried (throttling, timeouts, dropped connections); the four other kinds are answers,
which do not change (cases C-33, C-39). Waits double from ``min_wait_ms`` up to ``max_wait_ms``, and half of each is random,
so that many readers do not come back together. No wait is begun that would end after ``total_timeout_ms``.

``call_timeout_ms`` bounds one call that hangs. Clients use it and turn their library's own retries off, so that
all services behave alike: at most ``total_timeout_ms`` plus one call's timeout.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, Final, NoReturn, Self, cast

from tenacity import Future, RetryCallState, Retrying, retry_if_exception

from icelock import metrics, telemetry
from icelock.errors import KmsError, KmsErrorKind, PolicyError
from icelock.kms.client import KmsClient
from icelock.properties import KMS_RETRY_PREFIX

ATTEMPTS: Final = f"{KMS_RETRY_PREFIX}attempts"
MIN_WAIT_MS: Final = f"{KMS_RETRY_PREFIX}min-wait-ms"
MAX_WAIT_MS: Final = f"{KMS_RETRY_PREFIX}max-wait-ms"
TOTAL_TIMEOUT_MS: Final = f"{KMS_RETRY_PREFIX}total-timeout-ms"
CALL_TIMEOUT_MS: Final = f"{KMS_RETRY_PREFIX}call-timeout-ms"
RETRY_PROPERTIES: Final = (ATTEMPTS, MIN_WAIT_MS, MAX_WAIT_MS, TOTAL_TIMEOUT_MS, CALL_TIMEOUT_MS)

ATTEMPTS_MADE: Final[ContextVar[int]] = ContextVar("attempts", default=1)
"""Attempts of this thread's last call, for who tells of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long an unavailable KMS is called again.

    Attributes:
        attempts: calls in all; 1 means no retry.
        min_wait_ms: longest first wait; each further one is twice as long.
        max_wait_ms: longest wait.
        total_timeout_ms: bound from the first call to the start of the last.
        call_timeout_ms: how long a call waits for the connection, and then for the answer.

    Raises:
        PolicyError: no attempt, a negative time, no time for a call, or a shortest wait above the longest.
    """

    attempts: int = 5
    min_wait_ms: int = 100
    max_wait_ms: int = 5_000
    total_timeout_ms: int = 30_000
    call_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise PolicyError(f"{ATTEMPTS} is {self.attempts}; it must be 1 or more")
        for name, value in ((MIN_WAIT_MS, self.min_wait_ms), (MAX_WAIT_MS, self.max_wait_ms), (TOTAL_TIMEOUT_MS, self.total_timeout_ms)):
            if value < 0:
                raise PolicyError(f"{name} is {value}; it must be 0 or more (milliseconds)")
        if self.call_timeout_ms < 1:
            raise PolicyError(f"{CALL_TIMEOUT_MS} is {self.call_timeout_ms}; it must be 1 or more (milliseconds)")
        if self.min_wait_ms > self.max_wait_ms:
            raise PolicyError(
                f"{MIN_WAIT_MS} is {self.min_wait_ms}, above {MAX_WAIT_MS} = {self.max_wait_ms}; lower one or raise the other"
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Read ``kms.retry.*``; what is not set keeps its default.

        Raises:
            PolicyError: a value that is not a whole number, or out of range.
        """
        given: dict[str, int] = {}
        for field in fields(cls):
            name = KMS_RETRY_PREFIX + field.name.replace("_", "-")
            if name in properties:
                given[field.name] = _whole_number(name, properties[name])
        return cls(**given)

    @property
    def call_timeout_seconds(self) -> float:
        """The bound on one call, for a client's library."""
        return self.call_timeout_ms / 1_000

    def wait_seconds(self, failures: int, jitter: float) -> float:
        """Return the wait after the given number of failed calls (1 or more); ``jitter`` is in [0, 1)."""
        longest = min(self.max_wait_ms, self.min_wait_ms << min(failures - 1, 62))
        return longest * (1 + jitter) / 2_000


class RetryingKms:
    """A ``KmsClient`` that calls another one, and calls it again while it is unavailable.

    Args:
        inner: the client.
        policy: how often and how long.
        clock: monotonic seconds.
        sleep: waits that many seconds.
        jitter: a number in [0, 1).
    """

    def __init__(
        self,
        inner: KmsClient,
        policy: RetryPolicy | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self._policy = policy if policy is not None else RetryPolicy()
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter

    @property
    def inner(self) -> KmsClient:
        """The client that is called."""
        return self._inner

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Call the inner client (see ``KmsClient.wrap_key``)."""
        return self._call(lambda: self._inner.wrap_key(key, wrapping_key_id))

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Call the inner client (see ``KmsClient.unwrap_key``)."""
        return self._call(lambda: self._inner.unwrap_key(wrapped_key, wrapping_key_id))

    def _call(self, call: Callable[[], bytes]) -> bytes:
        start = self._clock()

        def is_over(state: RetryCallState) -> bool:
            late = (self._clock() - start + state.upcoming_sleep) * 1_000 > self._policy.total_timeout_ms
            return late or state.attempt_number >= self._policy.attempts

        def give_up(state: RetryCallState) -> NoReturn:
            error, spent = cast("Future", state.outcome).exception(), self._clock() - start
            if not isinstance(error, KmsError) or state.attempt_number == 1:
                raise cast("BaseException", error)
            raise KmsError(
                f"{error} (gave up after {state.attempt_number} calls in {spent:.1f} s)", kind=error.kind, key_id=error.key_id
            ) from error

        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, KmsError) and error.kind is KmsErrorKind.UNAVAILABLE),
            wait=lambda state: self._policy.wait_seconds(state.attempt_number, self._jitter()),
            stop=is_over,
            retry_error_callback=give_up,
            before_sleep=self._tell_retry,
            sleep=self._sleep,
        )
        return retrying(call)

    def _tell_retry(self, state: RetryCallState) -> None:
        metrics.add(kms_retries=1)
        ATTEMPTS_MADE.set(state.attempt_number + 1)
        error = cast("Future", state.outcome).exception()
        telemetry.event(
            "kms",
            logging.WARNING,
            "kms-retry",
            provider=type(self._inner).__name__,
            key_id=getattr(error, "key_id", None),
            attempt=state.attempt_number,
            wait_ms=round(state.upcoming_sleep * 1_000, 1),
            outcome=KmsErrorKind.UNAVAILABLE.name.lower(),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r}, {self._policy!r})"


def _whole_number(name: str, value: Any) -> int:
    try:
        return int(str(value))
    except ValueError as e:
        raise PolicyError(f"{name} is {value!r}; it must be a whole number") from e
