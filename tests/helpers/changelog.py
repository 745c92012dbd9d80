"""What a changelog does to rows: the rows at its start become those at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.golden.rows import rows, sorted_json

LABELS = ["_change_type", "_change_ordinal", "_commit_snapshot_id"]
GOES = ("DELETE", "UPDATE_BEFORE")
COMES = ("INSERT", "UPDATE_AFTER")


def told(changes: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a changelog without the snapshot: columns, type, ordinal."""
    return [tuple(one.values())[:-1] for one in changes.to_arrow().to_pylist()]


def of_types(changes: pa.Table, types: Iterable[str]) -> Counter[str]:
    found = changes.filter(pc.is_in(changes["_change_type"], pa.array(list(types)))).drop_columns(LABELS)
    return Counter(map(str, rows(found)))


def check_applied(before: list[Any], changes: pa.Table, after: list[Any]) -> None:
    """Rows that go are there, and what is left with those that come are the rows after."""
    held = Counter(map(str, sorted_json(before)))
    for ordinal in sorted(set(changes["_change_ordinal"].to_pylist())):
        of_commit = changes.filter(pc.equal(changes["_change_ordinal"], ordinal))
        goes = of_types(of_commit, GOES)
        assert goes <= held, "a row that is not there was deleted"
        held = held - goes + of_types(of_commit, COMES)
    assert held == Counter(map(str, sorted_json(after)))


def check_pairs(changes: pa.Table) -> None:
    """Each row before an update is followed by the one after it, of the same row id and another value."""
    listed = changes.to_pylist()
    for one, other in zip([None, *listed], [*listed, None], strict=True):
        was, now = one and one["_change_type"], other and other["_change_type"]
        assert (was == "UPDATE_BEFORE") == (now == "UPDATE_AFTER")
        if one is not None and other is not None and was == "UPDATE_BEFORE":
            assert one["_row_id"] == other["_row_id"]
            labels = {"_change_type", "_change_ordinal", "_commit_snapshot_id"}
            assert {k: v for k, v in one.items() if k not in labels} != {k: v for k, v in other.items() if k not in labels}
