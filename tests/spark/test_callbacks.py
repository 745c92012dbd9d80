"""Calls of Python by Spark's JVM: who may call, what is on the way, what is kept, and what becomes of errors."""

from __future__ import annotations

import base64
import gc
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key
from py4j.java_gateway import CallbackServer, CallbackServerParameters, GatewayParameters, JavaGateway, PythonProxyPool
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType
from pyspark.sql import functions as F  # noqa: N812

import icelock.spark
from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.spark.jvm.callbacks import Callbacks, callbacks_of
from tests.helpers.waiting import wait_until
from tests.spark.native_tables import create, native, optional, values
from tests.spark.other_user import as_other_user, attack, listening
from tests.spark.test_event_log import forms

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "name", StringType()))
CHANNEL_KEY = bytes(range(32))


def rows(start: int, count: int = 10) -> list[dict[str, object]]:
    return [{"id": i, "name": f"canary-{i:05d}"} for i in range(start, start + count)]


def deks(table: Any) -> list[bytes]:
    return [KeyMetadata.decode(task.key_metadata.reveal()).dek.reveal() for task in table.scan().scan_tasks()]


class Jvm:
    """The other side of the channel, as ``Callbacks.java`` says it is."""

    def __init__(self) -> None:
        self.questions: queue.Queue[bytes | None] = queue.Queue()
        self.answers: queue.Queue[tuple[int, bytes]] = queue.Queue()
        self.closed = threading.Event()
        self.wrapped = b""

    def open(self, public: bytes) -> Jvm:
        padding = OAEP(mgf=MGF1(SHA256()), algorithm=SHA256(), label=None)
        self.wrapped = load_der_public_key(public).encrypt(CHANNEL_KEY, padding)  # type: ignore[union-attr, call-arg, arg-type]
        return self

    def key(self) -> bytes:
        return self.wrapped

    def target(self, number: int) -> int:
        return number

    def take(self) -> bytes | None:
        return self.questions.get(timeout=30)

    def answer(self, call: int, sealed: bytes) -> None:
        self.answers.put((call, sealed))

    def close(self) -> None:
        self.closed.set()

    def ask(self, question: bytes, *, key: bytes = CHANNEL_KEY, label: bytes = b"question") -> None:
        self.questions.put(bytes(12) + AESGCM(key).encrypt(bytes(12), question, label))

    def answered(self, call: int, timeout: float = 10) -> bytes:
        number, sealed = self.answers.get(timeout=timeout)
        assert number == call
        return AESGCM(CHANNEL_KEY).decrypt(sealed[:12], sealed[12:], b"answer %d" % call)


def call(number: int, target: int, argument: bytes = b"") -> bytes:
    return b"\1" + number.to_bytes(8, "big") + target.to_bytes(8, "big") + argument


def test_a_question_is_answered_under_seal():
    jvm = Jvm()
    channel = Callbacks(jvm.open)
    first, second = (channel.target(lambda argument, name=name: name + argument) for name in (b"first ", b"second "))
    jvm.ask(call(7, second, b"x"))
    assert jvm.answered(7) == b"\0second x"
    jvm.ask(call(8, first, b"y"))
    assert jvm.answered(8) == b"\0first y"
    jvm.ask(b"\2" + bytes(8) + first.to_bytes(8, "big"))
    assert wait_until(lambda: len(channel) == 1)
    jvm.ask(call(9, first))
    assert b"RuntimeError" in jvm.answered(9)
    jvm.questions.put(None)
    assert jvm.closed.wait(10)


def test_errors_are_kept_for_the_user():
    jvm = Jvm()
    channel = Callbacks(jvm.open)
    raised = IntegrityError("file f does not authenticate")

    def fail(_: bytes) -> bytes:
        raise raised

    jvm.ask(call(1, channel.target(fail)))
    answer = jvm.answered(1)
    assert answer[:1] == b"\1"
    assert answer[9:] == b"\0\0\0\x1dicelock.errors.IntegrityError\0\0\0\x1cfile f does not authenticate"
    number = int.from_bytes(answer[1:9], "big")
    assert channel.error(number) is raised
    assert channel.error(number) is None
    jvm.questions.put(None)


def test_the_jvm_gets_an_answer_whatever_was_raised():
    """A panic in Rust, as in pydantic, is no Exception."""
    jvm = Jvm()
    channel = Callbacks(jvm.open)
    panic = type("PanicException", (BaseException,), {})

    def fail(_: bytes) -> bytes:
        raise panic("dictionary changed size during iteration")

    jvm.ask(call(1, channel.target(fail)))
    answer = jvm.answered(1)
    assert b"RuntimeError" in answer
    assert isinstance(channel.error(int.from_bytes(answer[1:9], "big")).__cause__, panic)
    jvm.questions.put(None)


@pytest.mark.parametrize("forged", ["in the clear", "another key", "an answer", "changed"])
def test_what_is_not_the_jvm_is_not_answered(forged, caplog):
    """After the JVM's end another program may be at its port: Python asks it what there is to do."""
    jvm = Jvm()
    channel = Callbacks(jvm.open)
    target = channel.target(lambda _: b"secret")
    if forged == "in the clear":
        jvm.questions.put(call(1, target))
    elif forged == "another key":
        jvm.ask(call(1, target), key=bytes(32))
    elif forged == "an answer":
        jvm.ask(call(1, target), label=b"answer 1")
    else:
        jvm.ask(call(1, target))
        question = bytearray(jvm.questions.get())
        question[-1] ^= 1
        jvm.questions.put(bytes(question))
    assert jvm.closed.wait(10)
    assert wait_until(lambda: not channel.is_open)
    assert len(channel) == 0
    assert jvm.answers.empty()
    assert "is not Spark's JVM" in caplog.text or forged == "in the clear"


