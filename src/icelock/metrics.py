"""What this process did, as counters: ``icelock.metrics.snapshot()``, ``reset()``, and ``with icelock.metrics.measure() as done:``.

They count the whole process, whichever thread works. A forked process begins at zero, as a Spark task's does: what tasks wrote is counted
by the driver, when it commits. Adding takes a lock for less than a microsecond, a few times for a file or a call of the key service.

Not here: log lines and spans (``icelock.telemetry``), which hand the counters to an OpenTelemetry meter where there is one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from icelock.shown import Shown

__all__ = ["Metrics", "measure", "reset", "snapshot"]


def _count(unit: str, text: str) -> Any:
    return field(default=0, metadata={"unit": unit, "text": text})


@dataclass(slots=True, kw_only=True, repr=False)
class Metrics(Shown):
    """Counters; each is a whole number from 0 on.

    Files are those that icelock opened or wrote on storage: data files, delete files, manifests, manifest lists and metadata files. Of a
    file that was opened all stored bytes count, although a filter or fewer columns may read less.
    """

    kms_wraps: int = _count("{call}", "keys that the key service was asked to wrap")
    kms_unwraps: int = _count("{call}", "keys that the key service was asked to unwrap")
    kms_failures: int = _count("{call}", "calls of these that failed in the end")
    kms_retries: int = _count("{call}", "further attempts of these, since the service was unavailable")
    key_cache_hits: int = _count("{key}", "keys that were still in the cache of unwrapped keys")
    key_cache_misses: int = _count("{key}", "keys that were not there, and were unwrapped by the key service")
    files_planned: int = _count("{file}", "data files of plans, whoever reads them")
    bytes_planned: int = _count("By", "stored bytes of these")
    files_read: int = _count("{file}", "files that were opened")
    bytes_read: int = _count("By", "stored bytes of these")
    files_written: int = _count("{file}", "files that were written")
    bytes_written: int = _count("By", "stored bytes of these")
    commits: int = _count("{commit}", "commits that were made")
    data_files_committed: int = _count("{file}", "data files that they added, also those that Spark's tasks wrote")
    bytes_committed: int = _count("By", "stored bytes of the data and delete files that they added")
    commit_conflicts: int = _count("{commit}", "attempts that lost to another writer, or were refused by the catalog")
    commit_retries: int = _count("{commit}", "attempts that followed such a one")
    fallbacks: int = _count("{read}", "reads and plans that took the slower way")
    refusals: int = _count("{operation}", "operations that ended with an error of icelock's own")

    @property
    def kms_calls(self) -> int:
        """Keys that the key service was asked to wrap or unwrap; each may have taken several attempts (``kms_retries``)."""
        return self.kms_wraps + self.kms_unwraps


NAMES = tuple(one.name for one in fields(Metrics))
_lock = threading.Lock()
_totals = dict.fromkeys(NAMES, 0)
_reset_at = dict.fromkeys(NAMES, 0)


def add(**counts: int) -> None:
    """Add to counters, by their names; for icelock's own use."""
    with _lock:
        for name, count in counts.items():
            _totals[name] += count


def totals() -> dict[str, int]:
    """Return the counters since the process began, whatever was reset; for a meter, whose counters never go back."""
    with _lock:
        return dict(_totals)


def snapshot() -> Metrics:
    """Return the counters since the process began, or since ``reset``."""
    with _lock:
        return Metrics(**{name: _totals[name] - _reset_at[name] for name in NAMES})


def reset() -> None:
    """Let ``snapshot`` count from zero; a measurement that is going on is not changed."""
    with _lock:
        _reset_at.update(_totals)


@contextmanager
def measure() -> Iterator[Metrics]:
    """Count what the process does within a ``with`` block: the value has it when the block ends, also by an error."""
    before, done = totals(), Metrics()
    try:
        yield done
    finally:
        for name, total in totals().items():
            setattr(done, name, total - before[name])


def _forked() -> None:
    """Begin anew in a forked process, where a lock that another thread held would stay locked."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _totals.update(dict.fromkeys(NAMES, 0))
    _reset_at.update(dict.fromkeys(NAMES, 0))


os.register_at_fork(after_in_child=_forked)
