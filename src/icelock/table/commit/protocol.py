"""The commit of what is staged: check, commit, and on a conflict reload, check again and retry.

1. The commit waits for its turn on the table (``catalog.commit.queue``): first come, first served.
2. If the table has moved on, it is reloaded, what was planned is checked against it, and the commit's snapshots are rebuilt: data files
   and manifests of new files stay, earlier key entries are dropped, so exactly one manifest-list key of a commit survives. A snapshot that
   needs data to be read is rebuilt outside the turn, and at last inside, so that a stream of quick writers cannot starve it.
3. The catalog replaces the metadata file. A refusal is a failed attempt: it is counted, and after a wait all begins again.
4. A commit that certainly failed deletes its files; one whose outcome is unknown deletes nothing.

Waits are random, from 0 up to a bound that doubles (full jitter), so that writers who failed together do not come back together.
Decisions: docs/adr/0008, docs/adr/0017.

Not here: what can be staged (``table.transaction``), snapshots (``table.commit.producer``, ``table.commit.row_delta``), how catalogs
give turns and find out what became of a commit (``catalog.commit``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, ValidationException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties
from pyiceberg.table import update as ice
from pyiceberg.table.metadata import TableMetadata
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, wait_random_exponential

from icelock import metrics, telemetry
from icelock.errors import CommitError, IcelockError, IntegrityError
from icelock.metadata.json_values import whole_number
from icelock.metadata.updates import AddEncryptionKeyUpdate
from icelock.table.commit.staged import Staged

# How often a snapshot that needs data to be read is rebuilt while others may commit; after that it is rebuilt in the turn.
_OUTSIDE: Final = 2


class Stage(Enum):
    """How far a commit has come: what may have happened when it fails."""

    UNKNOWN = auto()
    """The catalog does not say."""
    PREPARING = auto()
    """The catalog has not been asked yet: nothing can have happened."""
    ASKED = auto()
    """The catalog was asked to replace the metadata file: the error says what became of it, or the outcome is unknown."""


class DoubtfulConflictError(CommitFailedException):
    """The catalog says that another writer committed first, but its table shows no such commit: it may be stale, and ours be there.

    The same commit may be sent again, since the catalog refuses it if it was made. Whoever gives up reports ``given_up``.
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
    """Return the error of a commit that was refused for the last time; ``doubtful``: an earlier attempt may have been made."""
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


def retries_of(properties: Mapping[str, str], default: int = TableProperties.COMMIT_NUM_RETRIES_DEFAULT) -> int:
    """Return how often a refused commit is tried again; ``default`` where the table does not say. Negative numbers count as 0."""
    return _number(properties, TableProperties.COMMIT_NUM_RETRIES, default)


def retrying(properties: Mapping[str, str], retries: int, *, unless: Callable[[], bool] = lambda: False) -> Retrying:
    """Return what repeats a refused commit, by ``commit.retry.*`` with Java's names and defaults; negative numbers count as 0.

    ``unless`` is asked after a refusal: if it answers true, that one is final.
    """
    names = TableProperties
    least = _number(properties, names.COMMIT_MIN_RETRY_WAIT_MS, names.COMMIT_MIN_RETRY_WAIT_MS_DEFAULT)
    most = _number(properties, names.COMMIT_MAX_RETRY_WAIT_MS, names.COMMIT_MAX_RETRY_WAIT_MS_DEFAULT)
    total = _number(properties, names.COMMIT_TOTAL_RETRY_TIME_MS, names.COMMIT_TOTAL_RETRY_TIME_MS_DEFAULT)
    return Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, CommitFailedException) and not unless()),
        stop=stop_after_attempt(1 + retries) | stop_after_delay(total / 1000),
        wait=wait_random_exponential(multiplier=least / 1000, max=most / 1000),
        before_sleep=_tell_retry,
        reraise=True,
    )


def _tell_retry(state: RetryCallState) -> None:
    metrics.add(commit_retries=1)
    telemetry.event("table", logging.INFO, "commit-retry", attempt=state.attempt_number, wait_ms=round(state.upcoming_sleep * 1_000, 1))


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    return max(0, whole_number(properties, name, default) or 0)


