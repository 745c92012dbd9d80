"""Turns: who may commit to a table now. One writer at a time prepares and swaps; nobody's work is in vain (docs/adr/0008).

Threads of a process queue first, in the order in which they came; then the catalog's own lock keeps other processes out. A
transaction that holds its turn looks whether the table has moved on, makes its snapshot again if it has, and cannot lose.

Not here: the catalogs' locks (``catalog.sql.store``, ``catalog.hive.lock``), what a turn is used for (``table.commit.protocol``).
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.typedef import Identifier

    from icelock.table.commit.protocol import CommitTurn


class FairLock:
    """A lock that is given in the order in which it was asked for."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            mine.acquire()
        except BaseException:  # Ctrl-C while waiting
            self._leave(mine)
            raise

    def __exit__(self, *error: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def _leave(self, mine: threading.Lock) -> None:
        with self._guard:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return
        self.__exit__()  # the lock had been given to this one


class CommitQueues:
    """The queues of a catalog's tables, and which turn this thread holds."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queues: dict[Identifier, FairLock] = {}
        self._held = threading.local()

    def held(self, identifier: Identifier) -> CommitTurn | None:
        """Return the turn that this thread holds for a table, or None."""
        found: CommitTurn | None = getattr(self._held, "turns", {}).get(_key(identifier))
        return found

    def queue(self, identifier: Identifier) -> FairLock:
        """Return the queue of a table."""
        with self._guard:
            return self._queues.setdefault(_key(identifier), FairLock())

    @contextmanager
    def holding(self, identifier: Identifier, turn: CommitTurn) -> Iterator[None]:
        """Let ``held`` find a turn inside."""
        if not hasattr(self._held, "turns"):
            self._held.turns = {}
        self._held.turns[_key(identifier)] = turn
        try:
            yield
        finally:
            del self._held.turns[_key(identifier)]


def _key(identifier: Identifier) -> Identifier:
    """Hive knows no upper case; a queue too many for other catalogs does no harm."""
    return tuple(part.lower() for part in identifier)
