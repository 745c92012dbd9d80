"""The data source's streams step by step, without Spark's processes: what Spark asks, on a pickle of what came before. Rows are by hand."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import types as sp

from icelock.errors import CommitError, IntegrityError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.spark.driver import unreached
from icelock.spark.driver.source import data_source
from icelock.spark.driver.stream_source import fields, limited_source
from icelock.table.epochs import EPOCH_ID, QUERY_ID
from icelock.table.read.stream import StreamOffset
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED
from tests.spark.in_process import KEY, TABLE, as_task, sent, settings

SCHEMA = sp.StructType([sp.StructField("id", sp.LongType()), sp.StructField("city", sp.StringType())])
OLD = limited_source() is None
pytestmark = pytest.mark.spark43
NOTHING = {"version": 1, "snapshot_id": -1, "position": -1, "scan_all_files": False}


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "city": pa.array(["a"] * len(ids), pa.string())})


def town(lake):
    return lake.catalog().create_table("db.t", rows().schema, properties=KEYED)


def ids(lake, name="db.t"):
    return sorted(lake.catalog().load_table(name).scan().to_arrow()["id"].to_pylist())


class Read:
    """The stream of a query, as this Spark asks: the process that plans, and what goes to executors."""

    def __init__(self, lake, schema=None, **options):
        options = {name.replace("_", "-"): str(value) for name, value in options.items()}
        made = data_source(settings(lake))(options={"path": TABLE, **options})
        self.schema = made.schema() if schema is None else schema
        self.planned = sent(made).streamReader(self.schema)

    def batch(self, start, end):
        task = sent(self.planned)
        assert not hasattr(task, "opened")
        return sorted(
            row for split in self.planned.partitions(start, end) for batch in task.read(sent(split)) for row in batch["id"].to_pylist()
        )

    def latest(self, start):
        """Return the end of the next batch; Spark 4.1 does not say where it begins."""
        return self.planned.latestOffset() if OLD else self.planned.latestOffset(start, self.planned.getDefaultReadLimit())

    def next(self, start):
        """Return the rows of the next batch, and its end."""
        end = self.latest(start)
        return self.batch(start, end), end


def test_each_row_comes_once_also_after_a_restart(lake):
    table = town(lake)
    table.append(rows(1, 2))
    table.append(rows(3))
    read = Read(lake)
    found, end = read.next(read.planned.initialOffset())
    assert found == [1, 2, 3]
    assert read.next(end) == ([], end)
    table.append(rows(4))
    found, end = read.next(end)
    assert found == [4]
    assert (end["snapshot_id"], end["position"]) == (table.current_snapshot().snapshot_id, 1), "as statements have it"
    table.append(rows(5))
    again = Read(lake)
    found, last = again.next(end)
    assert found == [5]
    assert Read(lake).next(last)[0] == []
    assert StreamOffset.parse(json.dumps(last)).to_json() == json.dumps(last, separators=(",", ":"))


def test_a_table_without_rows(lake):
    table = town(lake)
    read = Read(lake)
    start = read.planned.initialOffset()
    assert start == NOTHING
    assert read.next(start) == ([], NOTHING)
    table.append(rows(1))
    assert read.next(NOTHING)[0] == [1]


def test_where_it_begins(lake):
    table = town(lake)
    table.append(rows(1))
    first = table.current_snapshot().snapshot_id
    table.append(rows(2))
    for options, expected in (
        ({"start_snapshot_id": first}, [2]),
        ({"stream_from_timestamp": "now"}, []),
        ({"stream_from_timestamp": 0}, [1, 2]),
    ):
        read = Read(lake, **options)
        assert read.next(read.planned.initialOffset())[0] == expected


def test_a_first_batch_from_now_on_that_runs_again_is_empty_and_loses_nothing(lake):
    table = town(lake)
    table.append(rows(1))
    read = Read(lake, stream_from_timestamp="now")
    end = read.latest(read.planned.initialOffset())  # Spark 4.1 asks for it first
    table.append(rows(2))
    assert read.batch(read.planned.initialOffset(), end) == []
    again = Read(lake, stream_from_timestamp="now")
    assert again.batch(again.planned.initialOffset(), end) == []
    assert again.next(end)[0] == [2]


def test_live_rows_come_first_where_older_snapshots_were_expired(lake):
    table = town(lake)
    for number in (1, 2, 3):
        table.append(rows(number))
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.snapshots()[:2]]).commit()
    read = Read(lake)
    found, end = read.next(read.planned.initialOffset())
    assert found == [1, 2, 3]
    table.append(rows(4))
    assert Read(lake).next(end)[0] == [4]


def test_no_append(lake):
    table = town(lake)
    table.append(rows(1, 2))
    read = Read(lake)
    _, end = read.next(read.planned.initialOffset())
    table.append(rows(3))
    table.delete("id < 3")
    gone = table.current_snapshot().snapshot_id
    found, end = read.next(end)
    assert found == [3], "what came before it is read first"
    for stream in (read, Read(lake)):  # Spark 4.1 notices when it plans the batch, later ones when they ask for its end
        with pytest.raises(PolicyError, match=f"snapshot {gone} is of operation delete"):
            stream.next(end)
    table.append(rows(4))
    assert Read(lake, streaming_skip_delete_snapshots="true").next(end)[0] == [4]


def test_a_branch(lake):
    table = town(lake)
    table.append(rows(1))
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "side").commit()
    table.append(rows(2))
    table.append(rows(3), branch="side")
    read = Read(lake, branch="side")
    assert read.next(read.planned.initialOffset())[0] == [1, 3]


def test_limits(lake):
    table = town(lake)
    for number in range(5):
        table.append(rows(number))
    if OLD:
        with pytest.raises(PolicyError, match=r"PySpark 4\.2 or later"):
            Read(lake, max_files_per_micro_batch=2)
        return
    read = Read(lake, max_files_per_micro_batch=2, max_rows_per_micro_batch=3)
    first, end = read.next(read.planned.initialOffset())
    read.planned.prepareForTriggerAvailableNow()
    table.append(rows(5))
    second, end = read.next(end)
    third, end = read.next(end)
    assert [first, second, third] == [[0, 1], [2, 3], [4]]
    assert read.next(end) == ([], end), "the stream ends with what was there"
    by_rows = Read(lake, streaming_max_rows_per_micro_batch=3)
    assert by_rows.next(by_rows.planned.initialOffset())[0] == [0, 1, 2]
    once = by_rows.planned.latestOffset(by_rows.planned.initialOffset(), Read(lake).planned.getDefaultReadLimit())
    assert by_rows.batch(by_rows.planned.initialOffset(), once) == [0, 1, 2, 3, 4, 5], "a trigger once passes over limits"


def test_columns_are_those_of_the_dataframe(lake):
    table = town(lake)
    table.append(rows(1))
    made = data_source(settings(lake))(options={"path": TABLE})
    schema = made.schema()
    with table.update_schema() as update:
        update.rename_column("city", "town")
    table.append(rows(2).rename_columns(["id", "town"]))
    planned = sent(made).streamReader(schema)
    splits = planned.partitions(planned.initialOffset(), fields(planned.opened.now().end()))
    found = pa.Table.from_batches([batch for split in splits for batch in sent(planned).read(sent(split))]).sort_by("id")
    assert found.to_pylist() == [{"id": 1, "city": "a"}, {"id": 2, "city": "a"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_snapshot_id": 1, "stream_from_timestamp": "now"}, "exclude each other"),
        ({"max_files_per_micro_batch": 0}, "1 or more"),
        ({"stream_from": "now"}, "unknown option"),
        ({"columns": "id"}, "option columns is for batch reads"),
        ({"table": "test.db.other"}, "two tables are named"),
    ],
)
def test_options_that_cannot_be(lake, options, message):
    town(lake)
    with pytest.raises(PolicyError, match=message):
        Read(lake, **options)


def test_what_goes_to_executors_has_no_settings_and_no_other_key(lake):
    table = town(lake)
    table.append(rows(1))
    table.append(rows(2))
    made = data_source(settings(lake, **{"kms.secret": "kms-password-4711"}))(options={"path": TABLE})
    source = sent(made)
    planned = source.streamReader(made.schema())
    first, second = planned.partitions(planned.initialOffset(), fields(planned.opened.now().end()))
    keys = [KeyMetadata.decode(task.key_metadata.reveal()).dek.reveal() for task in table.scan().scan_tasks()]
    for split in (first, second):
        assert sum(key in cloudpickle.dumps(split) for key in keys) == 1
    for thing in (planned, source, first):
        text = cloudpickle.dumps(thing)
        assert not any(secret in text for secret in (*KEYS.values(), KEY, b"kms-password-4711"))


class Write:
    """A batch of a query, as Spark writes it: one process plans, tasks write, another process commits."""

    def __init__(self, lake, *, overwrite=False, query="query-1", **options):
        self._made = lambda: data_source(settings(lake))(options={"path": TABLE, "checkpointLocation": "/c", **options})
        self._overwrite = overwrite
        self._query = query
        self.planned = cloudpickle.dumps(self._made().streamWriter(SCHEMA, overwrite))

    def task(self, number, *ids, monkeypatch):
        monkeypatch.setattr(TaskContext, "getLocalProperty", lambda _, name: self._query if name == "sql.streaming.queryId" else None)
        with as_task(number):
            return sent(cloudpickle.loads(self.planned).write(iter(rows(*ids).to_batches())))

    def committer(self):
        return sent(self._made()).streamWriter(SCHEMA, self._overwrite)

    def write(self, number, *parts, monkeypatch):
        messages = [self.task(task, *ids, monkeypatch=monkeypatch) for task, ids in enumerate(parts)]
        self.committer().commit(messages, number)


def test_a_batch_is_written_once(lake, monkeypatch):
    town(lake)
    Write(lake).write(0, [1, 2], [3], monkeypatch=monkeypatch)
    Write(lake).write(0, [1, 2], [3], monkeypatch=monkeypatch)
    assert ids(lake) == [1, 2, 3]
    table = lake.catalog().load_table("db.t")
    (snapshot,) = table.snapshots()
    assert [snapshot.summary.additional_properties[name] for name in (QUERY_ID, EPOCH_ID)] == ["query-1", "0"]
    assert len(list(lake.warehouse.rglob("*.parquet"))) == 2, "the files of the batch that ran again are gone"
    Write(lake, query="query-2").write(0, [4], monkeypatch=monkeypatch)
    Write(lake).write(1, [], monkeypatch=monkeypatch)
    assert len(lake.catalog().load_table("db.t").snapshots()) == 2, "a batch without rows makes no snapshot"
    Write(lake, overwrite=True).write(2, [9], monkeypatch=monkeypatch)
    assert ids(lake) == [9]


def test_a_batch_some_of_whose_tasks_failed_leaves_nothing(lake, monkeypatch):
    monkeypatch.setattr(unreached, "_SWEEPS", (0.0,))
    town(lake)
    write = Write(lake)
    message = write.task(0, 1, monkeypatch=monkeypatch)
    write.task(1, 2, monkeypatch=monkeypatch)  # it was killed, and its message never came
    write.committer().abort([message, None], 0)
    assert list(lake.warehouse.rglob("*.parquet")) == []
    assert ids(lake) == []


def test_an_abort_after_the_commit_deletes_nothing(lake, monkeypatch):
    town(lake)
    write = Write(lake)
    messages = [write.task(0, 1, monkeypatch=monkeypatch)]
    write.committer().commit(messages, 0)
    write.committer().abort(messages, 0)
    assert ids(lake) == [1]


def test_messages_that_are_not_of_the_batch(lake, monkeypatch):
    town(lake)
    message, other = (Write(lake).task(0, 1, monkeypatch=monkeypatch) for _ in range(2))
    committer = Write(lake).committer()
    for messages in ([], [message, None], [message, other]):
        with pytest.raises(CommitError, match="nothing is committed"):
            committer.commit(messages, 0)
    message.ticket = message.ticket[:-1] + bytes([message.ticket[-1] ^ 1])
    with pytest.raises(IntegrityError):
        committer.commit([message], 0)
    assert ids(lake) == []


def test_a_query_that_spark_does_not_tell(lake, monkeypatch):
    town(lake)
    with pytest.raises(PolicyError, match="could be written twice: use foreachBatch"):
        Write(lake, query=None).task(0, 1, monkeypatch=monkeypatch)
    assert list(lake.warehouse.rglob("*.parquet")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streaming-query-id": "q", "streaming-epoch-id": "1"}, "for the writes of foreachBatch"),
        ({"overwrite-mode": "dynamic"}, "overwrite-mode"),
        ({"fanout-enabled": "true"}, "icelock.spark.write_to"),
        ({"branch": "nope"}, "has no branch 'nope'"),
    ],
)
def test_options_that_a_sink_does_not_have(lake, options, message):
    town(lake)
    with pytest.raises(PolicyError, match=message):
        Write(lake, **options)


def test_what_the_tasks_of_a_sink_get_has_no_settings(lake):
    town(lake)
    planned = Write(lake).planned
    assert not any(secret in planned for secret in (*KEYS.values(), KEY, b"counting_kms"))
