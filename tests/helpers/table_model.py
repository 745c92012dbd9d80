"""A table in plain Python beside the real one: rows by id, filters as predicates with SQL's three values, row lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.verify.verify_table import verify

Row = tuple[int, int | None, str | None]
COLUMNS = ("id", "n", "s")
LINEAGE = (*COLUMNS, "_row_id", "_last_updated_sequence_number")
ARROW = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", pa.string())])
MASTER = b"0123456789012345"


def row(number: int) -> Row:
    """Row ``number``: nulls in both other columns, few values in ``n``."""
    return number, None if number % 5 == 4 else number % 3, None if number % 7 == 6 else f"canary-{number % 11}"


def arrow(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS, one, strict=True)) for one in rows], ARROW)


@dataclass(frozen=True)
class Filter:
    """A filter's text, and whether it is true of a row: a comparison with null is not."""

    text: str
    matches: Callable[[Row], bool]


def by_id(first: int, last: int) -> Filter:
    return Filter(f"id >= {first} and id <= {last}", lambda r: first <= r[0] <= last)


def one_of(*numbers: int) -> Filter:
    return Filter(f"id in ({', '.join(map(str, numbers))})", lambda r: r[0] in numbers)


def n_is(value: int) -> Filter:
    return Filter(f"n = {value}", lambda r: r[1] == value)


def n_is_not(value: int) -> Filter:
    return Filter(f"n != {value}", lambda r: r[1] is not None and r[1] != value)


S_NULL = Filter("s is null", lambda r: r[2] is None)
N_NULL_OR_LATE = Filter("n is null or s > 'canary-5'", lambda r: r[1] is None or (r[2] is not None and r[2] > "canary-5"))
ALL = Filter("true", lambda r: True)  # noqa: ARG005


@dataclass
class Model:
    """Live rows of one branch, each with the sequence number that added it; rows of every snapshot; row ids once seen."""

    rows: dict[int, tuple[Row, int]] = field(default_factory=dict)
    snapshots: dict[int, list[Row]] = field(default_factory=dict)
    row_ids: dict[int, int] = field(default_factory=dict)

    def add(self, rows: Iterable[Row], table: Any) -> None:
        number = table.current_snapshot().sequence_number
        self.rows.update({one[0]: (one, number) for one in rows})
        self._note(table)

    def remove(self, which: Filter, table: Any) -> int:
        gone = [number for number, (one, _) in self.rows.items() if which.matches(one)]
        for number in gone:
            del self.rows[number]
        self._note(table)
        return len(gone)

    def _note(self, table: Any) -> None:
        if table.current_snapshot() is not None:
            self.snapshots[table.current_snapshot().snapshot_id] = [one for one, _ in self.rows.values()]

    def check(self, table: Any, *, time_travel: bool = True) -> None:
        """The table's rows, their lineage and all its snapshots are the model's."""
        found = table.scan(selected_fields=LINEAGE).to_arrow().to_pylist()
        assert sorted((r["id"], r["n"], r["s"]) for r in found) == sorted((one for one, _ in self.rows.values()), key=lambda r: r[0])
        assert {r["id"]: r["_last_updated_sequence_number"] for r in found} == {one[0]: number for one, number in self.rows.values()}
        ids = {r["id"]: r["_row_id"] for r in found}
        assert len(set(ids.values())) == len(ids)
        assert all(self.row_ids.setdefault(number, row_id) == row_id for number, row_id in ids.items())
        assert table.scan().count() == len(self.rows)
        if time_travel:
            for snapshot_id, rows in self.snapshots.items():
                assert rows_of(table, snapshot_id=snapshot_id) == sorted(rows, key=lambda r: r[0])


def rows_of(table: Any, **scan: Any) -> list[Row]:
    found = table.scan(**scan).to_arrow().to_pylist()
    return sorted(((r["id"], r["n"], r["s"]) for r in found), key=lambda r: r[0])


def verified(table: Any, key: bytes = MASTER) -> dict[str, Any]:
    """The independent reader's report: keys unique, lengths, counts, row ids, vectors, first bytes, nothing left over."""
    location = table.catalog.load_table(table.name()).metadata_location
    report = verify(Path(location.removeprefix("file://")), {"keyA": [key]})
    assert report["unreached_files"] == 0
    return report


def live_entries(table: Any, snapshot: Any = None) -> list[tuple[Any, Any]]:
    """Manifest and entry of every live file."""
    snapshot = snapshot or table.current_snapshot()
    return [(m, e) for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]


def delete_entries(table: Any) -> list[Any]:
    return [e for m, e in live_entries(table) if int(m.content) == 1]
