"""Random histories beside a model in plain Python: rows and row lineage after every step, every snapshot at the end."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform

from tests.helpers.table_model import (
    ALL,
    ARROW,
    N_NULL_OR_LATE,
    S_NULL,
    Filter,
    Model,
    arrow,
    by_id,
    n_is,
    n_is_not,
    one_of,
    row,
    verified,
)
from tests.helpers.turns import todays
from tests.lakes.sqlite import KEYED, TestLake

SPECS = {
    "unpartitioned": PartitionSpec(),
    "by n": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n")),
    "by bucket and n": PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "b"), PartitionField(2, 1001, IdentityTransform(), "n")),
}
EVERY = {"rewrite-all": "true"}
# What changes no row.
MAINTENANCE = {
    "compact": lambda maintenance: maintenance.compact(options=EVERY),
    "compact in order": lambda maintenance: maintenance.compact(sort_by="n desc, id", options=EVERY),
    "compact in Z-order": lambda maintenance: maintenance.compact(z_order_by=["id", "n", "s"], options=EVERY),
    "rewrite deletes": lambda maintenance: maintenance.rewrite_deletes(),
    "rewrite deletes into data": lambda maintenance: maintenance.rewrite_deletes(into="data"),
    "rewrite manifests": lambda maintenance: maintenance.rewrite_manifests(),
}
NUMBER = st.integers(0, 60)
FILTER = st.one_of(
    st.builds(by_id, NUMBER, NUMBER),
    st.builds(one_of, NUMBER, NUMBER, NUMBER),
    st.builds(n_is, st.integers(0, 3)),
    st.builds(n_is_not, st.integers(0, 2)),
    st.sampled_from([S_NULL, N_NULL_OR_LATE]),
)
STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 25)),
    st.tuples(st.just("delete"), FILTER),
    st.tuples(st.just("delete"), FILTER),
    st.tuples(st.just("overwrite"), st.tuples(FILTER, st.integers(0, 6))),
    st.tuples(st.just("mode"), st.sampled_from(["copy-on-write", "merge-on-read"])),
    st.tuples(st.just("format"), st.sampled_from(["parquet", "avro"])),
    st.tuples(st.just("reload"), st.none()),
    st.tuples(st.just("maintain"), st.sampled_from(sorted(MAINTENANCE))),
)


class History:
    def __init__(self, folder: Path, spec: str, properties: dict[str, str]) -> None:
        self.lake = TestLake(folder)
        self.lake.catalog().create_namespace("db")
        self.table = self.lake.catalog().create_table("db.t", ARROW, partition_spec=SPECS[spec], properties={**KEYED, **properties})
        self.model = Model()
        self.next = itertools.count()

    def step(self, name: str, given_: Any) -> None:
        getattr(self, name)(given_)
        self.model.check(self.table, time_travel=False)

    def finish(self) -> dict[str, Any]:
        """Every snapshot is the model's, and the independent reader accepts the table."""
        self.model.check(self.table)
        return verified(self.table)

    def fresh(self, count: int) -> list[Any]:
        return [row(next(self.next)) for _ in range(count)]

    def append(self, count: int) -> None:
        rows = self.fresh(count)
        self.table.append(arrow(rows))
        self.model.add(rows, self.table)

    def delete(self, which: Filter) -> None:
        before = self.table.current_snapshot()
        self.table.delete(which.text)
        if not self.model.remove(which, self.table):
            assert self.table.current_snapshot() == before, "nothing matched, so there is no snapshot"

    def overwrite(self, both: tuple[Filter, int]) -> None:
        which, count = both
        before, rows = len(self.table.snapshots()), self.fresh(count)
        self.table.overwrite(arrow(rows), overwrite_filter=which.text)
        assert len(self.table.snapshots()) == before + 1
        self.model.remove(which, self.table)
        self.model.add(rows, self.table)

    def mode(self, mode: str) -> None:
        self.set("write.delete.mode", mode)

    def format(self, name: str) -> None:
        self.set("write.format.default", name)

    def set(self, name: str, value: str) -> None:
        with self.table.transaction() as tx:
            tx.set_properties({name: value})

    def maintain(self, how: str) -> None:
        MAINTENANCE[how](self.table.maintenance)
        self.model.add([], self.table)
        now = self.model.snapshots[self.table.current_snapshot().snapshot_id]
        for snapshot in self.table.snapshots():  # it may have taken several
            self.model.snapshots.setdefault(snapshot.snapshot_id, now)

    def reload(self, _: None) -> None:
        self.table = self.lake.catalog().load_table("db.t")


@pytest.mark.turns(3)
@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, min_size=3, max_size=9), mode=st.sampled_from(["copy-on-write", "merge-on-read"]))
def test_random_histories(spec: str, mode: str, steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), spec, {"write.delete.mode": mode})
        history.step("append", 20)
        for name, given_ in steps:
            history.step(name, given_)
        history.finish()


# Each two of the four settings meet in each of their values; three a day, with both modes, as those of the random histories are many.
LONG = [
    ("unpartitioned", "copy-on-write", "parquet", "true"),
    ("unpartitioned", "merge-on-read", "avro", "false"),
    ("by n", "merge-on-read", "parquet", "true"),
    ("by n", "copy-on-write", "avro", "false"),
    ("by bucket and n", "copy-on-write", "parquet", "false"),
    ("by bucket and n", "merge-on-read", "avro", "true"),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("spec", "mode", "file_format", "merge"), todays("long histories", LONG, 2))
def test_a_long_history_of_every_step(tmp_path: Path, spec: str, mode: str, file_format: str, merge: str) -> None:
    merging = {"commit.manifest-merge.enabled": merge, "commit.manifest.min-count-to-merge": "2"}
    history = History(tmp_path, spec, {"write.delete.mode": mode, "write.format.default": file_format, **merging})
    filters = [by_id(5, 9), one_of(11, 1000), n_is(2), S_NULL, n_is_not(0), N_NULL_OR_LATE, by_id(900, 999), ALL]
    for number, which in enumerate(filters):
        history.step("append", 15)
        history.step("delete", which)
        history.step("overwrite", (by_id(3 * number, 3 * number + 1), 3))
        if not number % 3:
            history.step("maintain", sorted(MAINTENANCE)[number // 3])
    report = history.finish()
    assert report["keks"] == 1
    if merge == "true":
        assert report["snapshots"][-1]["manifests"] <= 2
    kinds = set(report["files"])
    assert ("position deletes" in kinds) == (mode == "merge-on-read")