def test_the_attack_works_on_a_server_of_py4j():
    """So that it means something that it gets nothing elsewhere."""

    class Given:
        def apply(self, _: Any) -> bytes:
            return b"raw key"

    pool = PythonProxyPool()
    pool.put(Given())
    gateway = JavaGateway(gateway_parameters=GatewayParameters(enable_memory_management=False))  # it connects to nothing
    parameters = CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True)
    server = CallbackServer(pool, gateway._gateway_client, callback_server_parameters=parameters)
    server.start()
    port = server.get_listening_port()
    assert wait_until(lambda: port in listening(os.getpid()))  # its thread listens, after start() has bound the port
    thread = threading.Thread(target=server.shutdown)
    found = as_other_user(lambda: attack([port]))
    thread.start()
    thread.join(20)
    assert b"!yj" + base64.b64encode(b"raw key") in found


@pytest.mark.spark
def test_another_user_gets_nothing(spark, spark_lake):
    before = listening(os.getpid())
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    frame = native(spark).filter("id < 15")
    assert frame.join(F.broadcast(native(spark, row_filter="id > 2")), "id").count() == 12
    assert listening(os.getpid()) == before, "the process listens"
    assert spark.sparkContext._gateway._callback_server is None
    ports = before | listening(spark._jvm.java.lang.ProcessHandle.current().pid())
    found = as_other_user(lambda: attack(ports))
    for task, dek in zip(table.scan().scan_tasks(), deks(table), strict=True):
        assert not any(form in found for form in forms(dek))
        assert task.path.rpartition("/")[2].encode() not in found
    assert base64.b64encode(b"canary")[:-1] not in found
    assert b"canary" not in found
    assert len(frame.collect()) == 15, "and what it sent did no harm"


@pytest.mark.spark
@pytest.mark.spark43
def test_py4j_logs_no_key(spark, spark_lake, caplog):
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    caplog.set_level(logging.DEBUG)
    logging.getLogger("py4j").setLevel(logging.DEBUG)
    try:
        assert native(spark).filter("id < 15").count() == 15
    finally:
        logging.getLogger("py4j").setLevel(logging.NOTSET)
    text = caplog.text.encode()
    assert b"Command to send" in text
    assert b"answer" in text
    for dek in deks(table):
        assert not any(form in text for form in forms(dek))


@pytest.mark.spark
@pytest.mark.spark43
def test_targets_go_with_their_frames(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0))
    channel = callbacks_of(spark)
    pool = spark.sparkContext._gateway.gateway_property.pool
    kept = native(spark)
    derived = native(spark).filter("id > 3").select("name")

    def settled() -> int:
        gc.collect()
        time.sleep(1.2)  # py4j tells the JVM of objects that went once a second
        spark._jvm.System.gc()
        return len(channel)

    before, proxies = settled(), len(pool)
    for _ in range(100):
        native(spark)
    assert len(pool) == proxies
    assert wait_until(lambda: settled() <= before)
    assert len(derived.collect()) == 6, "the frame that it was made of is gone, its files are not"
    assert len(kept.collect()) == 10


@pytest.mark.spark
def test_queries_of_many_threads_and_sessions(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0), rows(10))
    other = spark.newSession()
    icelock.spark.register(other, {"test": spark_lake.properties()})
    found: dict[int, Any] = {}

    def query(number: int) -> None:
        found[number] = values(native(other if number % 2 else spark).filter(f"id > {number}").select("id"))

    threads = [threading.Thread(target=query, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == {number: sorted(range(number + 1, 20), key=repr) for number in range(12)}


JOB = """
import json, sys
from pyspark.sql import functions as F
import icelock.spark
from tests.helpers.spark import session
from tests.helpers.waiting import wait_until
from tests.spark.other_user import as_other_user, play_jvm

given = json.loads(sys.stdin.read())
for turn in range(2):
    spark = session({})
    icelock.spark.register(spark, {"test": given})
    read = lambda: icelock.spark.read(spark, "test.db.t", engine="native")
    print("rows", turn, read().join(F.broadcast(read().filter("id > 12")), "id").count(), spark.sparkContext._gateway._callback_server)
    if turn == 0:
        old = read()
        spark.stop()

called, stream = [], spark.readStream.format("icelock").load("test.db.t")
query = stream.writeStream.foreachBatch(lambda batch, number: called.append([number, batch.count()])).start()
assert wait_until(lambda: bool(called))
gateway = spark.sparkContext._gateway
port, proxies = gateway._callback_server.get_listening_port(), list(gateway.gateway_property.pool.dict)
got = as_other_user(lambda: play_jvm(port, proxies))
query.stop()
print("called", len(proxies), called, got)
"""


@pytest.mark.spark
def test_without_pinned_threads_and_in_a_second_context(lake):
    create(lake, SCHEMA, rows(0), rows(10))
    import_path = os.pathsep.join([str(Path(icelock.__file__).parents[1]), *sys.path])
    job = subprocess.run(
        [sys.executable, "-c", JOB],
        input=json.dumps(lake.properties()),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYSPARK_PIN_THREAD": "false", "PYTHONPATH": import_path, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert job.returncode == 0, job.stderr[-3000:]
    assert [line for line in job.stdout.splitlines() if line.startswith("rows")] == ["rows 0 7 None", "rows 1 7 None"]
    called = [line for line in job.stdout.splitlines() if line.startswith("called")]
    assert called == ["called 1 [[0, 20]] b''"], "PySpark's port has a token there: the JVM calls its function, and nobody else"
