"""Bytes of stored files through a window: the same as those at the same place in the file."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icelock.audit import storage
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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5_100), st.integers(0, 700)), max_size=12), st.sampled_from([64, 300]), st.booleans()
)
def test_a_view_is_what_the_file_has_there(asked: list[tuple[bool, int, int]], window: int, into: bool) -> None:  # noqa: FBT001
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "_WINDOW", window)
        with StoredBytes(Storage((lambda: Stream(DATA)) if into else WithoutReadinto), "x") as stored:  # type: ignore[arg-type]
            assert stored.size == len(DATA)
            for viewed, position, count in asked:
                found = stored.view(position, count) if viewed else stored.read(position, count)
                assert bytes(found) == DATA[position : position + count]


def test_pages_are_taken_from_what_was_read_ahead(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three columns in 20 row groups are 120 pages and headers at least; a file of less than a window is read at once."""
    asked: list[str] = []
    ahead = StoredBytes.ahead
    monkeypatch.setattr(StoredBytes, "ahead", lambda self, *at: (asked.append(self.location), ahead(self, *at))[1])
    properties = {**KEYED, "write.parquet.row-group-limit": "50"}
    lake.catalog().create_table("db.t", people().schema, properties=properties).append(people(0, 1000))
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
    of_data = [path for path in asked if path.endswith(".parquet")]
    assert len(of_data) == 1
