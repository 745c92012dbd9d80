"""What a writer does, in a thread or in a process."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import ValidationException

import icelock
from tests.lakes.sqlite import people

ROWS: Final = 10
GROUPS: Final = 4
SCHEMA: Final = pa.schema([("id", pa.int64()), ("grp", pa.int64())])


def appends(table: Any, number: int, count: int) -> None:
    """Append ``count`` times; ids tell writer and turn."""
    for turn in range(count):
        table.append(people((number * count + turn) * ROWS, ROWS))


def rows_of(numbers: list[int], group: int) -> pa.Table:
    return pa.table({"id": numbers, "grp": [group] * len(numbers)}, schema=SCHEMA)


def mixed(table: Any, number: int, count: int) -> list[dict[str, Any]]:
    """Append, delete and overwrite groups of rows; each snapshot says what was done and on which one it was planned.

    Returns what was refused with a ``ValidationException``; any other failure is an error.
    """
    chance = random.Random(number)
    refused = []
    for turn in range(count):
        tx = table.transaction()
        group = chance.randrange(GROUPS)
        fresh = [(number * count + turn) * 2 + 1000, (number * count + turn) * 2 + 1001]
        what = chance.choice(("append", "append", "delete", "overwrite"))
        done = {"what": what, "group": group, "fresh": fresh, "base": tx.table_metadata.current_snapshot_id}
        properties = {"test.done": json.dumps(done)}
        try:
            if what == "append":
                tx.append(rows_of(fresh, group), snapshot_properties=properties)
            elif what == "delete":
                tx.delete(f"grp = {group}", snapshot_properties=properties)
            else:
                tx.overwrite(rows_of(fresh, group), f"grp = {group}", snapshot_properties=properties)
            tx.commit_transaction()
        except ValidationException:
            refused.append({**done, "seen": table.refresh().metadata.current_snapshot_id})
    return refused


def _appends(wanted: dict[str, Any], number: int) -> None:
    appends(_table(wanted), number, wanted["count"])


def _mixed(wanted: dict[str, Any], number: int) -> None:
    refused = mixed(_table(wanted), number, wanted["count"])
    with open(f"{wanted['out']}/{number}.json", "w", encoding="utf-8") as out:  # noqa: PTH123
        json.dump(refused, out)


def _table(wanted: dict[str, Any]) -> Any:
    name = "hive" if wanted["properties"]["type"] == "hive" else "test"
    return icelock.load_catalog(name, **wanted["properties"]).load_table(wanted["table"])


JOBS: Final[dict[str, Callable[[dict[str, Any], int], None]]] = {"appends": _appends, "mixed": _mixed}


def states(steps: list[dict[str, Any]], first: dict[int, int], *, serializable: bool, bases: list[int]) -> Iterator[dict[int, int]]:
    """Yield the rows (id: group) after each step in commit order; ``bases`` are the numbers of steps that were there when planned.

    Serializable: as if each was done when it was committed. Snapshot isolation: a delete takes the rows that its plan saw and that are
    still there.
    """
    history = [first]
    for step, base in zip(steps, bases, strict=True):
        now = dict(history[-1])
        if step["what"] != "append":
            seen = now if serializable else history[base]
            now = {number: group for number, group in now.items() if group != step["group"] or number not in seen}
        if step["what"] != "delete":
            now.update(dict.fromkeys(step["fresh"], step["group"]))
        history.append(now)
        yield now
