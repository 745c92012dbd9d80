"""A conversion with a progress file that is killed at any of its steps: the next call writes what was not finished, and only that."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from icelock.maintenance import audit, convert, leftovers, remove_leftovers
from icelock.metadata.table_metadata import is_encrypted
from tests.crash.operations import CONVERTED_FILES, OPERATIONS, Restored, progress_of
from tests.crash.server import Server
from tests.crash.steps import stepping
from tests.crash.test_killed_writers import COMMITTED, MOMENTS, NEVER, check, ids
from tests.helpers.tables import encrypted_files
from tests.helpers.turns import in_turn
from tests.lakes.sqlite import TestLake

CLOSED = "after close data"
WITH_HISTORY = CONVERTED_FILES + 1  # that of the row which was deleted has two versions


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.mark.parametrize("name", ["convert with a progress file", "convert history with a progress file"])
def test_what_was_finished_is_not_written_again(server: Server, tmp_path: Path, name: str) -> None:
    operation = OPERATIONS[name]
    restored = Restored(tmp_path, operation)
    code, every_step = server.run(name, stepping(restored.lake.properties()), NEVER, only=MOMENTS)
    assert code == 0
    assert not progress_of(restored.lake.catalog()).exists()
    data, commit = every_step.index(CLOSED), every_step.index(COMMITTED)
    last = len(every_step) - 1 - every_step[::-1].index(CLOSED)
    files = WITH_HISTORY if "history" in name else CONVERTED_FILES
    reused: dict[int, int] = {}
    for at in in_turn(name, len(every_step), 17, always=(data, last, last + 1, commit - 1, commit)):
        lake = restored.again()
        code, steps = server.run(name, stepping(lake.properties()), at, only=MOMENTS)
        where = f"{name}, killed at step {at}: {steps[-1] if steps else 'none'}"
        assert (code, len(steps)) == (-signal.SIGKILL, at + 1), where
        if not is_encrypted(lake.catalog().load_table("db.t").metadata):
            reused[at] = gone_on_with(lake, name, files, where)
            assert reused[at] <= steps.count(CLOSED), where
        check(lake, operation, landed=True, where=where)
    assert reused[commit - 1] == files, "all were finished before the switch"
    assert reused[data] < files


def gone_on_with(lake: TestLake, name: str, files: int, where: str) -> int:
    """Make the second call; return how many data files it took over, by what it wrote."""
    catalog, path = lake.catalog(), progress_of(lake.catalog())
    lines = path.read_bytes().count(b"\n") - 1 if path.exists() else 0
    before = encrypted_files(lake)
    table: Any = catalog.load_table("db.t")
    done = convert(table, key_id="keyA", history="keep" if "history" in name else "drop", progress_file=path)
    assert (done.files, done.reused) == (files, max(lines, 0)), where
    assert len(encrypted_files(lake) - before) == files - done.reused, where
    assert not path.exists(), where
    found = catalog.load_table("db.t")
    assert ids(found) == OPERATIONS[name].after, where
    (report,) = audit(catalog, "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ()), where
    return done.reused


def test_a_call_that_goes_on_may_be_killed_too(server: Server, tmp_path: Path) -> None:
    """After four files, after four more, and then to the end: what each call finished is written once."""
    name = "convert with a progress file"
    restored = Restored(tmp_path, OPERATIONS[name])
    lake = restored.again()
    finished = [0]
    for _ in range(2):
        code, steps = server.run(name, stepping(lake.properties()), 3, only=f"^{CLOSED}$")
        assert (code, steps) == (-signal.SIGKILL, [CLOSED] * 4)
        finished.append(progress_of(lake.catalog()).read_bytes().count(b"\n") - 1)
        assert finished[-2] <= finished[-1] <= 4 * (len(finished) - 1)
    assert 0 < finished[-1] < CONVERTED_FILES
    assert gone_on_with(lake, name, CONVERTED_FILES, "after two kills") == finished[-1]


def test_what_was_finished_and_is_not_gone_on_with_is_left_over(server: Server, tmp_path: Path) -> None:
    name = "convert with a progress file"
    restored = Restored(tmp_path, OPERATIONS[name])
    _, every_step = server.run(name, stepping(restored.lake.properties()), NEVER, only=MOMENTS)
    lake = restored.again()
    server.run(name, stepping(lake.properties()), every_step.index(COMMITTED) - 1, only=MOMENTS)
    first = encrypted_files(lake)
    assert len(first) == CONVERTED_FILES
    table: Any = lake.catalog().load_table("db.t")
    assert convert(table, key_id="keyA").reused == 0
    found = lake.catalog().load_table("db.t")
    left = {file.path for file in leftovers(found, older_than=timedelta(0)).files}
    assert {str(lake.warehouse / one) for one in first} <= left
    remove_leftovers(found, older_than=timedelta(seconds=-60))
    assert len(encrypted_files(lake)) == CONVERTED_FILES
