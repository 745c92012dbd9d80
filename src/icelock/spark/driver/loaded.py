"""What the process that names a DataFrame's columns tells those that plan its queries.

Not here: who plans (``spark.driver.plan_read``, ``spark.driver.stream_source``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a DataFrame was made from: all its queries read this snapshot (None: the table had none) with these columns."""

    snapshot_id: int | None
    schema: str
    seen: str = ""
    """The table's versions, to be found in the pickle of this object."""
