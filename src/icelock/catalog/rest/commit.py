"""A commit to a REST catalog: sent, and settled from what comes back.

    POST .../tables/{table}  {"identifier", "requirements", "updates"}; keys stand before the snapshot that needs them

The server compares and swaps, so a turn keeps no other process out: it is the queue of this process's threads. It begins with a look
at the table, so that nothing is sent that would be built on a table that was rolled back, and a commit that would lose is made again first.
What comes back is one of four:

- **success**: believed if the answer has all of the commit; else it counts as no answer.
- **a refusal** (4xx, a redirect): the table is loaded twice. It has the commit: done, a gateway had sent the request twice. What is said
  and seen proves that nothing was done (``catalog.rest.evidence``): the refusal is raised, and the files go. Else nothing is deleted.
- **no answer** (5xx, a lost connection, too late, unreadable): the table is loaded some times. It has the commit: done. Else the outcome is
  unknown: the request may still be on its way.
- **no connection**: nothing was sent.

Not here: what proves what (``catalog.rest.evidence``), requests (``catalog.rest.requests``), the rules (``catalog.base``).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.table import StagedTable, TableIdentifier
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId
from pyiceberg.typedef import UTF8, Identifier
from requests import RequestException, Response

from icelock.catalog.commit.outcome import check_new, unanswered, waits
from icelock.catalog.commit.store import Change, StoreTurn
from icelock.catalog.rest.answer import TableAnswer
from icelock.catalog.rest.evidence import doubt, has_commit, lost_in_answer, nothing_done, what_tells
from icelock.catalog.rest.http import RedirectError, not_sent
from icelock.catalog.rest.requests import raise_for
from icelock.errors import FormatError
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from icelock.table.commit.protocol import DoubtfulConflictError, Stage
from icelock.table.guard.snapshots import check_kept

if TYPE_CHECKING:
    from icelock.catalog.rest.requests import RestRequests

logger = logging.getLogger(__name__)

# After a refusal: a server may show a commit to the next look but one only.
_LOOKS: Final = 2
_TIME_OUT, _CONFLICT, _TOO_MANY, _SERVER, _NOT_IMPLEMENTED = 408, 409, 429, 500, 501


class RestTurn(StoreTurn):
    """The turn of a thread among those of this process, and the table as the server had it when the turn began."""

    def __init__(
        self,
        server: RestRequests,
        name: Identifier,
        answer: TableAnswer | None,
        *,
        table_of: Callable[[TableAnswer], IcebergTable],
        same_keks: Callable[[TableMetadata, TableMetadata], bool],
    ) -> None:
        super().__init__(None if answer is None else answer.location)
        self._server = server
        self._name = name
        self._answer = answer
        self._table_of = table_of
        self._same_keks = same_keks

    def current(self) -> IcebergTable:
        """Return the table.

        Raises:
            NoSuchTableError: it was dropped or renamed.
        """
        if self._answer is None:
            raise NoSuchTableError(f"the REST server has no table {'.'.join(self._name)} any more; nothing was changed")
        return self._table_of(self._answer)

    def base(self, *, new: bool) -> IcebergTable | None:
        """Return the table a commit is made on; whether a new one's name is free is for the server to say."""
        return None if new else self.load()

    def commit(self, change: Change) -> tuple[TableMetadata, str]:
        """Send a commit."""
        known = change.staged if change.base is None else change.base
        body = commit_body(self._name, _for_server(change.requirements, known.metadata), change.updates)
        self.stage = Stage.ASKED
        answer = self._send(change, body)
        self._check_answer(change, answer.metadata)
        return answer.metadata, answer.location

    def _send(self, change: Change, body: bytes) -> TableAnswer:
        """Send a commit; return the table, which has it."""
        try:
            response = self._server._ask_commit(self._name, body, change.config)
        except (RedirectError, RESTError) as e:
            return self._refused(change, e)
        except RequestException as e:
            if not_sent(e):
                raise unanswered("REST server", e) from e
            return self._unanswered(change, e)
        except NotImplementedError:
            self.stage = Stage.PREPARING  # there is no such endpoint, so nothing was sent
            raise
        status = response.status_code
        if response.ok:
            return self._accepted(change, response)
        if status == _TIME_OUT or (status >= _SERVER and status != _NOT_IMPLEMENTED):
            return self._unanswered(change, _refusal(response))
        if status == _CONFLICT and change.base is None:
            return self._refused(change, TableAlreadyExistsError(f"Table {'.'.join(self._name)} already exists"))
        return self._refused(change, _refusal(response))

    def _accepted(self, change: Change, response: Response) -> TableAnswer:
        """Return the table of a success, if it has the commit."""
        problem: Exception | None
        try:
            answer = self._server._answer(response, self._name, {})
            problem = lost_in_answer(change, answer)
        except FormatError as e:
            problem = e
        if problem is not None:
            answer = self._unanswered(change, problem)
        if change.base is None:
            check_new(answer.metadata, table=".".join(self._name), catalog=self._server.name, sent=change.staged.metadata)
        return answer

    def _check_answer(self, change: Change, answer: TableMetadata) -> None:
        """Check that the server's answer has what this commit added; what other writers did meanwhile is not looked at."""
        staged, updates = change.staged, change.updates
        if not isinstance(staged.metadata, TableMetadataV3):
            return
        table = ".".join(staged.name())
        removed = {update.key_id for update in updates if isinstance(update, RemoveEncryptionKeyUpdate)}
        keys = [update.encryption_key for update in updates if isinstance(update, AddEncryptionKeyUpdate)]
        under = {key.encrypted_by_id for key in keys} - {key.key_id for key in keys}
        keys += [key for key in staged.metadata.encryption_keys if key.key_id in under]
        snapshots = [update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)]
        kept_keys = [key for key in keys if key.key_id not in removed]
        sent = staged.metadata.model_copy(update={"encryption_keys": kept_keys, "snapshots": snapshots})
        check_kept(sent, answer, table=table, catalog=self._server.name, same_keks=self._same_keks)

    def _refused(self, change: Change, refusal: Exception) -> TableAnswer:
        """Return the table if it has the commit that was refused.

        Raises:
            Exception: the refusal; the table has not had the commit, and will not.
            DoubtfulConflictError: a conflict that the table does not show.
            CommitStateUnknownException: the outcome is unknown.
        """
        conflict = isinstance(refusal, CommitFailedException)
        now: TableAnswer | None = None
        for seconds in waits(change.staged.metadata.properties)[:_LOOKS]:
            time.sleep(seconds)
            now = self._look_after(change, refusal)
            had = False if now is None else has_commit(change, now)
            if had is None:
                raise _unknown(change.staged, refusal) from refusal
            if had and now is not None:
                logger.debug("the commit of table %s was made though the server answered: %s", ".".join(self._name), refusal)
                return now
            if conflict and nothing_done(refusal, change, now):
                break  # another writer's version came after the base: this was not an old view
        if not nothing_done(refusal, change, now):
            kind = DoubtfulConflictError if conflict else CommitStateUnknownException
            raise kind(doubt(change.staged, refusal)) from refusal
        if not conflict:
            self.stage = Stage.PREPARING
        raise refusal

    def _look_after(self, change: Change, refusal: Exception) -> TableAnswer | None:
        """Load the table after a refusal; None if there is no table, and the commit was to create it.

        Raises:
            CommitStateUnknownException: it cannot be loaded, or was dropped or renamed since, perhaps with the commit.
        """
        try:
            return self._server._ask_table(self._name)
        except NoSuchTableError as e:
            if change.base is not None:
                raise _unknown(change.staged, refusal) from e
            return None
        except Exception as e:
            raise _unknown(change.staged, refusal) from e

    def _unanswered(self, change: Change, cause: Exception) -> TableAnswer:
        """Return the table if it has a commit that got no answer.

        Raises:
            CommitStateUnknownException: it has not; the request may still be on its way.
        """
        for seconds in waits(change.staged.metadata.properties):
            time.sleep(seconds)
            try:
                now = self._server._ask_table(self._name)
            except Exception as e:  # noqa: BLE001 - whatever it was, the next look may tell
                logger.debug("table %s cannot be loaded: %s", ".".join(self._name), e)
                continue
            if has_commit(change, now):
                logger.debug("the commit of table %s was made though its answer was %s", ".".join(self._name), cause)
                return now
        raise _unknown(change.staged, cause) from cause


