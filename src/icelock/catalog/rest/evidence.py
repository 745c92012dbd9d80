"""What shows whether a REST server made a commit: the table that it has or answers with, and the refusal that it gave.

**A table** has the commit if it has the commit's snapshots and all else that the updates asked for; without snapshots, if it is one version
after the base and has the content that the commit makes. A part of a commit proves nothing.

**A refusal** is believed, so that the files of the commit are deleted, only if it says that nothing was done. A gateway may have sent the
request twice and have been refused the second time, or refuse by itself what the server has done; and it, or a cache of the server, may go
on showing the table as it was. So neither a status nor an unchanged table is a proof. What is one:

- the answer of the server itself, in the protocol's form (``{"error": {"message", "type", "code"}}``) and of a type that the protocol or
  Java's servers give to requests that they turn down before they do anything (400, 401, 403, 406, 419, 422), while the table does not show
  the commit. The second of two requests would not get such an answer, but a conflict; only if the commit adds a snapshot
  and asks for no state of a branch, the second is found invalid.
- a conflict (409), while the table shows a later version than the commit was made on, without the commit, on which it cannot be made. Of a
  commit without a snapshot, which has no files to lose, any later version is believed.

Java believes 400, 401, 403, 404 and 409 from whomever they come (``CleanableFailure``), and keeps the files after all others.

Not here: sending, and looking at the table (``catalog.rest.commit``).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table import StagedTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, AssertCreate, AssertRefSnapshotId
from requests import HTTPError

from icelock.catalog.commit.missing import missing_part
from icelock.catalog.commit.store import Change
from icelock.catalog.rest.answer import TableAnswer
from icelock.errors import CommitError
from icelock.table.commit.protocol import fails

_IGNORED_FIELDS: Final = {"last_updated_ms", "metadata_log", "snapshot_log", "table_uuid"}
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
# What a snapshot is refused with that is already there.
_OF_SECOND_COPIES: Final = frozenset({"ValidationException", "IllegalArgumentException"})


def has_commit(change: Change, now: TableAnswer) -> bool | None:
    """Whether the table that the server has now has had the commit; None if it has a part of it, or that cannot be told."""
    base, staged = change.base, change.staged
    if base is not None and now.metadata.table_uuid != base.metadata.table_uuid:
        return False
    snapshots = _added(change)
    if snapshots:
        there = snapshots & {snapshot.snapshot_id for snapshot in now.metadata.snapshots}
        if not there:
            return False
        return True if there == snapshots and not _missing(change, now) else None
    if base is None:
        return now.metadata.table_uuid == staged.metadata.table_uuid
    if now.location == base.metadata_location or not now.metadata.metadata_log:
        return False
    # One commit on top of what there was, with our result. Anything else proves nothing.
    on_top = now.metadata.metadata_log[-1].metadata_file == base.metadata_location
    return on_top and _content(now.metadata) == _content(staged.metadata)


def lost_in_answer(change: Change, answer: TableAnswer) -> Exception | None:
    """Return an error if the server answers success with a table that is without the commit, or a part of it."""
    base = change.base
    if base is not None and answer.metadata.table_uuid != base.metadata.table_uuid:
        return CommitError(f"success was answered, with table {answer.metadata.table_uuid} in the place of {base.metadata.table_uuid}")
    sent = _added(change)
    lost = sent - {snapshot.snapshot_id for snapshot in answer.metadata.snapshots}
    if lost:
        return CommitError(f"success was answered, with a table without snapshot {', '.join(map(str, sorted(lost)))}")
    if base is not None and not sent:
        before = _content(base.metadata)
        if _content(answer.metadata) == before and _content(change.staged.metadata) != before:
            return CommitError("success was answered, with a table as it was before")
    part = _missing(change, answer)
    return CommitError(f"success was answered, with a table where {part}") if part else None


def nothing_done(refusal: Exception, change: Change, now: TableAnswer | None) -> bool:
    """Whether a commit that was refused was certainly not made.

    Args:
        refusal: the error.
        change: the commit.
        now: the table as it is seen now, without the commit; None if there is no table.
    """
    if isinstance(refusal, CommitFailedException | TableAlreadyExistsError):
        return now is not None and _is_overtaken(change, now)
    return _turned_down(refusal, change)


def doubt(staged: StagedTable, refusal: Exception) -> str:
    """Return the message for a refusal that does not say that nothing was done."""
    ids = [snapshot.snapshot_id for snapshot in staged.metadata.snapshots]
    look = f"whether it has snapshot {ids[-1]}" if ids else "whether it has the change"
    return (
        f"the commit of table {'.'.join(staged.name())} was refused ({type(refusal).__name__}: {refusal}), but not as a REST server says "
        "that it did nothing, and what is seen of the table may be old: the refusal may come from what stands between, after the commit "
        f"was made. Nothing was deleted: look {look} before you repeat the commit; if it has not, leftovers finds the files"
    )


def _turned_down(refusal: Exception, change: Change) -> bool:
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
        return change.base is None
    if _may_come_twice(change) and kind in _OF_SECOND_COPIES:
        return False
    return (status == _FORBIDDEN and _NO_RIGHT.search(kind) is not None) or kind in _TURNED_DOWN.get(status, ())


def _may_come_twice(change: Change) -> bool:
    """Whether a second copy of the commit would not be a conflict: it adds a snapshot, and asks for no state of a branch."""
    return bool(_added(change)) and not any(isinstance(known, AssertRefSnapshotId | AssertCreate) for known in change.requirements)


def _is_overtaken(change: Change, now: TableAnswer) -> bool:
    """Whether a version of the table, which is without the commit, came after the base, and the commit cannot be made on it."""
    if change.base is None:
        return True
    log = [entry.metadata_file for entry in now.metadata.metadata_log]
    before, after = change.base.metadata, now.metadata
    later = change.base.metadata_location in log or (not log and _age(after) > _age(before))
    return later and (not _added(change) or fails(change.requirements, after))


def _missing(change: Change, now: TableAnswer) -> str:
    base, staged, log = change.base, change.staged, now.metadata.metadata_log
    known = {snapshot.snapshot_id for snapshot in staged.metadata.snapshots}
    followed = any(snapshot.snapshot_id not in known for snapshot in now.metadata.snapshots)
    if base is not None and log:
        followed = followed or log[-1].metadata_file != base.metadata_location
    return missing_part(change.updates, staged.metadata, now.metadata, followed=followed, new=base is None)


def _added(change: Change) -> set[int]:
    return {update.snapshot.snapshot_id for update in change.updates if isinstance(update, AddSnapshotUpdate)}


def _content(metadata: TableMetadata) -> dict[str, Any]:
    return {name: getattr(metadata, name) for name in type(metadata).model_fields if name not in _IGNORED_FIELDS}


def _age(metadata: TableMetadata) -> tuple[int, int]:
    return getattr(metadata, "last_sequence_number", 0), metadata.last_updated_ms
