"""What lies on a local disk in the place of a data file or beside it: the native scan opens regular files, and no checksums."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import FormatError, IntegrityError, KeyUnavailableError
from icelock.table.read.scan import DataScan
from tests.helpers.second_spark import on_second
from tests.spark.native_tables import TABLE, create, native, optional

pytestmark = pytest.mark.spark

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "name", StringType()))
COLUMNS = {"id": pa.int64(), "name": pa.string()}
PATIENCE = 120.0


def rows(start: int, count: int = 10) -> list[dict[str, object]]:
    return [{"id": i, "name": f"name-{i:05d}"} for i in range(start, start + count)]


def path_of(task: Any) -> Path:
    return Path(task.path.removeprefix("file://").removeprefix("file:"))


@pytest.fixture
def file(spark_lake) -> Path:
    """The first of a table's two data files."""
    return path_of(create(spark_lake, SCHEMA, rows(0), rows(10)).scan().scan_tasks()[0])


@pytest.fixture
def patience(file) -> Iterator[None]:
    """Let who waits for a writer of a pipe go on after a while: the test fails, and does not wait for good."""

    def release() -> None:
        for path in (file, checksums_of(file), file.with_name("pipe")):
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                continue
        again.append(threading.Timer(1, release))
        again[-1].start()

    again = [threading.Timer(PATIENCE, release)]
    again[0].start()
    yield
    again[-1].cancel()
    assert len(again) == 1, "a task waited"


def checksums_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def socket_at(path: Path) -> None:
    # A socket's name has 108 bytes at most.
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


def link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


IN_ITS_PLACE: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "pipe": (os.mkfifo, FormatError, "is a named pipe, expected a file"),
    "directory": (Path.mkdir, FormatError, "is a directory, expected a file"),
    "socket": (socket_at, FormatError, "is a socket, expected a file"),
    "link to a pipe": (link_to_a_pipe, FormatError, "is a named pipe, expected a file"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), FormatError, "is a device, expected a file"),
    "link to itself": (lambda path: path.symlink_to(path), OSError, "could not be read"),
    "link to nothing": (lambda path: path.symlink_to("nothing"), FileNotFoundError, "is not there"),
}


@pytest.mark.turns(3)
@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("kind", on_second(IN_ITS_PLACE, "pipe"))
def test_what_is_no_file_is_not_opened(spark, file, kind):
    put, error, said = IN_ITS_PLACE[kind]
    frame = native(spark)
    file.unlink()
    put(file)
    for query in (frame, frame.filter("id >= 0").groupBy("name").count()):
        with pytest.raises(error, match=rf"{file.name} {said}") as caught:
            query.collect()
        assert isinstance(caught.value, PySparkException)
    if kind == "pipe":
        with pytest.raises(error, match=rf"{file.name} {said}"):
            icelock.spark.read(spark, TABLE, engine="python").collect()


BESIDE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "nothing in it": Path.touch,
    "no checksums": lambda path: path.write_bytes(b"x" * 100),
    "of another file": lambda path: path.write_bytes(b"crc\0\0\0\x02\0\x12\x34\x56\x78" + bytes(64)),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("kind", on_second(BESIDE, "of another file"))
def test_checksums_beside_a_file_are_not_read(spark, file, kind):
    BESIDE[kind](checksums_of(file))
    assert sorted(row.id for row in native(spark).collect()) == list(range(20))
    assert native(spark).filter("id = 3").count() == 1


@pytest.mark.spark43
def test_settings_of_the_session_do_not_bring_them_back(spark, file):
    """Hadoop keeps file systems that it made, and may be told which class to make."""
    checksums_of(file).write_bytes(b"crc\0\0\0\x02\0" + bytes(64))
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    spark.conf.set("spark.hadoop.fs.file.impl.disable.cache", "false")
    try:
        with pytest.raises((PySparkException, Py4JError)):
            spark.read.text(file.as_uri()).collect()
        assert len(native(spark).collect()) == 20
    finally:
        hadoop.unset("fs.file.impl")
        spark.conf.unset("spark.hadoop.fs.file.impl.disable.cache")


def test_delete_files_are_looked_at_too(spark, spark_lake):
    """Deleted positions are read by the driver's Python."""
    table = create(spark_lake, SCHEMA, rows(0), properties={"write.delete.mode": "merge-on-read"})
    table.delete("id = 3")
    deletes = spark_lake.catalog().load_table("db.t").scan().scan_tasks()[0].deletes
    frame = native(spark)
    path_of(deletes[0]).unlink()
    os.mkfifo(path_of(deletes[0]))
    with pytest.raises(FormatError, match="is a named pipe"):
        frame.collect()