def commit_body(identifier: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> bytes:
    """Return the JSON of a commit, with what PyIceberg's request would leave out: the updates of keys and the snapshots' key-id."""
    name = TableIdentifier(namespace=identifier[:-1], name=identifier[-1])
    body = {
        "identifier": json.loads(name.model_dump_json()),
        "requirements": [json.loads(requirement.model_dump_json()) for requirement in requirements],
        "updates": [_update_json(update) for update in updates],
    }
    return json.dumps(body, ensure_ascii=False).encode(UTF8)


def _for_server(requirements: tuple[Any, ...], base: TableMetadata) -> tuple[Any, ...]:
    """Return requirements that a server can check: for ours, which were checked on ``base``, that no branch or tag has moved since."""
    known = tuple(requirement for requirement in requirements if isinstance(requirement, BaseModel))
    if len(known) == len(requirements):
        return known
    asserted = {requirement.ref for requirement in known if isinstance(requirement, AssertRefSnapshotId)}
    refs = (AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in base.refs.items() if name not in asserted)
    return (*known, *refs)


def _update_json(update: Any) -> Any:
    if isinstance(update, AddEncryptionKeyUpdate):
        return {"action": update.action, "encryption-key": update.encryption_key.to_json()}
    return json.loads(update.model_dump_json(serialize_as_any=True))


def _refusal(response: Response) -> Exception:
    """Return the error that a response is, with the server's words."""
    kinds: dict[int, type[Exception]] = {404: NoSuchTableError, _CONFLICT: CommitFailedException, _TOO_MANY: CommitFailedException}
    try:
        raise_for(response, kinds)
    except Exception as e:  # noqa: BLE001 - that is the error
        return e
    return CommitFailedException(f"the server answered {response.status_code}")


def _unknown(staged: StagedTable, cause: Exception) -> CommitStateUnknownException:
    return CommitStateUnknownException(
        f"the REST server did not say whether table {'.'.join(staged.name())} was changed ({type(cause).__name__}: {cause}); nothing was "
        f"deleted: look {what_tells(staged)} before you repeat the commit. A server that never takes add-encryption-key cannot hold "
        "encrypted tables"
    )
