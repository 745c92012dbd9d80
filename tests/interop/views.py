"""What is read of a table: a ref or snapshot or point in time, columns, a filter, or sums in place of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """``where`` is a filter that Spark's SQL and PyIceberg's parser both understand; no columns means all.

    With ``total`` the answer is one row: ``n`` rows, and the sum of that column as ``total``.
    """

    ref: str | None = None
    snapshot_id: int | None = None
    as_of_ms: int | None = None
    columns: tuple[str, ...] = ()
    where: str = ""
    total: str = ""


EVERYTHING: Final = View()
