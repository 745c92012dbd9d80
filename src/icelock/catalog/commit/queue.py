"""Commit queues: which thread may commit to a table now (docs/adr/0008).

Threads of a process queue first, in the order in which they came; then the service's own lock keeps other processes out. A transaction that
holds its turn makes its snapshot again if the table has moved on, so no writer's work is wasted.

Not here: the services' locks (``catalog.sql.catalog``, ``catalog.hive.lock``), what a turn is used for (``table.commit.protocol``).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.typedef import Identifier

from icelock.table.commit.protocol import CommitTurn


class FairLock:
    """A lock that threads get in the order in which they asked for it."""

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
    """The queues of a catalog's tables, and the turns that this thread holds."""

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
    """Hive's names have no case; elsewhere two tables that share a queue wait for each other, no more."""
    return tuple(part.lower() for part in identifier)
