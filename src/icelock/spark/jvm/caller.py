"""Whether Spark's JVM called the function that this thread runs: of ``foreachBatch``, or of a listener.

With pinned threads PySpark's callback server has no token, so any user of the machine can call such a function. ``check_callers`` lets each
begin with a check, so that another's call runs nothing of it: no thread of its own, no statement, no plain Python. ``check_caller`` asks
again before icelock sends anything to the JVM, for functions that PySpark calls elsewhere. What the check is depends on py4j's threads:

- Pinned, PySpark's default: the thread takes its caller for the JVM, and all that Python sends there, functions of tasks with the keys of
  files and settings of storage, would go to that program. Its caller has to know what Python told the JVM over a connection of its own,
  which has PySpark's token. A connection that was closed answers nothing: py4j would ask the true JVM in its place, for any caller.
- ``PYSPARK_PIN_THREAD=false``: Python sends all to the true JVM, so no answer proves anything, and a caller could name any DataFrame as
  its batch. But there the port has PySpark's token (``CallbackServerParameters.auth_token``); one without it is no JVM's.

Not here: icelock's own calls from the JVM, which need no server (``callbacks``).
"""

from __future__ import annotations

import functools
import hmac
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakSet

from icelock.errors import PolicyError
from icelock.keys.entropy import SystemEntropy

_PROVEN: Final[WeakSet[Any]] = WeakSet()
_LENGTH: Final = 32
_MARK: Final = "_icelock"
_CALLS: Final = "_call_proxy"
_OF_PY4J: Final = ("py4j.clientserver", "py4j.java_gateway")  # with pinned threads, and without
_LISTENS_TO: Final = ("onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated")


def check_callers() -> None:
    """Check who called this thread, and let functions of ``foreachBatch`` and listeners do so before they begin, from now on."""
    from pyspark.sql.streaming.listener import JStreamingQueryListener
    from pyspark.sql.utils import ForeachBatchFunction

    for kind, name in ((ForeachBatchFunction, "call"), *((JStreamingQueryListener, name) for name in _LISTENS_TO)):
        original = getattr(kind, name, None)
        if original is not None and not hasattr(original, _MARK):
            setattr(kind, name, _checked(original))
    check_caller()


def check_caller() -> None:
    """Check who called this thread, once for each connection; a program that is not Spark's JVM is a PolicyError."""
    for connection in _calls():
        if connection in _PROVEN:
            continue
        if not _is_the_jvm(connection):
            raise PolicyError(
                "this function was called by a program that is not Spark's JVM, through the port that PySpark opens for foreachBatch and "
                "listeners: nothing was done. Other users of this machine can reach that port; run the driver where there are none"
            )
        _PROVEN.add(connection)


def _checked(original: Any) -> Any:
    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        check_caller()
        return original(*arguments, **named)

    setattr(call, _MARK, True)
    return call


def _calls() -> Iterator[Any]:
    """Yield the connections whose calls this thread runs, as py4j's frames have them: its own record is lost when one is closed."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _CALLS and frame.f_globals.get("__name__") in _OF_PY4J:
            connection = frame.f_locals["self"]
            if not getattr(connection, "initiated_from_client", False):
                yield connection
        frame = frame.f_back  # type: ignore[assignment]


def _is_the_jvm(connection: Any) -> bool:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    find = getattr(getattr(gateway, "_gateway_client", None), "get_thread_connection", None)
    if find is None:
        return getattr(getattr(connection, "callback_server_parameters", None), "auth_token", None) is not None
    # After the answer as well: it came over this connection only if that is still open, as none is opened again.
    return _is_open(connection, find) and _knows_what_the_jvm_knows(gateway) and _is_open(connection, find)


def _is_open(connection: Any, find: Any) -> bool:
    return connection.socket is not None and find() is connection


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
