"""The Arrow PyCapsule interface of what gives record batches: other libraries take it as it is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyarrow as pa


class ArrowStream:
    """Rows that pandas, Polars, DuckDB, narwhals and others take without a call, a batch at a time.

    Each taking reads anew. What is raised meanwhile crosses the C interface as text only: the other library raises its own error.
    """

    @abstractmethod
    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a capsule of a C stream; ``requested_schema`` is one of a C schema to cast to, if Arrow can."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)
