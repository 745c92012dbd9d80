"""How often and how long a commit is tried: ``commit.retry.*`` with Java's names and defaults.

Waits are drawn evenly from nothing up to a bound that doubles (full jitter), so that writers who failed together do not come
back together. Source: Java TableProperties; AWS, "Exponential backoff and jitter".

Not here: what counts as a failed try (``table.commit.protocol``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.table import TableProperties

from icelock.metadata.given import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Times in ms; ``began`` is when the commit did, on the monotonic clock."""

    retries: int
    min_wait: int
    max_wait: int
    timeout: int
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, properties: Mapping[str, str], *, retries: int = TableProperties.COMMIT_NUM_RETRIES_DEFAULT) -> RetryPolicy:
        """Read a table's properties; negative numbers count as 0. ``retries`` is the number where the table says none."""
        wanted = TableProperties
        return cls(
            retries=_number(properties, wanted.COMMIT_NUM_RETRIES, retries),
            min_wait=_number(properties, wanted.COMMIT_MIN_RETRY_WAIT_MS, wanted.COMMIT_MIN_RETRY_WAIT_MS_DEFAULT),
            max_wait=_number(properties, wanted.COMMIT_MAX_RETRY_WAIT_MS, wanted.COMMIT_MAX_RETRY_WAIT_MS_DEFAULT),
            timeout=_number(properties, wanted.COMMIT_TOTAL_RETRY_TIME_MS, wanted.COMMIT_TOTAL_RETRY_TIME_MS_DEFAULT),
        )

    def over(self) -> bool:
        """Whether the total time is used up."""
        return (time.monotonic() - self.began) * 1000 >= self.timeout

    def seconds(self, failed: int, draw: Callable[[float, float], float]) -> float:
        """Return how long to wait after ``failed`` (from 1) tries."""
        bound = min(self.max_wait, self.min_wait * 2 ** min(failed - 1, 32))
        return draw(0, bound) / 1000


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    return max(0, whole_number(properties, name, default) or 0)
