"""Rows for engines that push columns, filters and limits down: Polars (``icelock.polars``) and those that take an Arrow dataset.

What is read is fixed when it is made: one version of the table, or what a scan says. Each reading plans anew.

Not here: what a filter of such an engine means (``plan.filters.weaker``).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And
from pyiceberg.schema import Schema

from icelock.arrow.read.task import read_task
from icelock.errors import PolicyError
from icelock.plan.filters.weaker import Foreign, weaker
from icelock.table.read.scan import AddedFiles, DataScan, first_rows


class PushedScan:
    """A scan to which more can be pushed down.

    Args:
        source: a table of icelock's, or a scan of one; the scan's filter, columns, snapshot and limit hold.

    Raises:
        PolicyError: it is neither, a column cannot be read, or a filter does not fit.
    """

    def __init__(self, source: Any) -> None:
        self._scan = _scan_of(source)
        self._projection = self._scan.projection()
        self.schema: pa.Schema = self._scan.read_context().arrow_schema

    @cached_property
    def _full_schema(self) -> Schema:
        return self._scan.full_schema

    def batches(self, columns: Collection[str] | None, foreign: Foreign = None, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield batches, file after file, with at least the rows that are asked for, in the order of ``schema``.

        Args:
            columns: names in ``schema``; None: all. Without any, batches have rows all the same.
            foreign: rows for which this is not true may be left out.
            limit: the first rows are enough; with it ``foreign`` is not used, as it would change which rows are first.

        Raises:
            IntegrityError: bytes were changed.
        """
        limits = [one for one in (self._scan.limit, limit) if one is not None]
        wanted = [field for field in self._projection.fields if columns is None or field.name in columns]
        scan = self._scan
        if not limits:
            pushed = weaker(foreign, self._full_schema)
            added = scan.exact_filter if isinstance(pushed, AlwaysTrue) else And(scan.exact_filter, pushed)
            scan = scan.update(row_filter=added, case_sensitive=True)
        context = scan.read_context(Schema(*wanted))
        batches = itertools.chain.from_iterable(read_task(context, task) for task in scan.iter_tasks())
        yield from first_rows(batches, min(limits)) if limits else batches


def _scan_of(source: Any) -> DataScan:
    if hasattr(source, "scan"):
        source = source.scan()
    if isinstance(source, DataScan) and not isinstance(source, AddedFiles):
        return source
    if isinstance(source, str):
        raise PolicyError(f"expected a table, got its name: catalog.load_table({source!r}) loads it")
    raise PolicyError(
        f"expected a table, or a scan of one, got {type(source).__name__}: an incremental scan and changes are Arrow streams, which others "
        "take as they are (polars.DataFrame(scan))"
    )
