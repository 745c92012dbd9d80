"""Many writers of one table: each row is there once, every snapshot opens, no key and no file is left over (cases C-05, J-06)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tests.concurrency.race_jobs import GROUPS, ROWS, SCHEMA, appends, mixed, rows_of, states
from tests.concurrency.race_places import Place, RestLake
from tests.concurrency.race_processes import Processes
from tests.concurrency.whole_table import assert_whole, ids, in_order
from tests.helpers.turns import todays
from tests.servers.rest import RestServer

WRITERS, APPENDS, STEPS = 8, 4, 4
BY_GROUP = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "grp"))
LEVELS = {
    "serializable": {"write.delete.mode": "copy-on-write"},
    "snapshot": {
        "write.delete.mode": "merge-on-read",
        "write.delete.isolation-level": "snapshot",
        "write.update.isolation-level": "snapshot",
    },
}


def in_processes(processes: Processes, place: Place, job: str, count: int, out: Path) -> None:
    processes.run({"job": job, "writers": WRITERS, "count": count, "properties": place.properties(), "table": place.table, "out": str(out)})


def in_threads(work: Any) -> list[Any]:
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, range(WRITERS)))


def assert_appended(table: Any, count: int, *, of_the_server: tuple[str, ...] = ()) -> None:
    """``WRITERS`` x ``count`` appends of ``ROWS`` rows."""
    total = WRITERS * count
    assert ids(table) == list(range(total * ROWS))
    line = in_order(table)
    assert [s.summary.additional_properties["total-records"] for s in line] == [str(ROWS * n) for n in range(1, total + 1)]
    for n, snapshot in enumerate(line, 1):
        assert sum(m.added_rows_count + m.existing_rows_count for m in snapshot.manifests(table.io)) == ROWS * n
    assert_whole(table, of_the_server=of_the_server)


@pytest.mark.turns(3)
def test_processes_that_append(processes: Processes, place: Place, tmp_path: Path) -> None:
    """J-06: each with a catalog of its own, under default settings; of 8 x 6 through Hive Java loses 13 to 20."""
    place.make()
    in_processes(processes, place, "appends", APPENDS, tmp_path)
    assert_appended(place.load(), APPENDS)


@pytest.mark.turns(3)
def test_threads_that_append_through_one_table_object(place: Place) -> None:
    table = place.make()
    in_threads(lambda number: appends(table, number, APPENDS))
    assert table.metadata_location == place.load().metadata_location, "the object is at the last commit"
    assert_appended(table, APPENDS)


@pytest.mark.parametrize("writers", ["processes", "threads"])
def test_a_race_through_a_rest_server_under_default_settings(
    processes: Processes, rest_server: RestServer, writers: str, tmp_path: Path
) -> None:
    """Each writer with a catalog of its own: no lock is there, so every one of them loses some tries."""
    place = Place(RestLake(tmp_path, rest_server))
    place.make()
    if writers == "processes":
        in_processes(processes, place, "appends", APPENDS, tmp_path)
    else:
        in_threads(lambda number: appends(place.load(), number, APPENDS))
    # Java's server leaves the metadata files of the commits that lost.
    assert_appended(place.load(), APPENDS, of_the_server=(".metadata.json", ".metadata.json.crc"))


# Each catalog with both levels, threads and processes with each level.
MIXED = {("sqlite", "serializable"): "threads", ("sqlite", "snapshot"): "processes", ("postgres", "snapshot"): "threads"}


@pytest.mark.turns(3)
@pytest.mark.parametrize("level", todays("isolation levels", sorted(LEVELS), 2))
def test_writers_that_append_delete_and_overwrite(processes: Processes, place: Place, level: str, tmp_path: Path) -> None:
    table = start_mixed(place, level)
    if MIXED.get((place.kind, level)) == "threads":
        refused = [r for one in in_threads(lambda number: mixed(table, number, STEPS)) for r in one]
    else:
        (tmp_path / "refused").mkdir()
        in_processes(processes, place, "mixed", STEPS, tmp_path / "refused")
        refused = [r for path in sorted((tmp_path / "refused").glob("*.json")) for r in json.loads(path.read_text())]
    assert_as_modelled(place.load(), refused, level)


def start_mixed(place: Place, level: str) -> Any:
    table = place.make(SCHEMA, LEVELS[level], partition_spec=BY_GROUP)
    for group in range(GROUPS):
        table.append(rows_of([group * 10 + i for i in range(5)], group))
    return table


def assert_as_modelled(table: Any, refused: list[dict[str, Any]], level: str) -> None:
    """The rows are those of the steps done in the order of their commits; what was refused met a step that it depends on."""
    line = in_order(table)
    place_of = {snapshot.snapshot_id: n for n, snapshot in enumerate(line)}
    steps = [json.loads(snapshot.summary.additional_properties["test.done"]) for snapshot in line[GROUPS:]]
    bases = [place_of[step["base"]] - (GROUPS - 1) for step in steps]
    first = {group * 10 + i: group for group in range(GROUPS) for i in range(5)}
    *_, last = states(steps, first, serializable=level == "serializable", bases=bases)
    rows = table.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["grp"]) for row in rows) == sorted(last.items())
    # A delete that finds nothing to delete makes no snapshot.
    quiet = WRITERS * STEPS - len(steps) - len(refused)
    assert 0 <= quiet < WRITERS * STEPS // 4
    for r in refused:
        between = steps[place_of[r["base"]] - (GROUPS - 1) : place_of[r["seen"]] - (GROUPS - 1)]
        assert r["what"] != "append"
        if level == "snapshot":
            assert r["what"] == "overwrite"
            assert any(step["group"] == r["group"] and step["what"] != "append" for step in between)
        else:
            assert any(step["group"] == r["group"] for step in between)
    assert_whole(table)
