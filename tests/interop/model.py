"""A table as plain Python: rows of ``id`` and ``s`` as a list, and what operations of either engine make of it.

Each operation is said three times: for the list, as SQL or Iceberg's API for Java, as PyIceberg's calls for icelock.

Not here: comparing (``test_histories``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tests.interop.compare import canonical
from tests.interop.features_schema import I64, TEXT, table_of
from tests.interop.matrix import Engines
from tests.interop.our_side import ArrowWriter, SparkWriter

Row = tuple[int, str | None]


def arrow(rows: list[Row]) -> pa.Table:
    """Return rows as an Arrow table."""
    return table_of(id=(I64, [i for i, _ in rows]), s=(TEXT, [s for _, s in rows]))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Rows that a step is about: as a filter that both engines parse, and in Python."""

    where: str
    takes: Callable[[Row], bool]


@dataclass
class History:
    """A table under change; ``log`` says what was done, for a failure's message."""

    engines: Engines
    table: str
    draw: random.Random
    rows: list[Row] = field(default_factory=list)
    next_id: int = 0
    log: list[str] = field(default_factory=list)

    def expected(self) -> list[str]:
        """Return the rows that every reader must see."""
        return canonical(arrow(self.rows))

    def new_rows(self) -> list[Row]:
        """Return rows with ids that were not there."""
        count = self.draw.randrange(1, 9)
        made: list[Row] = [(self.next_id + i, self.draw.choice(("a", "b b=%2F", "ä", None))) for i in range(count)]
        self.next_id += count
        return made

    def choose(self, *, undecided: bool = True) -> Choice:
        """Return some rows: by ids, by text, or (if ``undecided``) by a text that they do not have, which a null is neither."""
        low = self.draw.randrange(max(1, self.next_id))
        high = low + self.draw.randrange(1, 6)
        text = self.draw.choice(("a", "ä"))
        ids = sorted({self.draw.randrange(max(2, self.next_id)) for _ in range(3)} | {low, high})
        choices = [
            Choice(where=f"id >= {low} and id < {high}", takes=lambda row: low <= row[0] < high),
            Choice(where=f"id in ({', '.join(map(str, ids))})", takes=lambda row: row[0] in ids),
            Choice(where=f"s = '{text}'", takes=lambda row: row[1] == text),
            Choice(where=f"s is null or id = {low}", takes=lambda row: row[1] is None or row[0] == low),
        ]
        if undecided:
            choices.append(Choice(where=f"s != '{text}' and id < {high}", takes=lambda row: row[1] not in {text, None} and row[0] < high))
        return self.draw.choice(choices)

    def append(self, write: Callable[[str, pa.Table], None], name: str) -> None:
        """Append by one of the writers."""
        rows = self.new_rows()
        self.log.append(f"{name} appends {rows}")
        write(self.table, arrow(rows))
        self.rows += rows


def java_insert(history: History) -> None:
    """Append by Java."""
    history.append(history.engines.java.insert, "Java")


def our_append(history: History) -> None:
    """Append by icelock in plain Python."""
    history.append(ArrowWriter(history.engines.ours), "icelock")


def our_spark_append(history: History) -> None:
    """Append by icelock in Spark."""
    history.append(SparkWriter(history.engines.ours), "icelock in Spark")


def java_delete(history: History) -> None:
    """Delete by SQL; not by ``!=``: where a whole file seems to match, Java 1.12.0 deletes the nulls in it too."""
    choice = history.choose(undecided=False)
    history.log.append(f"Java deletes {choice.where}")
    history.engines.java.sql(f"DELETE FROM {{t}} WHERE {choice.where}", t=history.table)
    history.rows = [row for row in history.rows if not choice.takes(row)]


def our_delete(history: History) -> None:
    """Delete by icelock."""
    choice = history.choose()
    history.log.append(f"icelock deletes {choice.where}")
    history.engines.ours.table(history.table).delete(choice.where)
    history.rows = [row for row in history.rows if not choice.takes(row)]


def java_update(history: History) -> None:
    """Update by SQL."""
    choice = history.choose()
    history.log.append(f"Java updates {choice.where}")
    history.engines.java.sql(f"UPDATE {{t}} SET s = 'u' WHERE {choice.where}", t=history.table)
    history.rows = [(row[0], "u") if choice.takes(row) else row for row in history.rows]


def our_overwrite(history: History) -> None:
    """Replace the rows that match by new ones."""
    choice, rows = history.choose(), history.new_rows()
    history.log.append(f"icelock overwrites {choice.where} by {rows}")
    history.engines.ours.table(history.table).overwrite(arrow(rows), overwrite_filter=choice.where)
    history.rows = [row for row in history.rows if not choice.takes(row)] + rows


def java_equality_delete(history: History) -> None:
    """Delete two ids by equality, which hits what is there and nothing later."""
    java = history.engines.java
    ids = [history.draw.randrange(max(1, history.next_id)) for _ in range(2)]
    history.log.append(f"Java deletes by equality {ids}")
    java.jvm.RowChanges.equalityDelete(java.table(history.table), "parquet", java.listing(["id"]), java.rows(*({"id": i} for i in ids)))
    history.rows = [row for row in history.rows if row[0] not in ids]


def java_compact(history: History) -> None:
    """Rewrite all data files; no row changes."""
    history.log.append("Java compacts")
    history.engines.java.call("rewrite_data_files", history.table, "options => map('rewrite-all', 'true')")


def our_compact(history: History) -> None:
    """Rewrite all data files; no row changes."""
    history.log.append("icelock compacts")
    history.engines.ours.table(history.table).maintenance.compact(options={"rewrite-all": "true"})


def java_rewrite_manifests(history: History) -> None:
    """Rewrite manifests; no row changes."""
    history.log.append("Java rewrites manifests")
    history.engines.java.call("rewrite_manifests", history.table)


OPERATIONS: Final = {
    java_insert: 3,
    our_append: 3,
    our_spark_append: 1,
    java_delete: 2,
    our_delete: 4,
    java_update: 2,
    our_overwrite: 2,
    java_equality_delete: 1,
    java_compact: 1,
    our_compact: 1,
    java_rewrite_manifests: 1,
}
"""Operations and how often they come."""
