"""The clock of whoever maintains a table jumps: nothing is lost, and what goes by ages says that the clock is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from icelock.errors import PolicyError
from icelock.keys.manager import system_clock_ms
from icelock.maintenance import audit, remove_leftovers
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, TestLake, people

HOUR = 3_600_000
JUMPS = [-10 * 365 * 24 * HOUR, -HOUR, HOUR, 10 * 365 * 24 * HOUR]
AHEAD = "this machine's clock is ahead of the storage's by .*Nothing was changed: set the clock"
AGE = "history.expire.max-snapshot-age-ms"


def at(lake: TestLake, jump: int) -> Any:
    """The table, by a catalog whose clock is ahead, or behind."""
    catalog = lake.catalog()
    catalog.encryption.clock = lambda: system_clock_ms() + jump
    return catalog.load_table("db.t")


@pytest.fixture
def young(lake: TestLake) -> str:
    """A table of three snapshots with a branch, and the file of a writer at work there."""
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, AGE: str(HOUR // 2)})
    for start in (0, 10, 20):
        table.append(people(start, 1))
    path = Path(table.location().removeprefix("file://")) / "data" / "at-work.parquet"
    path.write_bytes(b"PARE not committed yet")
    return str(path)


@pytest.mark.parametrize("jump", JUMPS)
def test_files_of_writers_at_work_stay(lake: TestLake, young: str, jump: int) -> None:
    before = lake.files()
    now = datetime.now(UTC)
    for age in (timedelta(minutes=30), timedelta(days=3), now + timedelta(milliseconds=jump) - timedelta(minutes=30)):
        table = at(lake, jump)
        if jump > 0:
            with pytest.raises(PolicyError, match=AHEAD):
                remove_leftovers(table, older_than=age)
        else:
            assert remove_leftovers(table, older_than=age).files == ()
        assert lake.files() == before
    assert Path(young).exists()


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("jump", JUMPS)
def test_snapshots_that_are_young_stay(lake: TestLake, jump: int) -> None:
    before = lake.files()
    table = at(lake, jump)
    moment = datetime.now(UTC) + timedelta(milliseconds=jump) - timedelta(minutes=30)
    for expiry in (table.maintenance.expire_snapshots(), table.maintenance.expire_snapshots().older_than(moment)):
        if jump > 0:
            with pytest.raises(PolicyError, match=AHEAD):
                expiry.commit()
        else:
            assert expiry.commit().snapshots == ()
        assert lake.files() == before
    first = table.snapshots()[0].snapshot_id
    assert table.maintenance.expire_snapshots().by_id(first).commit().snapshots == (first,), "its age does not matter"
    assert sorted(ids(at(lake, 0))) == [0, 10, 20]


@pytest.mark.usefixtures("young")
def test_a_clock_that_is_minutes_ahead_is_taken(lake: TestLake) -> None:
    before = lake.files()
    assert remove_leftovers(at(lake, 4 * 60_000), older_than=timedelta(hours=1)).files == ()
    assert lake.files() == before


@pytest.mark.usefixtures("young")
def test_a_storage_that_takes_no_file_or_tells_no_time(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody can tell; files without a time are never old."""
    from icelock.table.maintenance.removal import storage_clock  # noqa: PLC0415

    def refused(_io: Any, _location: str) -> int:
        raise PermissionError

    before = lake.files()
    for answer in (lambda _io, _location: None, refused):
        monkeypatch.setattr(storage_clock, "written_ms", answer)
        assert remove_leftovers(at(lake, 0), older_than=timedelta(hours=1)).files == ()
        assert lake.files() == before


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("jump", JUMPS)
def test_rotations_between_jumps(lake: TestLake, jump: int) -> None:
    """Each level, by a clock that jumps and back: it is done, or refused with a word of the clock, and all rows stay."""
    for level in ("kek", "data", "lists", "all", "wrap"):
        for ahead in (jump, 0):
            try:
                at(lake, ahead).maintenance.rotate(level)
            except PolicyError as e:
                assert "clock that is" in str(e) or "not finished" in str(e), level  # noqa: PT017 - some are refused
            assert sorted(ids(at(lake, 0))) == [0, 10, 20]
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert set(report.counts) <= {"kek-from-the-future", "kek-past-its-time"}


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize(("jump", "found"), [(JUMPS[0], "from-the-future"), (JUMPS[1], "from-the-future"), (JUMPS[3], "past-its-time")])
def test_an_audit_says_which_way_clocks_differ(lake: TestLake, jump: int, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from icelock.audit import options  # noqa: PLC0415

    now = options.time.time_ns() + jump * 1_000_000
    monkeypatch.setattr(options.time, "time_ns", lambda: now)
    (report,) = audit(lake.catalog(), "db.t").tables
    assert list(report.counts) == [f"kek-{found}"]
