"""A scan as an Arrow dataset, for engines that push columns and filters into one: DuckDB, DataFusion, Polars' ``scan_pyarrow_dataset``.

They ask a dataset, or its fragments, for a ``scanner`` with columns and a filter in Arrow's words, and take the filter for applied. Here a
reader with keys gives the rows; Arrow applies the filter to each batch. pyarrow's own datasets read files and have no keys, so what else
they have is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from icelock.errors import PolicyError
from icelock.plan.filters.of_arrow import of_arrow
from icelock.table.read.pushed import PushedScan


class ScanDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """An Arrow dataset of one version of a table; each scanner reads anew.

    Args:
        source: a table, or a scan of one.

    Raises:
        PolicyError: as ``PushedScan``.
    """

    def __init__(self, source: Any) -> None:  # pyarrow's would refuse; there is no C++ dataset behind this one
        self._pushed = PushedScan(source)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._pushed.schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_hints: Any) -> ds.Scanner:  # noqa: A002 - pyarrow's name
        """Return a scanner that can be read once.

        Args:
            columns: the columns, in their order; None: all.
            filter: the rows, by Arrow's rules.
            _hints: of pyarrow's scanners: sizes of batches, read-ahead, threads.
        """
        names = list(self.schema.names) if columns is None else list(columns)
        chosen = pa.schema([self.schema.field(name) for name in names])
        return ds.Scanner.from_batches(self._batches(names, filter), schema=chosen)

    def _batches(self, names: list[str], expression: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        if expression is None:
            yield from (batch.select(names) for batch in self._pushed.batches(names))
            return
        # Arrow does not say which columns a filter needs; one that is not in its text is not needed.
        text = str(expression)
        needed = {*names, *(name for name in self.schema.names if name in text or not name.isidentifier())}
        for batch in self._pushed.batches(needed, of_arrow(expression, self.schema)):
            yield batch.filter(expression).select(names)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[WholeDataset]:  # noqa: A002 - pyarrow's name
        """Yield the one part, which is all; ``filter`` is that of its scanner too."""
        del filter
        yield WholeDataset(self)

    def _refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise PolicyError("a scan of a table is not a dataset of files: use scanner(columns=.., filter=..), or the scan's own methods")

    filter = join = join_asof = replace_schema = sort_by = _refuse


class WholeDataset:
    """The one fragment of a ``ScanDataset``, with what DataFusion asks of a fragment."""

    def __init__(self, dataset: ScanDataset) -> None:
        self._dataset = dataset

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> ds.Scanner:
        """Return a scanner, as the dataset's; ``schema`` is the dataset's."""
        del schema
        return self._dataset.scanner(**options)
