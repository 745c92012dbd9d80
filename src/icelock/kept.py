"""``KeptByIdentity``: what was made of an object that never changes, kept as long as that object lives.

For objects that versions of a table share, and whose equality or hash costs more than a look-up (PyIceberg's models). A changed copy is
another object, so nothing has to be forgotten.

Not here: caches with a size or a time (``single_flight``).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class KeptByIdentity(Generic[T]):
    """Values by object; two threads may make a value twice."""

    __slots__ = ("_kept", "_make")

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._kept: dict[int, tuple[weakref.ref[Any], T]] = {}

    def of(self, item: Any) -> T:
        """Return the value of an object, made when it is first asked for."""
        number = id(item)
        known = self._kept.get(number)
        if known is not None and known[0]() is item:
            return known[1]
        value = self._make(item)
        self._kept[number] = (weakref.ref(item, lambda _: self._kept.pop(number, None)), value)
        return value

    def __len__(self) -> int:
        return len(self._kept)
