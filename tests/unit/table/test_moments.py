"""Times that decide what is read or deleted: without a zone they say no moment, and are refused before anything is looked at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from icelock.errors import PolicyError
from icelock.maintenance import leftovers, remove_leftovers
from icelock.spark.settings.options import ReadOptions
from icelock.table.moments import parse_span, span_text, to_millis
from tests.lakes.sqlite import KEYED, TestLake, people

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - that is the point
PLACES: dict[str, Callable[[Any, Any], object]] = {
    "expire": lambda table, at: table.maintenance.expire_snapshots().older_than(at).commit(),
    "leftovers": lambda table, at: leftovers(table, older_than=at),
    "remove leftovers": lambda table, at: remove_leftovers(table, older_than=at),
    "as of": lambda table, at: table.snapshot_as_of_timestamp(at),
    "roll back": lambda table, at: table.manage_snapshots().rollback_to_timestamp(at).commit(),
    "roll back in a transaction": lambda table, at: table.transaction().manage_snapshots().rollback_to_timestamp(at),
}


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    for start in (0, 10, 20):
        made.append(people(start))
    return made


@pytest.mark.turns(3)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("wrong", [NAIVE, NAIVE.date(), "2030-01-01", 1.9e12, True], ids=["naive", "date", "text", "float", "bool"])
def test_a_time_without_a_zone_or_no_time_is_refused(lake: TestLake, table: Any, place: str, wrong: Any) -> None:
    files = lake.files()
    with pytest.raises(PolicyError, match=r"timezone\.utc"):
        PLACES[place](table, wrong)
    assert lake.files() == files


@pytest.mark.parametrize("place", PLACES)
def test_with_a_zone_it_is_taken(table: Any, place: str) -> None:
    PLACES[place](table, datetime.now(timezone(timedelta(hours=-5))) + timedelta(hours=1))


def test_the_moment_is_that_of_its_zone(table: Any) -> None:
    """2026-01-31 12:00 in UTC+2 is 10:00 in UTC: 1769853600 s."""
    assert to_millis(datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))), name="at") == 1_769_853_600_000
    assert to_millis(1_769_853_600_000, name="at") == 1_769_853_600_000
    first, second, _ = table.snapshots()
    moment = datetime.fromtimestamp(second.timestamp_ms / 1000, UTC)
    assert table.snapshot_as_of_timestamp(moment.astimezone(timezone(timedelta(hours=9)))).snapshot_id == second.snapshot_id
    assert table.snapshot_as_of_timestamp(moment, inclusive=False).snapshot_id == first.snapshot_id


def test_spark_is_told_of_a_zone_as_well() -> None:
    with pytest.raises(PolicyError, match="no time zone"):
        ReadOptions.of("lake.db.t", as_of_timestamp=NAIVE)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="no time zone"):
        ReadOptions.of("lake.db.t", as_of_timestamp=date(2030, 1, 1))  # type: ignore[arg-type]
    assert ReadOptions.of("lake.db.t", as_of_timestamp=datetime(2030, 1, 1, tzinfo=UTC)).as_of_ms == 1_893_456_000_000  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["expire", "leftovers", "remove leftovers"])
@pytest.mark.parametrize("number", [3, 0, -3, 1_796_000_000], ids=["days", "none", "negative", "seconds since 1970"])
def test_a_number_that_is_no_ms_since_1970_is_refused(lake: TestLake, table: Any, place: str, number: int) -> None:
    """Days and ``time.time()``, taken for milliseconds, lie in January 1970: nothing would ever be old enough."""
    files = lake.files()
    with pytest.raises(PolicyError, match=rf"older_than is {number}, .*datetime"):
        PLACES[place](table, number)
    assert lake.files() == files
    PLACES[place](table, 1_796_000_000_000)


def test_spans_are_written_as_they_are_read() -> None:
    spans = {timedelta(days=3): "3d", timedelta(hours=36): "36h", timedelta(minutes=90): "90m", timedelta(seconds=5): "5s"}
    assert {span: span_text(span) for span in spans} == spans
    assert {parse_span(text): text for text in spans.values()} == spans
    assert span_text(timedelta(seconds=1.5)) == "1.5s"
