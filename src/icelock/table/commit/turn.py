"""What a transaction needs of a catalog while it commits: its turn on the table.

Not here: how a catalog gives turns (``catalog.commit.queue``).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata


class Stage(Enum):
    """How far a commit has come: what may have happened when it fails."""

    UNKNOWN = auto()
    """The catalog does not say."""
    PREPARING = auto()
    """The catalog was not asked yet: nothing can have happened."""
    ASKED = auto()
    """The catalog was asked to replace the metadata file: the error says what became of it, or nobody knows."""


class DoubtfulConflictError(CommitFailedException):
    """The catalog says that another writer was first, and its table shows nobody: the view may be old, and our commit be there.

    The same commit may be sent again, since the catalog refuses it if it was made. Who gives up says so with ``given_up``.
    """


def fails(requirements: Iterable[Any], metadata: TableMetadata) -> bool:
    """Whether a commit with these requirements cannot be made on a version of the table."""
    for requirement in requirements:
        try:
            requirement.validate(metadata)
        except CommitFailedException:
            return True
    return False


def given_up(error: CommitFailedException, *, doubtful: bool = False) -> Exception:
    """Return the error with which a commit ends that was refused for the last time; ``doubtful``: an attempt before may be there."""
    return CommitStateUnknownException(str(error)) if doubtful or isinstance(error, DoubtfulConflictError) else error


class CommitTurn:
    """While it is held nobody else commits to the table, except clients that do not take the catalog's lock.

    ``location`` is the metadata file that the catalog names; None when there is no such table. ``exclusive`` says whether other
    processes are kept out as well.
    """

    exclusive: bool = False

    def __init__(self, location: str | None) -> None:
        self.location = location
        self.stage = Stage.UNKNOWN

    def load(self) -> IcebergTable:
        """Return the table of ``location``."""
        raise NotImplementedError
