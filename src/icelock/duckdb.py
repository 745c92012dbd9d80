"""DuckDB: encrypted tables as relations.

DuckDB pushes the columns and most filters of a query into an Arrow dataset, and has no keys: ``relation(table)`` gives it a dataset that
icelock reads (``table.read.dataset``). What it spills to its temporary folder is plain unless told otherwise, see docs/threat-model.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from icelock.table.read.dataset import ScanDataset

if TYPE_CHECKING:
    from icelock.table.read.scan import DataScan
    from icelock.table.table import Table

__all__ = ["relation"]


def relation(source: Table | DataScan, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
    """Return a relation of a table, or of one of its scans; it reads when it is asked for rows, and anew each time.

    Args:
        source: ``catalog.load_table("db.t")``, also a plain table of icelock's catalogs; or a scan, whose filter (by SQL's rules), columns,
            snapshot and limit hold. The version is that of now.
        connection: where the relation is; None: DuckDB's default connection.

    Raises:
        PolicyError: neither, or a column of a type that cannot be read.
    """
    return (connection or duckdb.default_connection()).from_arrow(ScanDataset(source))
