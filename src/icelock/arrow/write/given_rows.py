"""Rows as users give them: an Arrow table or a reader of batches, and for everything else the call that makes a table of it.

Not here: whether the columns fit (``arrow.write.conform``).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from icelock.errors import PolicyError

# By the first part of a type's module and its name, so that no library is imported to be looked for.
_CALLS: Final = {
    ("pandas", "DataFrame"): "pa.Table.from_pandas(df, preserve_index=False)",
    ("polars", "DataFrame"): "df.to_arrow()",
    ("polars", "LazyFrame"): "df.collect().to_arrow()",
    ("pyspark", "DataFrame"): 'df.write.format("icelock").mode("append").save("catalog.namespace.table"), or df.toArrow()',
    ("duckdb", "DuckDBPyRelation"): "df.to_arrow_table()",
    ("numpy", "ndarray"): 'pa.table({"column": array})',
    ("builtins", "dict"): "pa.table(columns) of a dict of columns, pa.Table.from_pylist([row]) of one row",
}


def check_rows(df: Any) -> None:
    """Check that rows are given in a form that can be written.

    Raises:
        PolicyError: they are not; says how to make a table of them.
    """
    if isinstance(df, (pa.Table, pa.RecordBatchReader)):
        return
    kind = type(df)
    said = "None" if df is None else f"{kind.__module__.partition('.')[0]}.{kind.__name__}".removeprefix("builtins.")
    raise PolicyError(f"expected a pyarrow Table or RecordBatchReader, got {said}: make a Table by {_call(df)} (import pyarrow as pa)")


def _call(df: Any) -> str:
    if isinstance(df, pa.RecordBatch):
        return "pa.Table.from_batches([batch])"
    if isinstance(df, (list, tuple)) and df and all(isinstance(one, pa.RecordBatch) for one in df):
        return "pa.Table.from_batches(batches)"
    if isinstance(df, (list, tuple)):
        return "pa.Table.from_pylist(rows) of a list of dicts"
    kind = type(df)
    found = _CALLS.get((kind.__module__.partition(".")[0], kind.__name__))
    return found or "pa.Table.from_pandas(df), pa.Table.from_pylist(rows) or pa.table(columns)"
