"""A set of many places of files in little memory: 8 bytes each, by their hashes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

import numpy as np


class Places:
    """Places of files. ``in`` is true of each of them, and, about once in 10^13 times, of another one too.

    So what is not in it certainly is none of them; a file that nothing reaches may be taken for one that is reached, and be found the next
    time: Python seeds hashes of text anew in each process.
    """

    def __init__(self, places: Iterable[str]) -> None:
        hashes = np.fromiter(map(hash, places), np.int64)
        hashes.sort()
        self._hashes = array("q", hashes.tobytes())

    def __len__(self) -> int:
        """How many there are; what was given twice counts twice."""
        return len(self._hashes)

    def __contains__(self, place: object) -> bool:
        """Whether a place is one of them."""
        number = hash(place)
        at = bisect_left(self._hashes, number)
        return at < len(self._hashes) and self._hashes[at] == number