def test_files_that_shrink_or_grow_after_planning(spark, file):
    stored = file.read_bytes()
    frame = native(spark)
    for content in (stored[:-1], stored[:40], b"", stored + b"x", stored + stored):
        file.write_bytes(content)
        with pytest.raises(IntegrityError, match=file.name):
            frame.collect()
    file.write_bytes(stored)
    assert len(frame.collect()) == 20


def test_no_checksums_are_written(spark, spark_lake):
    create(spark_lake, SCHEMA)
    frame = spark.range(300).selectExpr("id", "string(id) name")
    icelock.spark.write_to(frame.repartition(2), TABLE).append()
    frame.write.format("icelock").mode("append").save(TABLE)
    names = [path.name for path in Path(spark_lake.warehouse).rglob("*") if path.is_file()]
    assert any(name.endswith(".parquet") for name in names)
    assert [name for name in names if name.endswith(".crc")] == []


CAUSES = {
    "java.nio.file.AccessDeniedException": PermissionError,
    "org.apache.hadoop.security.AccessControlException": PermissionError,
    "java.nio.file.NoSuchFileException": FileNotFoundError,
    "java.net.SocketTimeoutException": OSError,
    "java.net.ConnectException": OSError,
    "java.nio.file.FileSystemException": OSError,
    "org.apache.hadoop.fs.FSError": None,
    "java.io.InterruptedIOException": None,
    "org.apache.spark.SparkRuntimeException": None,
}


@pytest.mark.parametrize("encrypted", [pytest.param(True, marks=pytest.mark.spark43), False])
def test_what_errors_of_storage_become(spark, spark_lake, encrypted):
    """Of storages that are not at hand here, and of users that this one may not become."""
    create(spark_lake, SCHEMA)
    native(spark)
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    load = jvm.Thread.currentThread().getContextClassLoader().loadClass
    of = next(method for method in load("icelock.ReadErrors").getDeclaredMethods() if method.getName() == "of")
    of.setAccessible(True)
    for name, kind in CAUSES.items():
        if name.endswith("SparkRuntimeException"):
            cause = jvm.java.lang.IllegalStateException("s3a://b/f: why")
        elif name.endswith("FSError"):
            cause = jvm.java.lang.OutOfMemoryError("s3a://b/f: why")
        else:
            cause = getattr(jvm, name)("s3a://b/f: why")
        outer = jvm.java.lang.RuntimeException("outer", cause)
        arguments = gateway.new_array(jvm.Object, 4)
        arguments[0], arguments[1], arguments[2] = outer, "s3a://b/file.parquet", encrypted
        found = of.invoke(None, arguments)
        if kind is None:
            assert found.equals(outer), name
        else:
            assert (found.getClass().getName(), found.kind()) == ("icelock.Failure", f"builtins.{kind.__name__}"), name
            assert found.getMessage().startswith("s3a://b/file.parquet "), name


def test_plain_files(spark, spark_lake, file, monkeypatch):
    """As in plain Python: one that is damaged is a FormatError, one that is encrypted lacks a key."""
    real = DataScan.scan_tasks
    monkeypatch.setattr(DataScan, "scan_tasks", lambda self: [replace(task, key_metadata=None) for task in real(self)])
    icelock.spark.register(spark, {"test": {**spark_lake.properties(), "icelock.plaintext-files": "allow-unkeyed"}})
    encrypted = file.read_bytes()
    for path in file.parent.glob("*.parquet"):
        pq.write_table(plain_rows(), path)
    stored = file.read_bytes()
    frame = native(spark)
    assert len(frame.collect()) == 20
    for content in (stored[:-100], b"PAR1" + bytes(100), b"", stored + b"x"):
        file.write_bytes(content)
        with pytest.raises(FormatError, match=rf"{file.name} is a damaged plain Parquet file"):
            frame.collect()
    file.write_bytes(encrypted)
    with pytest.raises(KeyUnavailableError, match=file.name):
        frame.collect()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FormatError, match="is a named pipe"):
        frame.collect()


def plain_rows() -> pa.Table:
    fields = [pa.field(name, kind, metadata={"PARQUET:field_id": str(n)}) for n, (name, kind) in enumerate(COLUMNS.items(), 1)]
    return pa.Table.from_pylist(rows(0), schema=pa.schema(fields))
