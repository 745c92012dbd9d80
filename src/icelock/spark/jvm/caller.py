"""Whether Spark's JVM called the function that this thread runs: of ``foreachBatch``, or of a listener.

PySpark's callback server has no token, so any user of the machine can call such a function. With pinned threads, PySpark's default, the
thread then takes its caller for the JVM: all that Python sends there, functions of tasks with the keys of files and settings of storage,
would go to that program. So before icelock does anything in such a thread, its caller has to know what Python told the JVM over a
connection of its own, which has PySpark's token.

Not here: icelock's own calls from the JVM, which need no server (``callbacks``).
"""

from __future__ import annotations

import hmac
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakSet

from icelock.errors import PolicyError
from icelock.keys.entropy import SystemEntropy

_PROVEN: Final[WeakSet[Any]] = WeakSet()
_LENGTH: Final = 32


def check_caller() -> None:
    """Check who called this thread, once for each connection; a program that is not Spark's JVM is a PolicyError."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    find = getattr(getattr(gateway, "_gateway_client", None), "get_thread_connection", None)
    connection = None if find is None else find()
    if connection is None or connection.initiated_from_client or connection in _PROVEN:
        return
    if not _knows_what_the_jvm_knows(gateway):
        raise PolicyError(
            "this function was called by a program that is not Spark's JVM, through the port that PySpark opens for foreachBatch and "
            "listeners: nothing was done. Other users of this machine can reach that port; run the driver where there are none"
        )
    _PROVEN.add(connection)


def _knows_what_the_jvm_knows(gateway: Any) -> bool:
    name, secret = (SystemEntropy().random_bytes(_LENGTH).hex() for _ in range(2))
    with ThreadPoolExecutor(1, thread_name_prefix="icelock-caller") as other:  # a thread with a connection of its own
        other.submit(lambda: gateway.jvm.java.lang.System.setProperty(name, secret)).result()
        try:
            return hmac.compare_digest(str(gateway.jvm.java.lang.System.getProperty(name)), secret)
        except Exception:
            return False
        finally:
            other.submit(lambda: gateway.jvm.java.lang.System.clearProperty(name)).result()
