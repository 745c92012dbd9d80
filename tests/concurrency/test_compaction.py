"""Writers beside a compaction or ``optimize`` that runs over and over: every row is there once, as written last, and every row id once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException

from icelock.maintenance import Outcome
from tests.concurrency.race_places import Place
from tests.concurrency.whole_table import assert_whole

WRITERS, STEPS, ROWS = 8, 2, 4
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
RETRY = {"commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "5", "commit.retry.max-wait-ms": "50"}


def rows(ids: list[int], text: str) -> pa.Table:
    return pa.table({"id": ids, "text": [text] * len(ids)}, schema=SCHEMA)


def write(place: Place, writer: int) -> dict[int, str]:
    """Append, update and delete rows of ids that only this writer has; return what must be left of them."""
    table, left = place.load(), {}
    for step in range(STEPS):
        ids = [1000 * writer + 10 * step + number for number in range(ROWS)]
        table.append(rows(ids, "new"))
        left.update(dict.fromkeys(ids, "new"))
        again(lambda ids=ids: table.refresh().upsert(rows(ids[:1], "changed"), ["id"]))
        left[ids[0]] = "changed"
        table.delete(f"id = {ids[1]}")
        del left[ids[1]]
    return left


def again(upsert: Any) -> None:
    """Upsert, and once more if another writer rewrote rows of the same file; that a compaction moved them is no conflict."""
    for _ in range(50):
        try:
            upsert()
        except ValidationException as e:
            if "moved rows" in str(e):
                raise
            continue
        return
    raise AssertionError("an upsert met other writers fifty times")


def compact(table: Any) -> int:
    """Compact; return how many commits that made."""
    return len(table.maintenance.compact(options={"min-input-files": "2", "delete-file-threshold": "1"}).snapshots)


def optimize(table: Any) -> int:
    """Compact, take deleted rows out of the data, expire what is older than now; return how many commits the first two made."""
    done = table.maintenance.optimize(options={"min-input-files": "2", "deleted-rows-ratio": "0.01", "leftovers": "false"})
    assert not [step for step in done.steps if step.outcome is Outcome.FAILED], done
    return sum(len(step.result.snapshots) for step in done.steps if step.name in {"compact", "rewrite-deletes"} and step.result)


def over_and_over(place: Place, upkeep: Callable[[Any], int], done: threading.Event) -> int:
    """Do it until the writers have ended, and once more; return how many commits that made."""
    table, made = place.load(), 0
    while True:
        last = done.is_set()
        made += upkeep(table)
        if last:
            return made


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("place", "mode", "upkeep"),
    [("sqlite", "copy-on-write", compact), ("postgres", "merge-on-read", optimize)],
    indirect=["place"],
)
def test_writers_beside_a_compaction(place: Place, mode: str, upkeep: Callable[[Any], int]) -> None:
    properties = {**RETRY, "write.delete.mode": mode, "write.merge.mode": mode, "write.delete.isolation-level": "snapshot"}
    place.make(SCHEMA, properties)
    done = threading.Event()
    with ThreadPoolExecutor(WRITERS + 1) as pool:
        compaction = pool.submit(over_and_over, place, upkeep, done)
        try:
            written = list(pool.map(lambda writer: write(place, writer), range(WRITERS)))
        finally:
            done.set()
        assert compaction.result() > 0
    table = place.load()
    expected = {row_id: text for left in written for row_id, text in left.items()}
    found: list[dict[str, Any]] = table.scan(selected_fields=("*", "_row_id")).to_arrow().to_pylist()
    assert sorted((row["id"], row["text"]) for row in found) == sorted(expected.items())
    assert len({row["_row_id"] for row in found}) == len(found)
    assert_whole(table)
