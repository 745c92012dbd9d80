"""The places of rows to delete, found by Spark alone: tasks gather them in the JVM, and none of them starts a Python worker.

A DELETE has no rows to write, so all that a task has to tell is which positions of which files. No key and no value is in that, so it is
not sealed; it reaches this process as the rows of any query do, as the result of the job that asks for it (``DeletedRows.java``).

Not here: rows that are written in the place of others (``spark.driver.write_here``), the commit (``spark.driver.commit``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import DataFrame

from icelock.spark.driver.interrupts import check
from icelock.spark.sealed.messages import FilesWritten, RowCounts


def deleted_rows(rows: DataFrame, place: Sequence[int]) -> FilesWritten:
    """Return which rows of which files a query finds, each counted once.

    Args:
        rows: of the query.
        place: the columns of its rows with file and position.

    Raises:
        PySparkException: tasks failed, with icelock's error in its message.
    """
    check()
    jvm: Any = rows.sparkSession._jvm
    tasks: list[dict[str, str]] = json.loads(bytes(jvm.icelock.DeletedRows.of(rows._jdf, *place)))
    found: dict[str, BitMap64] = {}
    for task in tasks:
        for path, positions in task.items():
            found[path] = found.get(path, BitMap64()) | BitMap64.deserialize(base64.b64decode(positions))
    return FilesWritten(
        positions={path: bytes(positions.serialize()) for path, positions in found.items()},
        counts=RowCounts(deleted=sum(map(len, found.values()))),
    )
