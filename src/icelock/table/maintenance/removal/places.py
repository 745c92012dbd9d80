"""A set of many places of files in little memory: 8 bytes each, by their hashes."""

from __future__ import annotations

import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Iterable

import numpy as np


class Places:
    """Places of files. ``in`` is true of each of them, and, about once in 10^13 times, of another one too.

    So what is not in it certainly is none of them; a file that nothing reaches may be taken for one that is reached, and be found the next
    time: Python seeds hashes of text anew in each process.

    On a local disk, places that differ in upper and lower case, or in how letters with accents are written, are one: macOS keeps the rows
    of ``city=oslo`` in the folder ``city=Oslo`` if that is there, and lists them by its name.
    """

    def __init__(self, places: Iterable[str]) -> None:
        hashes = np.fromiter((hash(_one_name(place)) for place in places), np.int64)
        hashes.sort()
        self._hashes = array("q", hashes.tobytes())

    def __len__(self) -> int:
        """How many there are; what was given twice counts twice."""
        return len(self._hashes)

    def __contains__(self, place: object) -> bool:
        """Whether a place is one of them."""
        if not isinstance(place, str):
            return False
        number = hash(_one_name(place))
        at = bisect_left(self._hashes, number)
        return at < len(self._hashes) and self._hashes[at] == number


def _one_name(place: str) -> str:
    """Return the same text for all names that a local disk may take for one; the places of other storages begin with no slash."""
    return unicodedata.normalize("NFC", place).casefold() if place.startswith("/") else place
