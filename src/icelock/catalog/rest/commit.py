"""Commits to a REST catalog: guarded here, made by the server, and found out about when the answer is an error or gets lost.

    POST .../tables/{table}  {"identifier", "requirements", "updates"}; keys stand before the snapshot that needs them

The server compares and swaps, so a turn keeps no other process out: it is the queue of this process's threads. It begins with a look
at the table: what the server has now is compared with what was seen (``catalog.trust.pins``) before anything is sent, so nothing is built
on a table that was rolled back, and a commit that would lose is made again first. 409 means that another writer was first. A refusal (4xx,
a redirect) changes nothing, but a gateway may have sent the request twice and have been refused the second time: the table is loaded, and
what is said and seen must prove that nothing was changed (``catalog.rest.refusals``). After a 5xx, a lost connection, no answer in time or
one that is none the table is loaded some times: it has the new snapshot, or what was changed otherwise, or nobody knows; nothing is deleted
then. A commit of which the table has only a part is one of which nobody knows.

Not here: other requests (``catalog.rest.requests``), the rules (``catalog.base``).
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableResponse, TableIdentifier
from pyiceberg.table.update import AddSnapshotUpdate, AssertCreate, AssertRefSnapshotId
from pyiceberg.typedef import UTF8
from requests import RequestException

from icelock.catalog.commit.outcome import waits
from icelock.catalog.commit.queue import CommitQueues
from icelock.catalog.rest.answer import TableAnswer
from icelock.catalog.rest.http import AnswerError, RedirectError, may_be_done, not_sent
from icelock.catalog.rest.made import answered_without, made
from icelock.catalog.rest.names import RestNames
from icelock.catalog.rest.refusals import Sent, doubt, nothing_done
from icelock.catalog.rest.requests import raise_for
from icelock.catalog.trust.new_made import check_new
from icelock.errors import FormatError
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from icelock.table.commit.protocol import CommitTurn, DoubtfulConflictError, Stage
from icelock.table.kept import check_kept, check_sealing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyiceberg.table import StagedTable
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier
    from requests import Response

    from icelock.catalog.trust.pins import Known, Pins

logger = logging.getLogger(__name__)

# After a refusal: a server may show a commit to the next look but one only.
_LOOKS: Final = 2
_TIME_OUT, _CONFLICT, _TOO_MANY, _SERVER, _NOT_IMPLEMENTED = 408, 409, 429, 500, 501


class RestTurn(CommitTurn):
    """The turn of a thread among those of this process, and the table as the server had it when the turn began."""

    def __init__(self, identifier: Identifier, answer: TableAnswer | None, *, made: Callable[[TableAnswer], IcebergTable]) -> None:
        super().__init__(None if answer is None else answer.location)
        self._identifier = identifier
        self._answer = answer
        self._made = made

    def load(self) -> IcebergTable:
        """Return the table.

        Raises:
            NoSuchTableError: there is none.
            IntegrityError: it is not what was pinned, or goes back behind what was seen.
        """
        if self._answer is None:
            raise NoSuchTableError(f"the REST server has no table {'.'.join(self._identifier)} any more; nothing was changed")
        return self._made(self._answer)


class RestCommits(RestNames):
    """The commits of ``catalog.rest.RestCatalog``."""

    # Other processes cannot be kept out, so one that loses is not lost after Java's four.
    commit_retries: Final = 20

    if TYPE_CHECKING:
        pins: Pins

        def _update_and_stage_table(
            self, current_table: IcebergTable | None, table_identifier: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]
        ) -> StagedTable:
            """See ``EncryptedCatalog``."""

        def _table(self, name: Identifier, answer: TableAnswer) -> IcebergTable:
            """See ``catalog.rest.RestCatalog``."""

        def check_current(self, current: IcebergTable, known: Known) -> None:
            """See ``PinnedTables``."""

    def __init__(self, name: str, **properties: str) -> None:
        self._turns = CommitQueues()
        super().__init__(name, **properties)

    @contextmanager
    def turn(self, identifier: Identifier) -> Iterator[CommitTurn]:
        """Wait for the other threads of this process that commit to a table; a thread that holds the turn gets it again.

        Raises:
            CommitFailedException: no server answers; nothing was changed.
        """
        held = self._turns.held(identifier)
        if held is not None:
            yield held
            return
        with self._turns.queue(identifier):
            turn = self._begin(identifier)
            with self._turns.holding(identifier, turn):
                yield turn

    def _begin(self, identifier: Identifier) -> RestTurn:
        known = self.pins.seen(identifier)  # before the server is asked: others go on meanwhile

        def made(answer: TableAnswer) -> IcebergTable:
            table = self._table(identifier, answer)
            self.check_current(table, known)
            return table

        try:
            return RestTurn(identifier, self._ask_table(identifier), made=made)
        except NoSuchTableError:
            return RestTurn(identifier, None, made=made)
        except (RequestException, RESTError) as e:
            if isinstance(e, AnswerError) or not (may_be_done(e) or not_sent(e)):
                raise  # another try would get the same
            raise CommitFailedException(f"no REST server answers at {self.uri}: {e}; nothing was changed") from e

    def load_table(self, identifier: str | Identifier) -> IcebergTable:
        """Load a table.

        Raises:
            NoSuchTableError: as PyIceberg.
            FormatError: the server's answer is no table metadata of version 1 to 3.
            IntegrityError, PolicyError: see ``table.guard.check_metadata``.
        """
        name = self._identifier_to_validated_tuple(identifier)
        return self._table(name, self._ask_table(name))

    def commit_table(self, table: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> CommitTableResponse:
        """Commit updates of a table.

        Raises:
            CommitFailedException: another client was first, or no server answers; nothing was changed.
            TableAlreadyExistsError, RESTError: the server refused; nothing was changed.
            IntegrityError: the server's table is not what was pinned, goes back behind what was seen, or has other keys; nothing was sent.
                Or the server changed a KEK with the commit, which says so; nothing was deleted.
            CommitStateUnknownException: the server did not say what became of it, or refused in a way that does not prove that nothing
                was done, and the table does not tell; nothing was deleted.
            CommitError: the commit was made, and the server did not keep its keys.
        """
        identifier = table.name()
        with self.turn(identifier) as turn:
            turn.stage = Stage.PREPARING
            new = any(isinstance(requirement, AssertCreate) for requirement in requirements)
            base = None if new else turn.load()
            if base is not None:
                check_sealing(table.metadata, base.metadata, updates, table=".".join(identifier))
            staged = self._update_and_stage_table(base, identifier, requirements, updates)
            if base is not None and staged.metadata is base.metadata:
                return _response(base.metadata, base.metadata_location)
            config = table.config if base is None else base.config
            body = commit_body(identifier, _for_server(requirements, staged.metadata if base is None else base.metadata), updates)
            turn.stage = Stage.ASKED
            answer = self._commit(turn, Sent(base=base, requirements=requirements, updates=updates), staged, body, config)
        _check_answer(staged, answer.metadata, updates, catalog=self.name)
        return _response(answer.metadata, answer.location)

    def _commit(self, turn: CommitTurn, sent: Sent, staged: StagedTable, body: bytes, config: Mapping[str, Any]) -> TableAnswer:
        identifier, base, updates = staged.name(), sent.base, sent.updates
        try:
            response = self._ask_commit(identifier, body, config)
        except (RedirectError, RESTError) as e:
            return self._after_refusal(turn, sent, staged, e)
        except RequestException as e:
            if not_sent(e):
                raise CommitFailedException(f"no REST server answers at {self.uri}: {e}; nothing was changed") from e
            return self._looked_up(base, staged, updates, e)
        except NotImplementedError:
            turn.stage = Stage.PREPARING  # there is no such endpoint, so nothing was sent
            raise
        if response.ok:
            answer = self._succeeded(base, staged, updates, response)
            if base is None:
                check_new(answer.metadata, table=".".join(identifier), catalog=self.name, sent=staged.metadata)
            return answer
        refusal = _refusal(response)
        if response.status_code == _TIME_OUT or (response.status_code >= _SERVER and response.status_code != _NOT_IMPLEMENTED):
            return self._looked_up(base, staged, updates, refusal)
        if response.status_code == _CONFLICT and base is None:
            refusal = TableAlreadyExistsError(f"Table {'.'.join(identifier)} already exists")
        return self._after_refusal(turn, sent, staged, refusal)

    def _succeeded(self, base: IcebergTable | None, staged: StagedTable, updates: tuple[Any, ...], response: Response) -> TableAnswer:
        """Return the table of a success that has the commit; find out about one that has not."""
        problem: Exception | None
        try:
            answer = self._answer(response, staged.name(), {})
            problem = answered_without(base, staged, updates, answer)
        except FormatError as e:
            problem = e
        return answer if problem is None else self._looked_up(base, staged, updates, problem)

    def _after_refusal(self, turn: CommitTurn, sent: Sent, staged: StagedTable, refusal: Exception) -> TableAnswer:
        """Return the table if it has the commit that was refused: a gateway may have sent it twice, and only the second was refused.

        Raises:
            Exception: the refusal; the table has not had the commit, and will not (``catalog.rest.refusals``).
            DoubtfulConflictError: a conflict that the table does not show.
            CommitStateUnknownException: there is no telling.
        """
        now: TableAnswer | None = None
        base, updates = sent.base, sent.updates
        for seconds in waits(staged.metadata.properties)[:_LOOKS]:
            time.sleep(seconds)
            try:
                now = self._ask_table(staged.name())
            except NoSuchTableError as e:
                if base is not None:  # dropped or renamed since, perhaps with the commit
                    raise _unknown(staged, refusal) from e
                now = None
                continue
            except Exception as e:
                raise _unknown(staged, refusal) from e
            had = made(base, staged, updates, now)
            if had is None:
                raise _unknown(staged, refusal) from refusal
            if had:
                logger.debug("the commit of table %s was made though the server answered: %s", ".".join(staged.name()), refusal)
                return now
            if isinstance(refusal, CommitFailedException) and nothing_done(refusal, sent, now):
                break  # a conflict, and another writer's version came after what there was: no old look
        if not nothing_done(refusal, sent, now):
            kind = DoubtfulConflictError if isinstance(refusal, CommitFailedException) else CommitStateUnknownException
            raise kind(doubt(staged, refusal)) from refusal
        if not isinstance(refusal, CommitFailedException):
            turn.stage = Stage.PREPARING
        raise refusal

    def _looked_up(self, base: IcebergTable | None, staged: StagedTable, updates: tuple[Any, ...], cause: Exception) -> TableAnswer:
        """Find out what became of a commit without an answer: return the table if it was made.

        Raises:
            CommitStateUnknownException: otherwise; the request may still be under way.
        """
        for seconds in waits(staged.metadata.properties):
            time.sleep(seconds)
            try:
                now = self._ask_table(staged.name())
            except Exception as e:  # noqa: BLE001 - whatever it was, the next look may tell
                logger.debug("table %s cannot be loaded: %s", ".".join(staged.name()), e)
                continue
            if made(base, staged, updates, now):
                logger.debug("the commit of table %s was made though its answer was %s", ".".join(staged.name()), cause)
                return now
        raise _unknown(staged, cause) from cause


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


def _check_answer(staged: StagedTable, answer: TableMetadata, updates: tuple[Any, ...], *, catalog: str) -> None:
    """Check that the server's answer has what this commit added; what other writers did meanwhile is not looked at.

    Raises:
        CommitError: says what was lost; the commit was made, and its files are kept.
    """
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
    check_kept(sent, answer, table=table, catalog=catalog)


def _refusal(response: Response) -> Exception:
    """Return the error that a response is, with the server's words."""
    kinds: dict[int, type[Exception]] = {404: NoSuchTableError, _CONFLICT: CommitFailedException, _TOO_MANY: CommitFailedException}
    try:
        raise_for(response, kinds)
    except Exception as e:  # noqa: BLE001 - that is the error
        return e
    return CommitFailedException(f"the server answered {response.status_code}")


def _unknown(staged: StagedTable, cause: Exception) -> CommitStateUnknownException:
    ids = [snapshot.snapshot_id for snapshot in staged.metadata.snapshots]
    look = f"whether it has snapshot {ids[-1]}" if ids else "whether it has the change"
    msg = (
        f"the REST server did not say whether table {'.'.join(staged.name())} was changed ({type(cause).__name__}: {cause}); nothing was "
        f"deleted: look {look} before you repeat the commit. A server that never takes add-encryption-key cannot hold encrypted tables"
    )
    return CommitStateUnknownException(msg)


def _response(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)
