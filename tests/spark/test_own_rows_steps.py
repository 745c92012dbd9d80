"""Rows of a table that go back into it, without Spark's processes: what a job says that they come from, and what its commit makes of it."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace

import pytest
from pyiceberg.exceptions import ValidationException
from pyspark.sql import types as sp

from icelock.errors import PolicyError
from icelock.plan.filters.text import parse_filter
from icelock.spark.driver.plan_read import job_schema
from icelock.spark.sealed.job import Action, Job, NewTable, Purpose
from icelock.spark.sealed.seen import Seen, seen_in
from icelock.spark.sealed.seen import base_of as validated_from
from icelock.spark.settings.options import ReadOptions, TableName
from icelock.spark.settings.write_options import ROWS_READ, WriteOptions
from icelock.table.commit.conflicts import Since
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, people
from tests.spark.in_process import TABLE, RewriteRun, base_of, settings, source

ROWS = sp.StructType(
    [sp.StructField("id", sp.LongType()), sp.StructField("name", sp.StringType()), sp.StructField("city", sp.StringType())]
)
NAME = TableName.parse(TABLE)


@pytest.fixture(autouse=True)
def driver_folder(tmp_path, monkeypatch):
    (tmp_path / "driver").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "driver"))


@pytest.fixture
def table(lake):
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    made.append(people())
    return made


def ids(lake):
    return sorted(load(lake).scan().to_arrow().column("id").to_pylist())


def write(lake, job, rows):
    writer = source(lake, job).writer(ROWS, False)  # noqa: FBT003 - Spark's signature
    writer.commit([writer.write(iter(rows.to_batches()))])
    if job.action == Action.STAGE:
        run = RewriteRun(lake, job)
        run.commit(run.run())


def job(action, seen, **more):
    new = NewTable(properties={}, partitioned_by=()) if action == Action.REPLACE else None
    return Job(action=action, table=NAME, seen=(seen,), new_table=new, **more)


@pytest.mark.parametrize("action", [Action.OVERWRITE, Action.REPLACE, Action.STAGE])
def test_commits_since_the_rows_were_read_are_conflicts(lake, table, action):
    seen = Seen.of(table.metadata)
    load(lake).append(people(100, 1))
    more = (
        {"base": base_of(load(lake)), "row_filter": parse_filter("id >= 0"), "purpose": Purpose.OVERWRITE} if action == Action.STAGE else {}
    )
    before = lake.files()
    with pytest.raises(ValidationException, match="conflict"):
        write(lake, job(action, seen, **more), people(0, 3))
    assert ids(lake) == [*range(10), 100]
    assert lake.files() == before
    write(lake, job(action, Seen.of(load(lake).metadata), **more), people(0, 3))
    assert ids(lake) == [0, 1, 2]


def test_rows_of_another_table_or_of_nowhere_are_not_looked_at(lake, table):
    other = replace(Seen.of(table.metadata), table_uuid="11111111-2222-3333-4444-555555555555")
    load(lake).append(people(100, 1))
    write(lake, job(Action.OVERWRITE, other), people(0, 3))
    assert ids(lake) == [0, 1, 2]


def test_the_oldest_head_of_the_branch_counts(table):
    first = Seen.of(table.metadata)
    table.append(people(100, 1))
    second = Seen.of(table.metadata)
    one, two = (head for head in (first.heads["main"], second.heads["main"]))
    assert validated_from(table.metadata, [second, first], "main") == Since(snapshot_id=one)
    assert validated_from(table.metadata, [second], "main") == Since(snapshot_id=two)
    assert validated_from(table.metadata, [Seen(table_uuid=first.table_uuid)], "main") == Since(snapshot_id=None)
    assert validated_from(table.metadata, [second], "side") == Since(snapshot_id=two)
    assert validated_from(table.metadata, [], "main") is None
    gone = Seen(table_uuid=first.table_uuid, heads={"main": 77})
    assert validated_from(table.metadata, [gone, second], "main") == Since(snapshot_id=77)


def test_a_scan_of_the_data_source_says_it_in_its_pickle(lake, table):
    _, found = job_schema(settings(lake), Job.of_read(ReadOptions.of(TABLE)))
    text = Seen.of(table.metadata).to_text()
    assert f"icelock seen[{text}]icelock seen".encode() in pickle.dumps(found)
    assert seen_in(f"{text}\n\n?other.db.t", NAME) == (Seen.of(table.metadata),)
    with pytest.raises(PolicyError, match="validate-from-snapshot-id"):
        seen_in(f"?{TABLE}", NAME)


def test_what_the_optimizer_rule_hands_over_and_what_the_user_says(lake, table):
    text = Seen.of(table.metadata).to_text()
    options = {"path": TABLE, ROWS_READ: text}
    assert Job.of_write(WriteOptions.parse(options, overwrite=True), overwrite=True).seen == (Seen.of(table.metadata),)
    said = Job.of_write(WriteOptions.parse({**options, "validate-from-snapshot-id": "5"}, overwrite=True), overwrite=True)
    assert (said.validate_from, said.seen) == (5, ())
    with pytest.raises(PolicyError, match="has no snapshot 5"):
        source(lake, said).writer(ROWS, True)  # noqa: FBT003 - Spark's signature
    load(lake).append(people(100, 1))
    first = table.current_snapshot().snapshot_id
    with pytest.raises(ValidationException, match="conflict"):
        write(lake, replace(said, validate_from=first), people(0, 3))
    assert ids(lake) == [*range(10), 100]


@pytest.mark.usefixtures("table")
def test_columns_that_are_gone_when_tasks_have_written(lake):
    writer = source(lake, Job(action=Action.APPEND, table=NAME)).writer(ROWS, False)  # noqa: FBT003 - Spark's signature
    messages = [writer.write(iter(people(100, 1).to_batches()))]
    with load(lake).update_schema() as update:
        update.delete_column("name")
    before = {name for name in lake.files() if "/data/" not in name}
    with pytest.raises(ValidationException, match=r"'name' \(id 2\) was dropped"):
        writer.commit(messages)
    assert ids(lake) == list(range(10))
    assert {name for name in lake.files() if "/data/" not in name} == before
    assert sum("/data/" in name for name in lake.files()) == 1
