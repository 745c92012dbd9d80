"""How many rows a batch has, whatever the format it is read from.

Not here: reading (``arrow.read.parquet_rows``, ``arrow.read.avro_rows``).
"""

from __future__ import annotations

from typing import Final

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 64 << 20


def batch_rows(rows: int, size: int) -> int:
    """Return the rows of a batch when ``rows`` rows take ``size`` bytes: fewer where a batch would be larger than ``BATCH_BYTES``."""
    width = size // max(1, rows)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, width)))
