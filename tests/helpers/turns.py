"""What CI runs of a sweep over many alike cells: a part that changes from day to day, and on the day it is the same everywhere.

``ICELOCK_SWEEPS=all`` runs all of them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

Cell = TypeVar("Cell")
WHOLE: Final = os.environ.get("ICELOCK_SWEEPS") == "all"


def turn(name: str, every: int) -> int:
    """Return which of ``every`` parts of the sweep ``name`` is run today: the next one tomorrow."""
    return (datetime.now(UTC).date().toordinal() + zlib.crc32(name.encode())) % every


def in_turn(name: str, count: int, every: int, *, always: Iterable[int] = ()) -> list[int]:
    """Return which of ``count`` cells of the sweep ``name`` are run today: one of ``every``, another one each day, and ``always``."""
    if WHOLE:
        return list(range(count))
    day = datetime.now(UTC).date()
    chosen = sorted({*range(turn(name, every), count, every), *always})
    print(f"{name}: {len(chosen)} of {count}, those of {day}" if len(chosen) > 100 else f"{name}: {chosen} of {count}, those of {day}")
    return chosen


def todays(name: str, cells: Sequence[Cell], every: int, *, always: Iterable[int] = ()) -> list[Cell]:
    """Return the same of the cells themselves."""
    return [cells[number] for number in in_turn(name, len(cells), every, always=always)]
