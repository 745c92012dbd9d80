"""Rows taken out of a plain table of version 1 or 2: files that have some of them are written again without them, by this process.

Which rows those are says the reader of scans, so SQL's rules for nulls and NaN hold, and deletes of every kind are applied; PyIceberg's own
delete keeps rows for which a part of the filter is unknown, and refuses equality deletes.

Not here: the commit (``table.plain``, ``spark.statements.plain_tables``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile

from icelock.arrow.read.task import read_task
from icelock.arrow.write.plain_file import data_files
from icelock.arrow.write.row_rewrite import mark_deleted
from icelock.errors import PolicyError
from icelock.io.listing import delete_files
from icelock.plan.task import TaskBuilder
from icelock.plan.whole_files import split_by_coverage
from icelock.table.read.scan import DataScan


def without_rows(scan: DataScan, *, table: str) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files that hold rows of a scan, and new ones with their other rows; on an error no new file is left.

    Raises:
        PolicyError: see ``check_removable``.
    """
    metadata = scan.table_metadata
    whole, searched = split_by_coverage(scan.plan_files(), scan.full_schema, scan.exact_filter)
    context = scan.read_context()
    every_row = replace(context, schema=metadata.schema(), row_filter=AlwaysTrue())
    builder = TaskBuilder([scan.full_schema, *metadata.schemas])
    removed, kept = [task.file for task in whole], list[DataFile]()
    try:
        for planned in searched:
            task = builder.build(planned)
            marked = mark_deleted(context, task)
            if marked.removed or marked.deleted is not None:
                removed.append(planned.file)
            if marked.deleted is not None:
                kept += data_files(metadata, scan.io, read_task(every_row, task, without=marked.deleted))
        check_removable(removed, table=table)
    except BaseException:
        delete_files(scan.io, [file.file_path for file in kept])
        raise
    return removed, kept


def check_removable(files: Sequence[DataFile], *, table: str) -> None:
    """Check that PyIceberg can take these files out of a table.

    Raises:
        PolicyError: one is in a partition of NaN.
    """
    if any(isinstance(value, float) and math.isnan(value) for file in files for value in file.partition._data):  # noqa: SLF001 - a Record
        raise PolicyError(
            f"table {table} is plain, and PyIceberg cannot take files out of its partition of NaN: nothing was committed; change these "
            "rows with Iceberg's own Spark runtime"
        )
