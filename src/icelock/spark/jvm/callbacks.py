"""Calls from Spark's JVM to this process, without a server here: nothing listens, so other users of the machine have nothing to call.

PySpark's own way is py4j's callback server, which PySpark starts without a token: any user of the machine can call it. Here a thread of
this process takes questions from the JVM (``take``), and threads of a pool bring the answers (``answer``), both over PySpark's gateway,
which has a token, and which this process opened. It works with and without PYSPARK_PIN_THREAD.

Questions and answers are sealed under a key that the JVM draws and wraps for this process (format: ``Callbacks.java``): py4j logs what it
sends at DEBUG, and after the JVM's end another user's program may listen at its port. Its questions do not open, and end the channel.

A target is forgotten when it is unreachable in the JVM, or its SparkContext stops. A JVM has one channel.

Not here: what is called (``spark.native.plan``, ``spark.native.equality``), errors of calls as users see them (``spark.jvm.errors``).
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakKeyDictionary

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pyspark.sql import SparkSession

Target = Callable[[bytes], bytes]

_RSA_BITS: Final = 2048
_NONCE: Final = 12
_QUESTION: Final = b"question"
_HEAD: Final = struct.Struct(">BQQ")
_CALL: Final = 1
_DONE: Final = b"\0"
_FAILED: Final = b"\1"
# Scans that are planned at once; others wait.
_THREADS: Final = 16
# Statements at once. They run queries, whose scans are planned by threads of the other pool.
_STATEMENTS: Final = 256
# Errors whose Java form has not come back yet.
_KEPT_ERRORS: Final = 32
_LOCK: Final = threading.Lock()
_logger = logging.getLogger(__name__)


class Callbacks:
    """The channel of one JVM; ``opened`` is its ``icelock.Callbacks.open``."""

    def __init__(self, opened: Callable[[bytes], Any]) -> None:
        private = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
        self._java = opened(private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        self._cipher = AESGCM(private.decrypt(bytes(self._java.key()), OAEP(mgf=MGF1(SHA256()), algorithm=SHA256(), label=None)))
        self._targets: dict[int, tuple[Target, ThreadPoolExecutor]] = {}
        self._errors: OrderedDict[int, Exception] = OrderedDict()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="icelock-callback")
        self._statements = ThreadPoolExecutor(_STATEMENTS, thread_name_prefix="icelock-statement")
        self._thread = threading.Thread(target=self._serve, name="icelock-callbacks", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    @property
    def is_open(self) -> bool:
        """Whether calls are answered."""
        return self._thread.is_alive()

    def __len__(self) -> int:
        """Return how many targets can be called."""
        return len(self._targets)

    def target(self, called: Target) -> Any:
        """Return a Java object (``icelock.Callbacks.Target``) that calls ``called``, which is kept as long."""
        return self._java.target(self._number(called, self._pool))

    def statement_target(self, called: Target) -> Any:
        """Return likewise what calls ``called``, which may itself run queries and wait for them."""
        return self._java.target(self.statement_number(called))

    def statement_number(self, called: Target) -> int:
        """Return the number of such a target, of which the JVM makes the object."""
        return self._number(called, self._statements)

    def _number(self, called: Target, pool: ThreadPoolExecutor) -> int:
        number = next(self._numbers)
        self._targets[number] = (called, pool)
        return number

    def forget(self) -> None:
        """Forget all targets: their SparkContext has stopped."""
        self._targets.clear()

    def error(self, number: int) -> Exception | None:
        """Return an error that a call raised here, by the number that the JVM has, once."""
        with self._lock:
            return self._errors.pop(number, None)

    def _serve(self) -> None:
        try:
            while (sealed := self._java.take()) is not None:
                self._receive(bytes(sealed))
        except InvalidTag:
            _logger.warning("a program that is not Spark's JVM answers at its port: calls from there are no longer answered")
        except Exception as e:
            _logger.debug("no more calls from Spark's JVM: %s", str(e).partition("\n")[0])
        finally:
            self._targets.clear()
            self._pool.shutdown(wait=False)
            self._statements.shutdown(wait=False)
            self._end()
            atexit.unregister(self._end)

    def _end(self) -> None:
        """End the JVM's threads that wait for an answer, and let ``take`` return."""
        with contextlib.suppress(Exception):
            self._java.close()

    def _receive(self, sealed: bytes) -> None:
        question = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _QUESTION)
        kind, call, target = _HEAD.unpack_from(question)
        if kind == _CALL:
            called, pool = self._targets.get(target, (_stopped, self._pool))
            pool.submit(self._answer, call, called, question[_HEAD.size :])
        else:
            self._targets.pop(target, None)

    def _answer(self, call: int, called: Target, argument: bytes) -> None:
        try:
            plain = _DONE + called(argument)
        except Exception as e:
            plain = _FAILED + self._failure(e)
        except BaseException as e:  # such as a panic of a library in Rust: the JVM waits for an answer all the same
            ended = RuntimeError(f"{type(e).__name__}: {e}")
            ended.__cause__ = e
            plain = _FAILED + self._failure(ended)
        nonce = os.urandom(_NONCE)
        try:
            self._java.answer(call, nonce + self._cipher.encrypt(nonce, plain, f"answer {call}".encode()))
        except Exception as e:
            _logger.debug("an answer did not reach Spark's JVM: %s", str(e).partition("\n")[0])

    def _failure(self, error: Exception) -> bytes:
        with self._lock:
            number = next(self._numbers)
            self._errors[number] = error
            while len(self._errors) > _KEPT_ERRORS:
                self._errors.popitem(last=False)
        texts = [text.encode(errors="replace") for text in (f"{type(error).__module__}.{type(error).__qualname__}", str(error))]
        return struct.pack(">Q", number) + b"".join(struct.pack(">I", len(text)) + text for text in texts)


def _stopped(_: bytes) -> bytes:
    raise RuntimeError("the SparkContext of this DataFrame was stopped: read the table again")


_CHANNELS: Final[WeakKeyDictionary[Any, Callbacks]] = WeakKeyDictionary()


def callbacks_of(spark: SparkSession) -> Callbacks:
    """Return the channel of a classic session's JVM, which must have icelock's classes."""
    gateway: Any = spark.sparkContext._gateway
    with _LOCK:
        found = _CHANNELS.get(gateway)
        if found is None or not found.is_open:
            found = Callbacks(gateway.jvm.icelock.Callbacks.open)
            _CHANNELS[gateway] = found
        return found


def error_of(number: int) -> Exception | None:
    """Return the error of a call, by the number that the running JVM has, once."""
    from pyspark import SparkContext

    channel = _CHANNELS.get(SparkContext._gateway)
    return None if channel is None else channel.error(number)
