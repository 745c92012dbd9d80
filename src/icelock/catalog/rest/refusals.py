"""Whether a refusal of a commit says that nothing was done: only then are the files of the commit deleted.

A gateway may have sent the request twice and have been refused the second time, or refuse by itself what the server has done; and it, or a
cache of the server, may go on showing the table as it was. So neither a status nor a look at an unchanged table is a proof. What is one:

- the answer of the server itself, in the protocol's form (``{"error": {"message", "type", "code"}}``) and of a type that the protocol or
  Java's servers give to requests that they turn down before they do anything (400, 401, 403, 406, 419, 422), while the table does not show
  the commit. The second of two requests would not get such an answer, but a conflict.
- a conflict (409), while the table shows another version than the commit was made on, without the commit.

Java believes 400, 401, 403, 404 and 409 from whomever they come (``CleanableFailure``), and keeps the files after all others.

Not here: looking at the table (``catalog.rest.commit``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from requests import HTTPError

if TYPE_CHECKING:
    from pyiceberg.table import StagedTable
    from pyiceberg.table import Table as IcebergTable

    from icelock.catalog.rest.answer import TableAnswer

_TURNED_DOWN: Final = {
    400: {"BadRequestException", "IllegalArgumentException", "ValidationException"},
    401: {"NotAuthorizedException", "UnauthorizedException"},
    403: {"ForbiddenException", "NotAuthorizedException", "AccessDeniedException"},
    406: {"UnsupportedOperationException"},
    419: {"AuthenticationTimeoutException"},
    422: {"UnprocessableEntityException", "ValidationException"},
}


def nothing_done(refusal: Exception, base: IcebergTable | None, now: TableAnswer | None) -> bool:
    """Whether a commit that was refused was certainly not made.

    Args:
        refusal: the error.
        base: the table on which the commit was made; None if it was to make the table.
        now: the table as it is seen now, without the commit; None if there is none.
    """
    if isinstance(refusal, CommitFailedException | TableAlreadyExistsError):
        return now is not None and (base is None or now.location != base.metadata_location)
    return _turned_down(refusal)


def doubt(staged: StagedTable, refusal: Exception) -> str:
    """Return the message for a refusal that does not say that nothing was done."""
    ids = [snapshot.snapshot_id for snapshot in staged.metadata.snapshots]
    look = f"whether it has snapshot {ids[-1]}" if ids else "whether it has the change"
    return (
        f"the commit of table {'.'.join(staged.name())} was refused ({type(refusal).__name__}: {refusal}), but not as a REST server says "
        "that it did nothing, and what is seen of the table may be old: the refusal may come from what stands between, after the commit "
        f"was made. Nothing was deleted: look {look} before you repeat the commit; if it has not, leftovers finds the files"
    )


def _turned_down(refusal: Exception) -> bool:
    cause = refusal.__cause__
    if not isinstance(cause, HTTPError) or cause.response is None:
        return False
    status = cause.response.status_code
    try:
        error = json.loads(cause.response.text)["error"]
        return bool(error["code"] == status and error["type"] in _TURNED_DOWN.get(status, ()))
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
