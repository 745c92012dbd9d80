"""What planning costs: which manifests are opened, how many are ahead of the reader, how many tasks are alive; and manifests that merge."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField

from icelock.errors import IntegrityError
from icelock.keys.entropy import SystemEntropy, mint_file_key
from icelock.metadata.manifest import DataFile
from icelock.plan.task import ScanTask
from icelock.table.commit.staged import Staged
from tests.lakes.sqlite import KEYED, TestLake, people

SCHEMA = Schema(NestedField(1, "part", IntegerType(), required=False), NestedField(2, "id", LongType(), required=False))
SPEC = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="part"))
MANIFESTS, FILES = 6, 300


def data_file(table: Any, part: int, number: int) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/part={part}/{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(part),
        record_count=10,
        file_size_in_bytes=1000,
        key_metadata=mint_file_key(SystemEntropy(), 16).closed(1000).encode(),  # type: ignore[arg-type]
        value_counts={1: 10, 2: 10},
        null_value_counts={1: 0, 2: 0},
        lower_bounds={1: to_bytes(IntegerType(), part), 2: to_bytes(LongType(), 10 * number)},
        upper_bounds={1: to_bytes(IntegerType(), part), 2: to_bytes(LongType(), 10 * number + 9)},
    )
    file.spec_id = table.spec().spec_id
    return file


class Opened:
    """Counts what is opened of a table's storage."""

    def __init__(self, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        inner = table.io.inner
        new_input = inner.new_input

        def counted(location: str) -> Any:
            self.names.append(location.rsplit("/", 1)[1])
            return new_input(location)

        monkeypatch.setattr(inner, "new_input", counted)

    @property
    def manifests(self) -> int:
        return sum(name.endswith(".avro") and not name.startswith("snap-") for name in self.names)


@pytest.fixture
def table(lake: TestLake) -> Any:
    """Manifest k has 300 files in the partitions 10 k to 10 k + 9; there are no data files."""
    made = lake.catalog().create_table("db.t", SCHEMA, partition_spec=SPEC, properties=KEYED)
    numbers = itertools.count()
    with made.transaction() as transaction:
        for manifest in range(MANIFESTS):
            with transaction.update_snapshot().fast_append() as append:
                for number in itertools.islice(numbers, FILES):
                    append.append_data_file(data_file(made, 10 * manifest + number % 10, number))
    return lake.catalog().load_table("db.t")


def test_a_filter_on_a_partition_opens_the_manifest_that_has_it(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(table, monkeypatch)
    tasks = table.scan(row_filter="part = 57").scan_tasks()
    assert [task.partition for task in tasks] == [(57,)] * 30
    assert opened.manifests == 1
    assert len(opened.names) == 2, "and the manifest list"


def test_a_filter_on_metrics_leaves_the_files_that_may_match(table: Any) -> None:
    assert len(table.scan(row_filter="id >= 4995 and id < 5010").scan_tasks()) == 2
    assert len(table.scan(row_filter="id = 5000 and part = 11").scan_tasks()) == 0
    assert len(table.scan(row_filter="id is null").scan_tasks()) == 0


def test_manifests_are_read_a_few_ahead_and_no_further_than_a_reader_goes(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    opened = Opened(table, monkeypatch)
    tasks = table.scan().iter_tasks()
    assert opened.manifests == 0
    next(tasks)
    tasks.close()
    assert 1 <= opened.manifests <= 4 < MANIFESTS


def test_tasks_are_made_some_at_a_time(table: Any) -> None:
    tasks = table.scan().iter_tasks()
    taken = most = 0
    for _ in tasks:
        taken += 1
        if taken % 500 == 0:
            most = max(most, sum(isinstance(one, ScanTask) for one in gc.get_objects()))
    assert taken == MANIFESTS * FILES
    assert 0 < most <= 300


def test_a_count_without_filter_makes_no_task(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(table, monkeypatch)
    monkeypatch.setattr("icelock.plan.columnar.make_tasks", None)
    assert table.scan().count() == MANIFESTS * FILES * 10
    assert opened.manifests == MANIFESTS


def test_a_manifest_that_fails_ends_the_plan_with_its_error(table: Any, lake: TestLake) -> None:
    listed = table.current_snapshot().manifests(table.io)
    path = lake.warehouse / listed[2].manifest_path.split("warehouse/")[1]
    path.write_bytes(path.read_bytes()[:-1])
    before = len(table.scan(row_filter="part < 30").scan_tasks())
    with pytest.raises(IntegrityError, match=path.name):
        table.scan().scan_tasks()
    assert before == 3 * FILES, "manifests that a filter rules out are not opened"


FORK = """
import json, multiprocessing, sys
import icelock

def plan():
    table = icelock.load_catalog("test", **json.loads(sys.argv[1])).load_table("db.t")
    return len(table.scan(row_filter="part < 20").scan_tasks())

if __name__ == "__main__":
    found = plan()
    assert "polars" in sys.modules
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(found, pool.apply_async(plan).get(60))
"""


@pytest.mark.usefixtures("table")
def test_a_process_that_was_forked_after_planning_plans_too(lake: TestLake) -> None:
    """Polars would wait for threads that the fork has not."""
    command = [sys.executable, "-W", "ignore", "-c", FORK, json.dumps(lake.properties())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.stdout.split() == [str(2 * FILES)] * 2, done.stderr


# --- merging


def manifests(table: Any) -> list[Any]:
    return table.current_snapshot().manifests(table.io)


def test_small_manifests_are_merged_by_default(lake: TestLake) -> None:
    """As Java: `commit.manifest-merge.enabled` is true, from `commit.manifest.min-count-to-merge` on."""
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "commit.manifest.min-count-to-merge": "3"})
    counts = []
    for number in range(5):
        table.append(people(10 * number))
        counts.append(len(manifests(table)))
    assert counts == [1, 2, 1, 2, 1]
    (merged,) = manifests(table)
    statuses = [entry.status for entry in merged.fetch_manifest_entry(table.io)]
    assert statuses == [ManifestEntryStatus.ADDED, *[ManifestEntryStatus.EXISTING] * 4]
    assert table.scan().count() == 50
    assert sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()) == list(range(50))


def test_merging_can_be_switched_off(lake: TestLake) -> None:
    properties = {**KEYED, "commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "false"}
    table = lake.catalog().create_table("db.t", people().schema, properties=properties)
    for number in range(3):
        table.append(people(10 * number))
    assert len(manifests(table)) == 3


@pytest.mark.parametrize("alone", [True, False], ids=["in its turn", "in a race"])
def test_an_attempt_after_a_conflict_merges_if_no_other_can_be_first(lake: TestLake, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:  # noqa: FBT001
    """In a race it would have to merge again for each conflict; the next commit without one merges."""
    if not alone:
        monkeypatch.setattr(Staged, "cannot_lose", property(lambda _: False, lambda _, __: None))
    made = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "commit.manifest.min-count-to-merge": "2"})
    made.append(people())
    stale = lake.catalog().load_table("db.t")
    made.append(people(10))
    assert len(manifests(made)) == 1
    stale.append(people(20))
    assert len(manifests(stale)) == (1 if alone else 2)
    stale.append(people(30))
    assert len(manifests(stale)) == 1
    assert sorted(stale.scan().to_arrow()["id"].to_pylist()) == list(range(40))
