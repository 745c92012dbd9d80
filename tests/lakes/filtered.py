"""A table for filters of every kind: each value of ``tests.helpers.filter_model`` beside several of the others, in files with bounds."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.helpers.filter_model import VALUES
from tests.lakes.sqlite import KEYED, TestLake

ROWS: list[dict[str, Any]] = [
    {"id": index, **{name: values[(index + index // 7 * shift) % len(values)] for shift, (name, values) in enumerate(VALUES.items())}}
    for index in range(84)
]
_SCHEMA = pa.schema(
    {"id": pa.int64(), "n": pa.int64(), "f": pa.float64(), "s": pa.string(), "b": pa.bool_(), "d": pa.date32(), "m": pa.decimal128(9, 2)}
)


def filtered_table(folder: Path) -> Any:
    """Return a table with ``ROWS``, one file for each value of ``n``."""
    made = TestLake.with_namespace(folder).catalog().create_table("db.t", _SCHEMA, properties=KEYED)
    for _, rows in itertools.groupby(sorted(ROWS, key=lambda row: (row["n"] is None, row["n"] or 0)), key=lambda row: row["n"]):
        made.append(pa.Table.from_pylist(list(rows), _SCHEMA))
    return made
