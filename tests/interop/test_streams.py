"""Streams of both engines on the same encrypted tables: out of them, into them, and one query that goes from one engine to the other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.checkpoints import forget_last_batch
from tests.interop.model import arrow
from tests.interop.our_side import plain_files
from tests.interop.session import DATABASE

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]
OURS, JAVAS = f"ours.{DATABASE}", f"ice.{DATABASE}"
EPOCH = "spark.sql.streaming.epochId"


def rows(*ids: int) -> Any:
    return arrow([(number, f"row {number}") for number in ids])


def numbers(read: Any) -> list[int]:
    return sorted(row["id"] for row in read.to_pylist())


def epochs(table: Any) -> list[str]:
    return [one.summary.additional_properties.get(EPOCH, "") for one in table.snapshots()]


@pytest.fixture
def copy(engines, tmp_path):
    """Stream what a table has into another one, each named with its engine's catalog; return the query's id."""

    def run(source: str, target: str, checkpoint: str) -> str:
        frame = engines.session.spark.readStream.table(source)
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        query = writer.toTable(target)
        query.awaitTermination()
        return str(query.id)

    return run


def test_each_reads_and_writes_streams_of_the_others_tables(engines, new_table, copy, tmp_path):
    ours, java, source = engines.ours, engines.java, new_table("stream")
    ours.create(source, arrow([]).schema)
    targets = {engine: new_table("stream_into") for engine in (OURS, JAVAS)}
    for target in targets.values():
        ours.create(target, arrow([]).schema)
    wanted: list[int] = []
    for turn in (0, 10):
        ours.table(source).append(rows(turn, turn + 1))
        java.insert(source, rows(turn + 2, turn + 3))
        wanted += range(turn, turn + 4)
        for engine, target in targets.items():
            copy(f"{engine}.{source}", f"{engine}.{target}", engine)
            assert numbers(java.read(target)) == numbers(ours.read(target)) == wanted, engine
    assert epochs(ours.table(targets[OURS])) == epochs(ours.table(targets[JAVAS])) == ["0", "1"]
    assert plain_files(ours.table(targets[OURS]).location()) == []
    # A batch that the other engine's writer has written runs again: it is known by its snapshot.
    for engine, other in ((OURS, JAVAS), (JAVAS, OURS)):
        forget_last_batch(tmp_path / engine)
        copy(f"{engine}.{source}", f"{other}.{targets[engine]}", engine)
        assert numbers(ours.read(targets[engine])) == wanted, f"{engine}'s query went on with {other}'s writer"
        assert epochs(ours.table(targets[engine])) == ["0", "1"]
    # And the source: each goes on from the other's checkpoint, whose offsets are of one form.
    ours.table(source).append(rows(20))
    for engine, other in ((OURS, JAVAS), (JAVAS, OURS)):
        copy(f"{other}.{source}", f"{other}.{targets[engine]}", engine)
        assert numbers(java.read(targets[engine])) == [*wanted, 20]
