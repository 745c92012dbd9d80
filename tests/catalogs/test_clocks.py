"""Writers whose clocks are behind or ahead: what is committed keeps the rules without which Java loads no table."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from pyiceberg.exceptions import BadRequestError

from icelock.keys.manager import system_clock_ms
from tests.helpers.tables import ids, local
from tests.helpers.turns import todays
from tests.lakes.catalogs import CatalogLake, RestLake
from tests.lakes.sqlite import people

pytestmark = pytest.mark.turns(3)
YEAR, MINUTE = 365 * 86_400_000, 60_000


def stored(table: Any) -> dict[str, Any]:
    data = local(table.metadata_location).read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def check_java_loads(metadata: dict[str, Any]) -> None:
    """The checks of Java's TableMetadata constructor, which allows a minute; nothing here goes back at all."""
    snapshots, files = ([entry["timestamp-ms"] for entry in metadata.get(log, [])] for log in ("snapshot-log", "metadata-log"))
    for log in (snapshots, files):
        assert all(one <= other for one, other in pairwise(log)), log
        assert not log or metadata["last-updated-ms"] >= log[-1]


def of(lake: CatalogLake, ahead_ms: int) -> Any:
    """Load the table by a catalog whose clock is ahead, or behind."""
    catalog = lake.catalog()
    catalog.encryption.clock = lambda: system_clock_ms() + ahead_ms  # an in-memory catalog is the same object each time
    return catalog.load_table(lake.name())


def rolled_back(table: Any) -> None:
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()


def replaced(table: Any) -> None:
    with table.catalog.replace_table_transaction(table.name(), people().schema) as tx:
        tx.append(people(5, 1))


def several(table: Any) -> None:
    with table.transaction() as tx:
        tx.append(people(6, 1))
        tx.delete("id = 6")
        tx.set_properties({"more": "1"})


CHANGES: list[Callable[[Any], Any]] = [
    lambda t: t.append(people(2, 1)),
    lambda t: t.transaction().set_properties({"a": "1"}).commit_transaction(),
    lambda t: t.delete("id = 0"),
    lambda t: t.manage_snapshots().create_branch(t.current_snapshot().snapshot_id, "b").commit(),
    lambda t: t.append(people(3, 1), branch="b"),
    rolled_back,
    replaced,
    several,
    lambda t: t.maintenance.expire_snapshots().by_id(t.metadata.snapshots[1].snapshot_id).commit(),
]


@pytest.mark.parametrize("ahead_ms", todays("clocks", [-90_000, -YEAR], 2))
def test_a_clock_that_is_behind(lake: CatalogLake, ahead_ms: int) -> None:
    lake.make(rows=1)
    of(lake, 0).append(people(1, 1))
    for change in CHANGES:
        before = stored(lake.load())["last-updated-ms"]
        change(of(lake, ahead_ms))
        after = stored(lake.load())
        check_java_loads(after)
        assert after["last-updated-ms"] >= before


def test_a_clock_that_was_a_year_ahead(lake: CatalogLake) -> None:
    """Later commits keep its time. What an expiry takes for old is told by its own clock: the rows of today stay."""
    lake.make(rows=1)
    if isinstance(lake, RestLake):  # Java's server times commits by its own clock, and takes no snapshot that is ahead of it
        with pytest.raises(BadRequestError, match="Invalid update timestamp"):
            of(lake, YEAR).append(people(1, 1))
        assert ids(lake.load()) == [0]
        return
    of(lake, YEAR).append(people(1, 1))
    ahead = stored(lake.load())["snapshots"][-1]["timestamp-ms"]
    assert ahead - time.time() * 1000 > YEAR - MINUTE
    for change in CHANGES:
        change(of(lake, 0))
        metadata = stored(lake.load())
        check_java_loads(metadata)
        assert all(snapshot["timestamp-ms"] >= ahead for snapshot in metadata["snapshots"][2:])
    late = lake.load()
    found = ids(late)
    number = len(late.metadata.snapshots)
    of(lake, 0).maintenance.expire_snapshots().commit()
    assert (len(lake.load().metadata.snapshots), ids(lake.load())) == (number, found)


def test_a_table_that_is_made_by_a_clock_of_its_own(lake: CatalogLake) -> None:
    catalog = lake.catalog()
    catalog.encryption.clock = lambda: system_clock_ms() - YEAR
    properties = {"encryption.key-id": "keyA"}
    with catalog.create_table_transaction(lake.name(), people().schema, properties=properties) as tx:
        tx.append(people(0, 1))
    check_java_loads(stored(lake.load()))
    of(lake, 0).append(people(1, 1))
    check_java_loads(stored(lake.load()))
