"""What shows whether a REST server made a commit, or a new table: the table that it has or answers with, and the refusal that it gave.

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

**A new table** is refused before a row is written unless it has its key, and the form that was asked for: identity partition values are in
plain in paths and metadata, so a server may not partition by a column of its choice, or have files written elsewhere. Ids may be others:
servers assign new ones.

Not here: sending, and looking at the table (``catalog.rest.commit``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table import StagedTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, AssertCreate, AssertRefSnapshotId
from pyiceberg.typedef import Identifier
from requests import HTTPError

from icelock import properties as names
from icelock.catalog.commit.outcome import columns, missing_part
from icelock.catalog.commit.store import Change
from icelock.catalog.rest.answer import TableAnswer
from icelock.errors import CommitError
from icelock.metadata.table_metadata import TableMetadataV3
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
# Where files are written: a path, or a class that gives them one.
_PLACES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "write.location-provider.impl",
    "write.py-location-provider.impl",
)


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
    """Whether a commit that was refused was certainly not made; ``now`` is the table as it is seen, without it, None if there is none."""
    if isinstance(refusal, CommitFailedException | TableAlreadyExistsError):
        return now is not None and _is_overtaken(change, now)
    return _turned_down(refusal, change)


def doubt(staged: StagedTable, refusal: Exception) -> str:
    """Return the message for a refusal that does not say that nothing was done."""
    return (
        f"the commit of table {'.'.join(staged.name())} was refused ({type(refusal).__name__}: {refusal}), but not as a REST server says "
        "that it did nothing, and what is seen of the table may be old: the refusal may come from what stands between, after the commit "
        f"was made. Nothing was deleted: look {what_tells(staged)} before you repeat the commit; if it has not, leftovers finds the files"
    )


def what_tells(staged: StagedTable) -> str:
    """Say what to look for in a table, to know whether it has a commit."""
    ids = [snapshot.snapshot_id for snapshot in staged.metadata.snapshots]
    return f"whether it has snapshot {ids[-1]}" if ids else "whether it has the change"


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


def check_made(name: Identifier, made: TableMetadata, wanted: Mapping[str, str], request: CreateTableRequest, *, catalog: str) -> None:
    """Check that the table that a server made is the one that was asked for.

    Raises:
        CommitError: it is not encrypted under the key that was asked for, or has another form.
    """
    problem = ""
    if not isinstance(made, TableMetadataV3):
        problem = f"format version 3 was asked for, and catalog {catalog} made version {made.format_version}"
    for setting in names.FIXED:
        if not problem and made.properties.get(setting) != wanted.get(setting):
            problem = f"{setting} is {made.properties.get(setting)!r} in catalog {catalog} instead of {wanted.get(setting)!r}"
    if problem:
        raise CommitError(
            f"table {'.'.join(name)}: {problem}: it cannot hold encrypted tables. The table at {made.location} has no data: "
            "drop it, and use another catalog"
        )
    problem = _difference(request, made, wanted)
    if problem:
        raise CommitError(
            f"table {'.'.join(name)}: catalog {catalog} made it in a form of its own: {problem}. The table at {made.location} has no "
            "data: drop it, and ask for what the server makes, or use another catalog"
        )


def _difference(request: CreateTableRequest, made: TableMetadata, wanted: Mapping[str, str]) -> str:
    """Say what a table has that was not asked for; empty if its columns, partitions, order and places are those of the request."""
    schema, there = request.table_schema, made.schema()
    asked, got = set(columns(schema).values()), set(columns(there).values())
    if asked != got or [field.name for field in schema.fields] != [field.name for field in there.fields]:
        different = sorted({name for name, *_ in asked ^ got}) or ["in another order"]
        return f"it has other columns than were asked for ({', '.join(different)[:200]})"
    if _named(schema, () if request.partition_spec is None else request.partition_spec.fields) != _named(there, made.spec().fields):
        return "it has another partition spec than was asked for"
    order = made.sort_order_by_id(made.default_sort_order_id)
    if _named(schema, () if request.write_order is None else request.write_order.fields) != _named(
        there, () if order is None else order.fields
    ):
        return "it has another sort order than was asked for"
    for place in _PLACES:
        if made.properties.get(place) != wanted.get(place):
            return f"{place} is {made.properties.get(place)!r} instead of {wanted.get(place)!r}"
    return ""


def _named(schema: Any, fields: Any) -> list[Any]:
    """Return the fields of a spec or an order, with the names of their columns."""
    return [
        (
            schema.find_column_name(field.source_id),
            str(field.transform),
            getattr(field, "direction", None),
            getattr(field, "null_order", None),
        )
        for field in fields
    ]
