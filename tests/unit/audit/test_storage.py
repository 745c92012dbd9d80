"""Bytes of stored files, read or read ahead: the same as those at the same place in the file."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from icelock.audit import read_ahead
from icelock.audit.read_ahead import Ahead, Reader
from icelock.audit.run import audit
from icelock.audit.storage import StoredBytes
from tests.lakes.sqlite import KEYED, TestLake, people

DATA = bytes(number * number % 251 for number in range(5_000))


class Stream(io.BytesIO):
    """Gives a third of what it is asked for, as a network does."""

    def readinto(self, target: Any) -> int:
        return super().readinto(memoryview(target)[: max(1, len(target) // 3)])

    def read(self, count: int | None = -1) -> bytes:
        return super().read(max(1, (count or 0) // 3))


class WithoutReadinto:
    """What PyIceberg's protocol of streams asks for, and no more."""

    def __init__(self) -> None:
        self._stream = Stream(DATA)
        self.read, self.seek, self.close = self._stream.read, self._stream.seek, self._stream.close


class Storage:
    def __init__(self, made: Any) -> None:
        self._made = made

    def new_input(self, location: str) -> Storage:
        assert location == "x"
        return self

    def open(self) -> Any:
        return self._made()


class Broken(Stream):
    """Fails beyond a position."""

    def readinto(self, target: Any) -> int:
        if self.tell() >= 3_000:
            raise OSError("the disk is gone")
        return super().readinto(target)


class Disk(Storage):
    place = (LocalFileSystem(), "x")


def opened(made: Callable[[], Any], storage: type[Storage] = Storage) -> StoredBytes:
    return StoredBytes(storage(made), "x")  # type: ignore[arg-type]


def test_a_read_is_what_the_file_has_there() -> None:
    with opened(WithoutReadinto) as stored:
        assert stored.size == len(DATA)
        for position, count in [(0, 4), (4, 0), (4_990, 20), (3, 700), (5_100, 2)]:
            assert stored.read(position, count) == DATA[position : position + count]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4_000), st.integers(0, 5_100), st.sampled_from([64, 300, 8_000]), st.booleans(), st.booleans(), st.data())
def test_what_is_read_ahead_is_what_the_file_has_there(  # noqa: PLR0913 - what hypothesis chooses
    start: int,
    end: int,
    window: int,
    into: bool,  # noqa: FBT001
    near: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    """Positions ascend, by what was asked for at least and what was given at most; two files one after another with one reader."""
    counts = data.draw(st.lists(st.integers(0, 700), max_size=40))
    with pytest.MonkeyPatch.context() as patch, Reader() as reader:
        patch.setattr(read_ahead, "_WINDOW", window)
        for _ in range(2):
            stored = opened((lambda: Stream(DATA)) if into else WithoutReadinto, Disk if near else Storage)
            with stored, closing(reader.windows(stored, start, end)) as windows:
                ahead, position = Ahead(windows, start), start
                for count in counts:
                    found = bytes(ahead.ahead(position, count))
                    assert len(found) >= min(count, len(DATA[position:end]))
                    assert found == DATA[position:end][: len(found)]
                    position += data.draw(st.integers(min(count, len(found)), len(found)))


def test_windows_are_all_of_the_file_in_order_and_the_later_ones_are_read_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    by: list[str] = []
    fill = StoredBytes.fill
    monkeypatch.setattr(StoredBytes, "fill", lambda self, *at: (by.append(threading.current_thread().name), fill(self, *at))[1])
    monkeypatch.setattr(read_ahead, "_WINDOW", 2_000)
    with Reader() as reader:
        with opened(lambda: Stream(DATA)) as stored:
            assert [bytes(found) for found in reader.windows(stored, 4, len(DATA))] == [DATA[4:2_004], DATA[2_004:4_004], DATA[4_004:]]
        assert by == [threading.current_thread().name] + ["icelock-audit-read"] * 2
    assert "icelock-audit-read" not in {thread.name for thread in threading.enumerate()}


def test_a_local_file_is_read_by_the_thread_that_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_WINDOW", 2_000)
    with Reader() as reader, opened(lambda: Stream(DATA), Disk) as stored:
        found = [(bytes(window), threading.active_count()) for window in reader.windows(stored, 4, len(DATA))]
    assert found == [(part, threading.active_count()) for part in (DATA[4:2_004], DATA[2_004:4_004], DATA[4_004:])]


def test_an_error_of_the_storage_is_raised_where_its_bytes_are_asked_for_and_the_next_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "_WINDOW", 2_000)
    with Reader() as reader:
        seen = []
        with opened(lambda: Broken(DATA)) as stored, pytest.raises(OSError, match="the disk is gone"):
            seen.extend(len(found) for found in reader.windows(stored, 0, len(DATA)))
        assert seen == [2_000]
        with opened(lambda: Stream(DATA)) as stored:
            assert b"".join(map(bytes, reader.windows(stored, 0, len(DATA)))) == DATA


def test_a_file_is_not_closed_while_it_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stops early, as at a page that does not authenticate, waits for the read that has begun."""
    ended = threading.Event()

    class Slow(Stream):
        def readinto(self, target: Any) -> int:
            if self.tell() >= 2_000:
                ended.wait(0.2)
                ended.set()
            return super().readinto(target)

    monkeypatch.setattr(read_ahead, "_WINDOW", 2_000)
    with Reader() as reader, opened(lambda: Slow(DATA)) as stored:
        windows = reader.windows(stored, 0, len(DATA))
        next(windows)
        windows.close()
        assert ended.is_set()


def test_pages_are_taken_from_what_was_read_ahead(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three columns in 20 row groups are 120 pages and headers at least; a file of less than a window is read at once."""
    asked: list[str] = []
    fill = StoredBytes.fill
    monkeypatch.setattr(StoredBytes, "fill", lambda self, *at: (asked.append(self.location), fill(self, *at))[1])
    properties = {**KEYED, "write.parquet.row-group-limit": "50"}
    lake.catalog().create_table("db.t", people().schema, properties=properties).append(people(0, 1000))
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
    of_data = [path for path in asked if path.endswith(".parquet")]
    assert len(of_data) == 1


def test_a_thread_that_the_system_refuses_is_an_error_of_each_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one that never began, the second file would be waited for without end."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(read_ahead, "_WINDOW", 64)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Reader() as reader:
        for _ in range(2):
            with opened(lambda: Stream(DATA)) as stored, pytest.raises(RuntimeError, match="can't start new thread"):
                next(reader.windows(stored, 0, len(DATA)))
