"""Ctrl-C while a statement runs: its jobs are cancelled, and it commits nothing more.

A statement of SQL waits in the JVM, and threads of this process work for it. The main thread's KeyboardInterrupt reaches neither: PySpark's
own handler asks the JVM to cancel over the connection that the statement waits on, which fails. So a thread cancels (``watch``), over a
connection of its own, and what works for a statement looks before it commits whether there was an interrupt since it began (``begin``,
``check``). A notebook that puts its own handler in this one's place interrupts Python alone, as with any Spark job.

Not here: what a failed job leaves (``spark.driver.unreached``).
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from types import FrameType
from typing import Any, Final

from pyspark.sql import SparkSession

from icelock.errors import CommitError

_MARK: Final = "_icelock"
_WORK: Final = threading.local()
_COUNT: Final = itertools.count(1)
_last = 0


def watch(spark: SparkSession) -> None:
    """Let Ctrl-C stop statements of a classic session. Calling it again, or from another thread than the main one, changes nothing."""
    before: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before) or hasattr(before, _MARK):
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        global _last  # noqa: PLW0603 - the state of the process
        _last = next(_COUNT)
        threading.Thread(target=_cancel, args=(spark,), name="icelock-cancel", daemon=True).start()
        before(number, frame)

    setattr(interrupted, _MARK, True)
    signal.signal(signal.SIGINT, interrupted)


def _cancel(spark: SparkSession) -> None:
    with contextlib.suppress(Exception):  # the JVM may have ended
        spark.sparkContext.cancelAllJobs()


def begin() -> None:
    """Note that this thread begins to work for a statement."""
    _WORK.began = _last


def check() -> None:
    """Check that there was no interrupt since this thread's statement began; else it is a CommitError."""
    if getattr(_WORK, "began", _last) != _last:
        raise CommitError("the statement was interrupted: nothing is committed")
