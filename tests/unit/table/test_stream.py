"""Offsets of a table's stream, and the files of its batches; which rows were appended when is what each test did."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue

from icelock.errors import FormatError, PolicyError
from icelock.plan.filters.text import parse_filter
from icelock.table.read.stream import BEGINNING, StreamLimits, StreamOffset, StreamRules, TableStream
from tests.lakes.sqlite import KEYED

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("part", pa.int64())])
ALL = StreamLimits()


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": one, "part": one // 10} for one in ids], schema=SCHEMA)


@pytest.fixture
def table(lake):
    """A table of which each append makes a file for each ten."""
    made = lake.catalog().create_table("db.t", SCHEMA, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    with made.update_spec() as spec:
        spec.add_identity("part")
    return made


def stream(table, **rules) -> TableStream:
    table.refresh()
    return TableStream(table.metadata, table.io, StreamRules(**rules), "lake.db.t")


def snapshot_ids(table) -> list[int]:
    return [snapshot.snapshot_id for snapshot in table.refresh().snapshots()]


def ids(made: TableStream, start: StreamOffset, end: StreamOffset, columns=("*",)) -> list[int]:
    return sorted(made.batch(start, end, columns).to_arrow()["id"].to_pylist())


def batches(made: TableStream, limits: StreamLimits = ALL, start: StreamOffset | None = None) -> list[list[int]]:
    """Return the ids of each batch of a stream that is read to its end."""
    found, here = [], start or made.initial()
    while (end := made.latest(here, limits)) is not None:
        found.append(ids(made, here, end))
        here = end
    return found


def every(made: list[list[int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(made))


def test_offsets_are_written_as_java_writes_them():
    text = '{"version":1,"snapshot_id":7,"position":2,"scan_all_files":true}'  # Java's TestStreamingOffset
    assert StreamOffset(7, 2, scan_all_files=True).to_json() == text
    assert StreamOffset.parse(text) == StreamOffset(7, 2, scan_all_files=True)
    assert StreamOffset(-1, -1, scan_all_files=False) == BEGINNING, "Java's START_OFFSET"
    for other in (
        "",
        "7",
        "[]",
        '{"version":1}',
        json.dumps({**json.loads(text), "version": 2}),
        json.dumps({**json.loads(text), "position": "2"}),
        json.dumps({**json.loads(text), "position": -1}),  # the last file, to Python
        json.dumps({**json.loads(text), "scan_all_files": "false"}),
        json.dumps({**json.loads(text), "version": True}),
        "[" * 100_000,
    ):
        with pytest.raises(FormatError):
            StreamOffset.parse(other)


def test_all_that_was_appended_comes_in_order_and_once(table):
    assert stream(table).initial() == BEGINNING
    assert stream(table).latest(BEGINNING, ALL) is None
    table.append(rows(1, 2))
    first = stream(table).latest(BEGINNING, ALL)
    assert first == StreamOffset(snapshot_ids(table)[0], 1)
    assert ids(stream(table), BEGINNING, first) == [1, 2]
    assert stream(table).latest(first, ALL) is None
    table.append(rows(3, 11))
    table.append(rows(4))
    second = stream(table).latest(first, ALL)
    assert second == StreamOffset(snapshot_ids(table)[2], 1)
    assert ids(stream(table), first, second) == [3, 4, 11]
    assert batches(stream(table)) == [[1, 2, 3, 4, 11]]


def test_limits_of_files_and_rows(table):
    table.append(rows(1, 2, 3, 11, 12, 21))  # files of three rows, two and one
    table.append(rows(31, 32))
    *of_first, of_second = batches(stream(table), StreamLimits(files=1))
    assert sorted(of_first) == [[1, 2, 3], [11, 12], [21]]
    assert of_second == [31, 32]
    for files in (2, 3):
        made = batches(stream(table), StreamLimits(files=files))
        assert len(made) == 2
        assert every(made) == [1, 2, 3, 11, 12, 21, 31, 32]
    for most in (3, 4, 5):
        made = batches(stream(table), StreamLimits(rows=most))
        assert every(made) == [1, 2, 3, 11, 12, 21, 31, 32]
        assert all(len(batch) <= most for batch in made)
    assert len(batches(stream(table), StreamLimits(rows=1))) == 4, "a file is read as a whole"
    assert len(batches(stream(table), StreamLimits(rows=1000, files=1))) == 4
    assert len(batches(stream(table), StreamLimits(rows=1, files=1000))) == 4


def test_a_batch_may_end_within_a_snapshot_and_others_add_to_the_table(table):
    table.append(rows(1, 11, 21))
    one = stream(table).latest(BEGINNING, StreamLimits(files=2))
    assert one.position == 2
    table.append(rows(31))
    table.maintenance.compact(options={"rewrite-all": "true"})
    two = stream(table).latest(one, ALL)
    assert sorted(ids(stream(table), BEGINNING, one) + ids(stream(table), one, two)) == [1, 11, 21, 31]


def test_a_stream_that_begins_with_a_compaction_has_all_its_rows(table):
    table.append(rows(1))
    table.append(rows(2))
    table.maintenance.compact(options={"rewrite-all": "true"})
    *older, compacted = snapshot_ids(table)
    table.maintenance.expire_snapshots().by_ids(older).commit()
    assert stream(table).initial() == StreamOffset(compacted, 0, scan_all_files=True)
    assert batches(stream(table)) == [[1, 2]]
    with pytest.raises(PolicyError, match="what was appended in between cannot be determined"):
        stream(table, from_ms=1).initial()


def test_compaction_moves_the_offset_and_gives_nothing(table):
    table.append(rows(1))
    table.append(rows(2))
    end = stream(table).latest(BEGINNING, ALL)
    table.maintenance.compact(options={"rewrite-all": "true"})
    moved = stream(table).latest(end, ALL)
    assert moved == StreamOffset(snapshot_ids(table)[-1], 1)
    assert ids(stream(table), end, moved) == []
    assert stream(table).latest(moved, ALL) is None
    table.append(rows(3))
    table.maintenance.expire_snapshots().by_id(end.snapshot_id).commit()
    assert batches(stream(table), start=moved) == [[3]], "what is expired behind the offset is no loss"


@pytest.mark.parametrize(
    ("change", "operation", "option"),
    [
        (lambda table: table.delete("id = 1"), "delete", "skip_deletes"),
        (lambda table: table.overwrite(rows(5)), "overwrite", "skip_overwrites"),
    ],
)
def test_what_is_not_appended_is_an_error_behind_what_comes_before_it(table, change, operation, option):
    table.append(rows(1, 2))
    end = stream(table).latest(BEGINNING, ALL)
    table.append(rows(3))
    change(table)
    changed = next(one.snapshot_id for one in table.refresh().snapshots() if one.summary.operation.value == operation)
    table.append(rows(4))
    made = stream(table)
    before = made.latest(end, ALL)
    assert ids(made, end, before) == [3]
    with pytest.raises(
        PolicyError,
        match=f"snapshot {changed} is of operation {operation}.*streaming-skip-{operation}-snapshots=true.*start-snapshot-id={changed}",
    ):
        made.latest(before, ALL)
    other = {"skip_deletes": "skip_overwrites", "skip_overwrites": "skip_deletes"}[option]
    if operation == "delete":
        with pytest.raises(PolicyError, match="streaming-skip"):
            stream(table, **{other: True}).latest(before, ALL)
    assert batches(stream(table, skip_deletes=True, skip_overwrites=True), start=end) == [[3, 4]]
    assert batches(stream(table, after=changed)) == [[4]], "the way on that the message names"


def test_where_a_stream_begins(table):
    for one in (1, 2, 3):
        table.append(rows(one))
    first, second, third = table.refresh().snapshots()
    assert batches(stream(table, after=first.snapshot_id)) == [[2, 3]]
    assert batches(stream(table, after=third.snapshot_id)) == []
    assert batches(stream(table, from_ms=second.timestamp_ms)) == [[2, 3]]
    assert batches(stream(table, from_ms=second.timestamp_ms + 1)) == ([[3]] if third.timestamp_ms > second.timestamp_ms else [])
    assert batches(stream(table, from_ms=0)) == [[1, 2, 3]]
    now = stream(table, now=True).initial()
    later = stream(table, from_ms=third.timestamp_ms + 1).initial()
    assert later == BEGINNING
    table.append(rows(4))
    assert batches(stream(table, now=True), start=now) == [[4]]
    with pytest.raises(PolicyError, match="option start-snapshot-id is 5, which is not in the history"):
        stream(table, after=5).initial()


def test_a_time_to_come_leaves_out_what_is_appended_before_it(table):
    table.append(rows(1))
    since = table.current_snapshot().timestamp_ms + 3_600_000
    made = stream(table, from_ms=since)
    assert made.initial() == BEGINNING
    assert made.latest(BEGINNING, ALL) is None
    snapshot = table.metadata.snapshots[0]
    table.append(rows(2))
    table.refresh()
    late = table.metadata.snapshots[-1].model_copy(update={"timestamp_ms": since})
    metadata = table.metadata.model_copy(update={"snapshots": [snapshot, late]})
    made = TableStream(metadata, table.io, StreamRules(from_ms=since), "lake.db.t")
    assert ids(made, BEGINNING, made.latest(BEGINNING, ALL)) == [2]


def test_a_stream_that_begins_behind_an_expiry_has_the_rows_that_are_left(table):
    table.append(rows(1, 2))
    table.append(rows(3, 4))
    table.delete("id = 1")
    table.append(rows(5))
    expired = snapshot_ids(table)
    table.maintenance.expire_snapshots().by_ids(expired[:2]).commit()
    made = stream(table)
    assert made.initial() == StreamOffset(expired[2], 0, scan_all_files=True)
    assert batches(made) == [[2, 3, 4, 5]]
    assert every(batches(made, StreamLimits(files=1))) == [2, 3, 4, 5]
    with pytest.raises(PolicyError, match=f"stream-from-timestamp is 1.*{table.metadata.snapshot_by_id(expired[2]).timestamp_ms}"):
        stream(table, from_ms=1).initial()


def test_an_offset_whose_snapshot_is_gone_says_how_to_go_on(table):
    table.append(rows(1))
    end = stream(table).latest(BEGINNING, ALL)
    table.append(rows(2))
    table.append(rows(3))
    table.maintenance.expire_snapshots().by_id(end.snapshot_id).commit()
    oldest = table.refresh().snapshots()[0]
    for ask in (lambda made: made.latest(end, ALL), lambda made: made.tasks(end, StreamOffset(oldest.snapshot_id, 1))):
        with pytest.raises(
            PolicyError,
            match=f"read up to snapshot {end.snapshot_id}, .*it begins with {oldest.snapshot_id}.*it was expired.*start-snapshot-id",
        ):
            ask(stream(table))


def test_a_rolled_back_offset(table):
    table.append(rows(1))
    first = table.current_snapshot().snapshot_id
    table.append(rows(2))
    end = stream(table).latest(BEGINNING, ALL)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(PolicyError, match=f"read up to snapshot {end.snapshot_id}, .*rolled back"):
        stream(table).latest(end, ALL)


def test_filters_and_columns_of_a_batch(table):
    table.append(rows(1, 11, 21))
    table.append(rows(12, 31))
    made = stream(table)
    end = made.latest(BEGINNING, ALL)
    some = made.batch(BEGINNING, end, ("id",)).filter(parse_filter("part = 1"))
    assert sorted(task.partition[0] for task in some.scan_tasks()) == [1, 1]
    assert some.to_arrow().to_pydict() == {"id": [11, 12]}
    middle = replace(end, snapshot_id=snapshot_ids(table)[0], position=1)
    chosen = made.batch(BEGINNING, middle, ("id",)).filter(parse_filter("part >= 0"))
    assert len(chosen.scan_tasks()) == 1, "files beyond the end stay out"
    assert len(made.batch(BEGINNING, end, ("*",)).filter(AlwaysTrue()).scan_tasks()) == 5


def test_a_batch_that_ends_before_it_begins(table):
    """Offsets of a checkpoint that somebody changed: an error, and not a batch without rows."""
    table.append(rows(1, 11, 21))
    table.append(rows(2))
    first, second = snapshot_ids(table)
    for begin, end in ((StreamOffset(second, 0), StreamOffset(first, 1)), (StreamOffset(first, 2), StreamOffset(first, 1))):
        with pytest.raises(FormatError, match="before it begins"):
            stream(table).tasks(begin, end)


def test_the_last_snapshot_of_a_stream_that_ends(table):
    table.append(rows(1))
    head = stream(table).head
    table.append(rows(2))
    end = stream(table).latest(BEGINNING, StreamLimits(last=head))
    assert ids(stream(table), BEGINNING, end) == [1]
    assert stream(table).latest(end, StreamLimits(last=head)) is None


@pytest.mark.parametrize("before", [0, 1])
def test_a_stream_that_ends_takes_nothing_that_came_after_its_beginning(table, before):
    """Of a table that was empty, or that had older rows only than those that it begins with: it would not end while others append."""
    for one in range(before):
        table.append(rows(one))
    since = {"from_ms": table.metadata.last_updated_ms + 1} if before else {}
    head = stream(table, **since).head
    time.sleep(0.01)
    table.append(rows(2))
    assert ids(stream(table, **since), BEGINNING, stream(table, **since).latest(BEGINNING, StreamLimits())) == [2]
    assert stream(table, **since).latest(BEGINNING, StreamLimits(last=head)) is None
