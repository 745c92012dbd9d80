"""Looking at a row after a failure: what each look says, how often, and how long the waits are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from icelock.catalog.commit.outcome import delete_on_failure, discard, resolve_outcome, unknown, waits

QUICK = {"commit.status-check.min-wait-ms": "0"}


class Storage:
    def __init__(self, error: Exception | None = None) -> None:
        self.deleted: list[str] = []
        self._error = error

    def delete(self, location: str) -> None:
        if self._error is not None:
            raise self._error
        self.deleted.append(location)


def staged(storage: Storage | None = None, **properties: str) -> Any:
    metadata = SimpleNamespace(properties={**QUICK, **properties})
    return SimpleNamespace(metadata=metadata, metadata_location="new", io=storage or Storage(), name=lambda: ("db", "t"))


def with_history(*files: str) -> Any:
    return SimpleNamespace(metadata_log=[SimpleNamespace(metadata_file=file) for file in files])


def test_java_s_defaults() -> None:
    assert waits({}) == [0.0, 1.0, 2.0, 4.0]
    assert waits({"commit.status-check.num-retries": "8", "commit.status-check.min-wait-ms": "10000"}) == [
        0,
        10,
        20,
        40,
        60,
        60,
        60,
        60,
        60,
    ]
    assert waits({"commit.status-check.num-retries": "-1"}) == [0.0]


@pytest.mark.parametrize("text", ["text", "", "1.5", "9" * 400])
def test_settings_that_are_no_numbers_do_not_hide_what_became_of_a_commit(text):
    assert waits({"commit.status-check.num-retries": text, "commit.status-check.min-wait-ms": text}) == [0.0, 1.0, 2.0, 4.0]


def test_looks_are_not_without_end():
    assert len(waits({"commit.status-check.num-retries": "9" * 18})) < 10_000


@pytest.mark.parametrize(
    ("looks", "patient", "replaces", "expected", "count"),
    [
        (["new"], False, "old", True, 1),
        (["old"], False, "old", False, 1),
        (["old", "old", "old", "old"], True, "old", False, 4),
        (["old", "old", "new"], True, "old", True, 3),
        (["on top of ours"], False, "old", True, 1),
        (["instead of ours"], False, "old", False, 1),
        ([None], False, "old", None, 1),
        ([None, None, None, "new"], True, "old", True, 4),
        ([None], False, None, False, 1),
        ([OSError(), OSError(), "old"], False, "old", False, 3),
        ([OSError(), OSError(), OSError(), OSError()], False, "old", None, 4),
        ([OSError(), OSError(), OSError(), "new"], True, "old", True, 4),
    ],
)
def test_what_the_looks_say(looks: list[Any], patient: bool, replaces: str | None, expected: bool | None, count: int) -> None:  # noqa: FBT001
    seen: list[Any] = []
    histories = {"on top of ours": with_history("old", "new"), "instead of ours": with_history("old")}

    def named() -> str | None:
        seen.append(looks[len(seen)])
        if isinstance(seen[-1], Exception):
            raise seen[-1]
        return seen[-1]  # type: ignore[no-any-return]

    assert resolve_outcome(staged(), replaces, named=named, read=histories.__getitem__, patient=patient) is expected
    assert len(seen) == count


def test_what_fails_inside_is_undone_and_what_succeeds_is_not() -> None:
    storage = Storage()
    with delete_on_failure(staged(storage)):
        pass
    assert storage.deleted == []
    with pytest.raises(KeyboardInterrupt), delete_on_failure(staged(storage)):
        raise KeyboardInterrupt
    assert storage.deleted == ["new"]


@pytest.mark.parametrize("error", [FileNotFoundError(), OSError("no")])
def test_a_file_that_cannot_be_deleted_does_not_hide_the_first_error(error: Exception) -> None:
    discard(staged(Storage(error)))
    with pytest.raises(ZeroDivisionError), delete_on_failure(staged(Storage(error))):
        1 / 0  # noqa: B018


def test_the_unknown_is_said_with_what_to_look_for() -> None:
    said = str(unknown(staged(), ConnectionError("reset"), who="the database"))
    assert "the database did not say whether table db.t was changed (ConnectionError: reset); nothing was deleted" in said
    assert "metadata_location is new or one after it" in said
