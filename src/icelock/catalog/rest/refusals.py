"""Whether a refusal of a commit says that nothing was done: only then are the files of the commit deleted.

A gateway may have sent the request twice and have been refused the second time, or refuse by itself what the server has done; and it, or a
cache of the server, may go on showing the table as it was. So neither a status nor a look at an unchanged table is a proof. What is one:

- the answer of the server itself, in the protocol's form (``{"error": {"message", "type", "code"}}``) and of a type that the protocol or
  Java's servers give to requests that they turn down before they do anything (400, 401, 403, 406, 419, 422), while the table does not show
  the commit. The second of two requests would not get such an answer, but a conflict; only if the commit adds a snapshot
  and asks for no state of a branch, the second is found invalid.
- a conflict (409), while the table shows a later version than the commit was made on, without the commit, on which it cannot be made. Of a
  commit without a snapshot, which has no files to lose, any later version is believed.

Java believes 400, 401, 403, 404 and 409 from whomever they come (``CleanableFailure``), and keeps the files after all others.

Not here: looking at the table (``catalog.rest.commit``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table.update import AddSnapshotUpdate, AssertCreate, AssertRefSnapshotId
from requests import HTTPError

from icelock.table.commit.protocol import fails

if TYPE_CHECKING:
    from pyiceberg.table import StagedTable
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata

    from icelock.catalog.rest.answer import TableAnswer

_TURNED_DOWN: Final = {
    400: {"BadRequestException", "IllegalArgumentException", "ValidationException"},
    401: {"NotAuthorizedException", "UnauthorizedException"},
    406: {"UnsupportedOperationException"},
    419: {"AuthenticationTimeoutException"},
    422: {"UnprocessableEntityException", "ValidationException"},
}
# The right to commit is asked for before anything is done; servers have names of their own for it (Lakekeeper: TableActionForbidden).
_FORBIDDEN: Final = 403
_NO_RIGHT: Final = re.compile("forbidden|not_?authorized|unauthorized|access_?denied|permission", re.IGNORECASE)
_NO_NAMESPACE: Final = (404, "NoSuchNamespaceException")
# Types that a snapshot gets that is there already.
_OF_SECOND_COPIES: Final = frozenset({"ValidationException", "IllegalArgumentException"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A commit as it was sent.

    Args:
        base: the table on which it was made; None if it was to make the table.
        requirements: what the table had to be.
        updates: what it changes.
    """

    base: IcebergTable | None
    requirements: tuple[Any, ...]
    updates: tuple[Any, ...]

    @property
    def adds_snapshot(self) -> bool:
        """Whether it has files to lose."""
        return any(isinstance(update, AddSnapshotUpdate) for update in self.updates)

    @property
    def may_come_twice(self) -> bool:
        """Whether a second copy of the commit would not be a conflict: it adds a snapshot, and asks for no state of a branch."""
        return self.adds_snapshot and not any(isinstance(known, AssertRefSnapshotId | AssertCreate) for known in self.requirements)

    def is_overtaken(self, now: TableAnswer) -> bool:
        """Whether a version of the table, which is without the commit, came after the base, and the commit cannot be made on it."""
        if self.base is None:
            return True
        log = [entry.metadata_file for entry in now.metadata.metadata_log]
        before, after = self.base.metadata, now.metadata
        later = self.base.metadata_location in log or (not log and _age(after) > _age(before))
        return later and (not self.adds_snapshot or fails(self.requirements, after))


def nothing_done(refusal: Exception, sent: Sent, now: TableAnswer | None) -> bool:
    """Whether a commit that was refused was certainly not made.

    Args:
        refusal: the error.
        sent: the commit.
        now: the table as it is seen now, without the commit; None if there is none.
    """
    if isinstance(refusal, CommitFailedException | TableAlreadyExistsError):
        return now is not None and sent.is_overtaken(now)
    return _turned_down(refusal, sent)


def doubt(staged: StagedTable, refusal: Exception) -> str:
    """Return the message for a refusal that does not say that nothing was done."""
    ids = [snapshot.snapshot_id for snapshot in staged.metadata.snapshots]
    look = f"whether it has snapshot {ids[-1]}" if ids else "whether it has the change"
    return (
        f"the commit of table {'.'.join(staged.name())} was refused ({type(refusal).__name__}: {refusal}), but not as a REST server says "
        "that it did nothing, and what is seen of the table may be old: the refusal may come from what stands between, after the commit "
        f"was made. Nothing was deleted: look {look} before you repeat the commit; if it has not, leftovers finds the files"
    )


def _turned_down(refusal: Exception, sent: Sent) -> bool:
    cause = refusal.__cause__
    if not isinstance(cause, HTTPError) or cause.response is None:
        return False
    status = cause.response.status_code
    try:
        error = json.loads(cause.response.text)["error"]
        kind, code = error["type"], error["code"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
    if code != status or not isinstance(kind, str):
        return False
    if (status, kind) == _NO_NAMESPACE:
        return sent.base is None
    if sent.may_come_twice and kind in _OF_SECOND_COPIES:
        return False
    return (status == _FORBIDDEN and _NO_RIGHT.search(kind) is not None) or kind in _TURNED_DOWN.get(status, ())


def _age(metadata: TableMetadata) -> tuple[int, int]:
    return getattr(metadata, "last_sequence_number", 0), metadata.last_updated_ms
