"""Files of deleted positions whose data files lie elsewhere now: the same positions, and the new names.

Not here: vectors (``io.puffin.again``), which data files lie where (``table.maintenance.rotation.rotate_history``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.refs import MAIN_BRANCH

from icelock.arrow.read.deletes import deleted_positions
from icelock.arrow.write.positions import write_positions
from icelock.metadata.manifest import DataFile
from icelock.plan.task import TaskBuilder
from icelock.table.state import OpenTable


class MovedPositions:
    """Writes files of positions of a table again. For several threads."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._numbers = itertools.count()

    def written(self, file: Any, now_at: Callable[[str], str]) -> DataFile | None:
        """Write a file again, in the memory of its positions; return the new one, None if it deletes nothing.

        Raises:
            PolicyError, FormatError, IntegrityError, OSError: it cannot be read or written.
        """
        opened: Any = self._table.transaction()
        staged = opened.staged
        read = staged.branch_scan(AlwaysTrue(), case_sensitive=True, branch=MAIN_BRANCH).read_context()
        (delete,) = TaskBuilder(staged.metadata.schemas).deletes([file])
        found = [(now_at(path), positions) for path, positions in deleted_positions(read, delete).items()]
        if not found:
            return None
        return write_positions(staged.write_context(), found, task_id=next(self._numbers), entropy=staged.entropy)
