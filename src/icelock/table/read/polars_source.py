"""Polars: encrypted tables as lazy sources; users find it in ``icelock.polars``.

``scan(table)`` is a lazy frame that reads what its query needs: Polars' projection, its predicate as far as Iceberg has words for it, and
its limit come down to the reader, which leaves out files, row groups and columns. Batches come file after file, so that Polars' streaming
engine works through tables that are larger than memory. Polars applies the whole predicate to what it gets, by its own rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from icelock.plan.filters.of_polars import of_polars
from icelock.table.read.pushed import PushedScan

if TYPE_CHECKING:
    from icelock.table.read.scan import DataScan
    from icelock.table.table import Table


def scan(source: Table | DataScan) -> pl.LazyFrame:
    """Return a lazy frame of a table, or of one of its scans.

    It keeps to the table's version of now, and reads anew with every ``collect``. icelock's errors come out of ``collect`` as they are.

    Args:
        source: ``catalog.load_table("db.t")``, also a plain table of icelock's catalogs; or a scan, whose filter (by SQL's rules), columns,
            snapshot and limit hold.

    Raises:
        PolicyError: neither, or a column of a type that cannot be read.
    """
    pushed = PushedScan(source)
    schema = _frame(pushed.schema.empty_table()).schema

    def read(columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _size: int | None) -> Iterator[pl.DataFrame]:
        foreign = None if predicate is None else of_polars(predicate)
        for batch in pushed.batches(columns or None, foreign, rows):
            frame = _frame(pa.Table.from_batches([batch]))
            chosen = frame.select(columns) if columns else frame
            yield chosen if predicate is None else chosen.filter(predicate)

    return register_io_source(read, schema=schema)


def _frame(rows: pa.Table) -> pl.DataFrame:
    found = pl.from_arrow(rows)
    if not isinstance(found, pl.DataFrame):  # which a table always is
        raise TypeError(f"Polars made a {type(found).__name__} of a table")
    return found
