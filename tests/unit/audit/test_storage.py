"""Bytes of stored files through a window: the same as those at the same place in the file."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icelock.audit import storage
from icelock.audit.storage import StoredBytes

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
        patch.setattr(storage, "_LOCAL_WINDOW", window)
        with StoredBytes(Storage((lambda: Stream(DATA)) if into else WithoutReadinto), "x") as stored:  # type: ignore[arg-type]
            assert stored.size == len(DATA)
            for viewed, position, count in asked:
                found = stored.view(position, count) if viewed else stored.read(position, count)
                assert bytes(found) == DATA[position : position + count]