class CommitProtocol:
    """One commit of what is staged, with its retries."""

    def __init__(self, staged: Staged, catalog: Any) -> None:
        self._staged = staged
        self._catalog = catalog  # an EncryptedCatalog
        self._retries = 0
        self._rebuilt = 0
        self._refused = 0
        self._turn: CommitTurn | None = None
        # Whether an attempt reached the catalog, and whether one that it refused may have been made after all.
        self._asked = False
        self._doubtful = False

    def commit(self) -> None:
        """Commit, and delete what was written if that certainly failed; nothing is staged afterwards.

        Raises:
            Exception: see ``DataFileTransaction.commit_transaction``.
        """
        staged = self._staged
        staged.drop_idle_producers()
        try:
            if staged.updates:
                with telemetry.on_table("table", "commit", staged.table.name(), getattr(self._catalog, "name", None)) as operation:
                    self._commit_and_retry()
                    operation.set(commit_attempts=1 + self._refused, snapshot_id=self._snapshot_id())
            elif staged.producers:  # found nothing to do, which another writer's commit may contradict
                staged.table.refresh()
                for producer in staged.producers:
                    producer._validate_concurrency()
        except BaseException as e:
            if self._certainly_failed(e):
                staged.discard()
            elif staged.new_files:
                what = "was made" if isinstance(e, CommitError) else "may have been made"
                e.add_note(f"The commit {what}; its data files were left in place: {', '.join(staged.new_files)}")
            raise
        finally:
            staged.new_files = []
        for producer in staged.producers:
            producer._cleanup_uncommitted()
        staged.producers, staged.updates, staged.requirements = [], (), ()

    def _snapshot_id(self) -> int | None:
        return self._staged.producers[-1].snapshot_id if self._staged.producers else None

    def _commit_and_retry(self) -> None:
        staged = self._staged
        properties = staged.metadata.properties  # as they will be, so that a wrong setting can be put right
        self._retries = retries_of(properties, getattr(self._catalog, "commit_retries", TableProperties.COMMIT_NUM_RETRIES_DEFAULT))
        staged.requirements += (ice.AssertTableUUID(uuid=staged.metadata.table_uuid),)
        try:
            retrying(properties, self._retries, unless=lambda: not staged.producers)(self._attempt)
        except CommitFailedException as e:
            raise given_up(e, doubtful=self._doubtful) from e.__cause__

    def _attempt(self) -> None:
        try:
            while not self._commit_in_turn():
                self._rebuilt += 1
                self._rebuild()
        except CommitFailedException as e:
            metrics.add(commit_conflicts=1)
            self._refused += 1
            self._asked |= self._turn is not None and self._turn.stage is Stage.ASKED
            self._doubtful |= isinstance(e, DoubtfulConflictError)
            raise

    def _commit_in_turn(self) -> bool:
        """Commit in a turn; False if snapshots must be rebuilt first, outside it."""
        staged, table = self._staged, self._staged.table
        self._turn, staged.cannot_lose = None, False
        with self._catalog.turn(table.name()) as turn:
            if turn.location is None and not table.is_new:
                raise NoSuchTableError(f"table {staged.name} was dropped or renamed meanwhile: nothing is committed")
            if staged.producers and turn.location not in {None, table.metadata_location}:
                if not self._retries:
                    raise CommitFailedException(
                        f"table {staged.name}: another writer committed first, and commit.retry.num-retries is 0; reload it and retry"
                    )
                staged.rebase(turn.load())
                if self._landed():
                    return True
                if fails(staged.requirements, table.metadata):
                    self._doubtful = False  # this later version does not have the doubtful attempt, and rules it out
                if self._rebuilt < _OUTSIDE and any(producer.reads_data for producer in staged.producers):
                    return False
                staged.cannot_lose = turn.exclusive
                self._rebuild()
            self._turn = turn
            table._do_commit(staged.updates, (*staged.requirements, *self._columns_as_seen()))
        return True

    def _columns_as_seen(self) -> tuple[ice.AssertCurrentSchemaId, ...]:
        """Return the requirement that nobody changed the columns since they were checked: a server may let others commit in between."""
        staged = self._staged
        if not staged.producers or any(isinstance(known, ice.AssertCurrentSchemaId) for known in staged.requirements):
            return ()
        return (ice.AssertCurrentSchemaId(current_schema_id=staged.table.metadata.current_schema_id),)

    def _landed(self) -> bool:
        """Whether an attempt that was reported as failed was made after all: its snapshot's id tells."""
        known = {snapshot.snapshot_id for snapshot in self._staged.table.metadata.snapshots}
        return all(producer.snapshot_id in known for producer in self._staged.producers)

    def _rebuild(self) -> None:
        """Rebuild the snapshots on the table's present metadata, each in its place; a contradicting commit is a ValidationException."""
        self._turn = None
        staged = self._staged
        for check in staged.checks:
            check(staged.table.metadata)
        producers = {producer.snapshot_id: producer for producer in staged.producers}
        branches = {producer._target_branch for producer in staged.producers}
        updates, requirements = staged.updates, staged.requirements
        staged.updates = ()
        staged.requirements = tuple(r for r in requirements if not (isinstance(r, ice.AssertRefSnapshotId) and r.ref in branches))
        try:
            for update in updates:
                made_by = _producer_of(update, producers)
                if isinstance(update, ice.AddSnapshotUpdate) and made_by is not None:
                    made_by._refresh_for_retry()
                    made_by._validate_concurrency()
                    staged.stage(*made_by._commit())
                elif made_by is None and not isinstance(update, AddEncryptionKeyUpdate):
                    staged.stage((update,))
        except BaseException:
            # An attempt after this one commits everything, or is refused for the head it was staged on.
            staged.updates, staged.requirements = updates, requirements
            raise
        staged.drop_idle_producers()

    def _certainly_failed(self, error: BaseException) -> bool:
        if self._doubtful or (self._asked and isinstance(error, IntegrityError)):
            return False  # before it went back, the table may have had an attempt that was reported as refused
        if self._turn is None or self._turn.stage is Stage.PREPARING:
            return True  # earlier attempts were refused, and this one did not reach the catalog
        if self._turn.stage is Stage.ASKED:
            return isinstance(error, CommitFailedException)
        return isinstance(error, (CommitFailedException, ValidationException, IcelockError))


def _producer_of(update: ice.TableUpdate, producers: Mapping[int, Any]) -> Any:
    """Return the producer that staged a snapshot, or moved its own branch to it."""
    if isinstance(update, ice.AddSnapshotUpdate):
        return producers.get(update.snapshot.snapshot_id)
    if isinstance(update, ice.SetSnapshotRefUpdate):
        producer = producers.get(update.snapshot_id)
        return producer if producer is not None and producer._target_branch == update.ref_name else None
    return None
