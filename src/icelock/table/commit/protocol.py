"""The end of a transaction: commit, retry on fresh metadata, and what becomes of its files.

1. The transaction waits for its turn on the table (``catalog.commit.queue``): first come, first served.
2. Has the table moved on, its snapshots are made again on what is there now: data files and manifests of new files stay, key entries
   of before are dropped, so exactly one manifest-list key of a commit survives. A snapshot that takes long to make again is made
   outside the turn, and inside at last, so that a stream of quick writers cannot starve it.
3. The catalog replaces the metadata file. A refusal is a failed try: it is counted, and after a wait all begins again.

A commit that certainly failed deletes its files; one whose outcome is unknown deletes nothing. Each transaction works on its own
copy of the table, so threads may share one table object. Decisions: docs/adr/0008.

Not here: what a transaction can do (``table.transaction``), the producers (``table.commit.producer``, ``table.commit.row_delta``), finding
out what became of a commit (``catalog``).
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.update import AddSnapshotUpdate, AssertCurrentSchemaId, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

from icelock.errors import CommitError, IcelockError, IntegrityError
from icelock.metadata.updates import AddEncryptionKeyUpdate, apply_updates
from icelock.table.commit.retry import RetryPolicy
from icelock.table.commit.still_fits import check_same_names, check_still_fits
from icelock.table.commit.turn import DoubtfulConflictError, Stage, fails, given_up

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate
    from pyiceberg.table.update.snapshot import _SnapshotProducer

    from icelock.table.commit.turn import CommitTurn
    from icelock.table.table import Table

logger = logging.getLogger(__name__)

# How often a snapshot that takes long to make is made again while others may commit; after that nobody may until it is done.
_OUTSIDE: Final = 2


class CommitProtocol(Transaction):
    """PyIceberg's ``Transaction`` with a commit that knows the files that were written for it."""

    _table: Table
    makes_table = False
    """Whether the table is not there before the commit."""

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        super().__init__(table.at_one_version(), autocommit)
        self._shared = table
        self._data_files: list[str] = []
        self._turn: CommitTurn | None = None
        self._asked = False
        self._doubtful = False
        self._expected_head: tuple[str, int | None] | None = None
        self.cannot_lose = False
        """Whether snapshots are made while no other writer can commit."""

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the staged updates applied."""
        return apply_updates(self._table.metadata, self._updates, now_ms=self._table.encryption.clock)

    def track(self, *locations: str) -> None:
        """Remember files that were written for this transaction: they are deleted if its commit certainly fails."""
        self._data_files.extend(locations)

    def catch_up(self) -> bool:
        """Follow the table to the version that its catalog has now; False if there is no other one, or something is staged on this one."""
        if self._updates:
            return False
        fresh = self._table.catalog.load_table(self._table.name())
        if fresh.metadata_location == self._table.metadata_location:
            return False
        self._follow(fresh)
        return True

    def _follow(self, fresh: IcebergTable) -> None:
        """Go on from a later version of the table, on which what was planned and written has to mean the same.

        Raises:
            CommitError: it is another table, which has the name now.
            ValidationException: see ``still_fits``.
        """
        planned_on = self._table.metadata
        self._table.follow(fresh)
        self._check_head()
        name = ".".join(self._table.name())
        check_still_fits(planned_on, self._table.metadata, table=name)
        for producer in self._snapshot_producers:
            named = getattr(producer, "named_columns", None)
            if named is not None:
                check_same_names(planned_on.schema(), self._table.metadata.schema(), named(planned_on.schema()), table=name)

    def expect_head(self, branch: str, snapshot_id: int | None) -> None:
        """Let nothing be committed unless a branch has the snapshot that rows were read from: what replaces it knows no other.

        Raises:
            ValidationException: here or when committed, if it has another one.
        """
        self._expected_head = branch, snapshot_id
        self._check_head()

    def _check_head(self) -> None:
        if self._expected_head is None:
            return
        branch, wanted = self._expected_head
        ref = self._table.metadata.refs.get(branch)
        found = None if ref is None else ref.snapshot_id
        if found != wanted:
            raise ValidationException(
                f"conflict: the rows that replace table {'.'.join(self._table.name())} were read from snapshot {wanted} of it, and another "
                f"writer committed snapshot {found}; read and do it again"
            )

    def commit_transaction(self) -> Table:
        """Commit what is staged.

        Raises:
            CommitFailedException: the catalog refused each time; the files of this transaction were deleted.
            ValidationException: another writer's commit contradicts this one; likewise.
            PolicyError: an update would break a rule of encrypted tables; nothing was committed.
            NoSuchTableError: the table was dropped or renamed meanwhile.
            CommitStateUnknownException: nobody knows; nothing was deleted.
        """
        self._drop_idle_producers()
        try:
            if self._updates and not self._failed:
                self._commit_updates()
            else:
                super().commit_transaction()
        except BaseException as e:
            self._failed = True
            if self._certainly_failed(e):
                self._discard()
            elif self._data_files:
                what = "was made" if isinstance(e, CommitError) else "may have been made"
                e.add_note(f"The commit {what}; its data files were left in place: {', '.join(self._data_files)}")
            raise
        finally:
            self._data_files = []
        self._shared.advance(self._table)
        return self._shared

    def _commit_updates(self) -> None:
        retries = getattr(self._table.catalog, "commit_retries", TableProperties.COMMIT_NUM_RETRIES_DEFAULT)
        policy = RetryPolicy.of(self.table_metadata.properties, retries=retries)  # as they will be: a wrong one can be put right
        self._requirements += (AssertTableUUID(uuid=self.table_metadata.table_uuid),)
        failed = rebuilt = 0
        while True:
            try:
                if self._commit_once(again=policy.retries > 0, outside=rebuilt < _OUTSIDE):
                    break
            except CommitFailedException as e:
                failed += 1
                self._asked |= self._turn is not None and self._turn.stage is Stage.ASKED
                self._doubtful |= isinstance(e, DoubtfulConflictError)
                if failed > policy.retries or not self._snapshot_producers or policy.over():
                    raise given_up(e, doubtful=self._doubtful) from e.__cause__
                seconds = policy.seconds(failed, random.uniform)
                logger.debug(
                    "commit %d of %d of %s failed, again in %.3f s: %s", failed, policy.retries + 1, self._table.name(), seconds, e
                )
                time.sleep(seconds)
            else:
                rebuilt += 1
                self._rebuild_snapshot_updates()
        self._cleanup_uncommitted_manifests()
        self._snapshot_producers, self._updates, self._requirements = [], (), ()

    def _commit_once(self, *, again: bool, outside: bool) -> bool:
        """Commit in a turn; False if the snapshots have to be made again first, outside it.

        Args:
            again: whether snapshots may be made again at all.
            outside: whether those that take long may be made again outside the turn.
        """
        self._turn, self.cannot_lose = None, False
        with self._table.catalog.turn(self._table.name()) as turn:  # type: ignore[attr-defined]  # an EncryptedCatalog
            if turn.location is None and not self.makes_table:
                raise NoSuchTableError(f"table {'.'.join(self._table.name())} was dropped or renamed meanwhile: nothing is committed")
            if self._snapshot_producers and turn.location not in {None, self._table.metadata_location}:
                if not again:
                    raise CommitFailedException(
                        f"table {'.'.join(self._table.name())}: another writer was first, and commit.retry.num-retries is 0"
                    )
                self._follow(turn.load())
                if self._landed():
                    return True
                if fails(self._requirements, self._table.metadata):
                    self._doubtful = False  # a later version without the attempt that may have been made, and which rules it out
                if outside and any(getattr(producer, "takes_long", False) for producer in self._snapshot_producers):
                    return False
                self.cannot_lose = turn.exclusive
                self._rebuild_snapshot_updates()
            self._turn = turn
            self._table._do_commit(self._updates, (*self._requirements, *self._columns_as_seen()))
        return True

    def _columns_as_seen(self) -> tuple[AssertCurrentSchemaId, ...]:
        """Return the requirement that nobody changed the columns since they were looked at: a server may let others in between."""
        if not self._snapshot_producers or any(isinstance(known, AssertCurrentSchemaId) for known in self._requirements):
            return ()
        return (AssertCurrentSchemaId(current_schema_id=self._table.metadata.current_schema_id),)

    def _landed(self) -> bool:
        """Whether an attempt that was reported as failed was made all the same: its snapshot's id tells."""
        known = {snapshot.snapshot_id for snapshot in self._table.metadata.snapshots}
        return all(producer.snapshot_id in known for producer in self._snapshot_producers)

    def _certainly_failed(self, error: BaseException) -> bool:
        if self._doubtful or (self._asked and isinstance(error, IntegrityError)):
            return False  # a table that goes back may have had an attempt that was reported as refused
        if self._turn is None or self._turn.stage is Stage.PREPARING:
            return True  # the attempts before were refused, and this one did not get to the catalog
        if self._turn.stage is Stage.ASKED:
            return isinstance(error, CommitFailedException)
        return isinstance(error, (CommitFailedException, ValidationException, IcelockError))

    def _rebuild_snapshot_updates(self) -> None:
        """Make the snapshots again on the table's present metadata, each in its place among the staged updates.

        Raises:
            ValidationException: another writer's commit contradicts one of them.
        """
        self._turn = None
        producers = {producer.snapshot_id: producer for producer in self._snapshot_producers}
        branches = {producer._target_branch for producer in self._snapshot_producers}
        staged, self._updates = self._updates, ()
        self._requirements = tuple(r for r in self._requirements if not (isinstance(r, AssertRefSnapshotId) and r.ref in branches))
        for update in staged:
            made_by = _producer_of(update, producers)
            if isinstance(update, AddSnapshotUpdate) and made_by is not None:
                made_by._refresh_for_retry()
                made_by._validate_concurrency()
                self._stage(*made_by._commit())
            elif made_by is None and not isinstance(update, AddEncryptionKeyUpdate):
                self._stage((update,))
        self._drop_idle_producers()

    def _drop_idle_producers(self) -> None:
        """Forget deletes that found nothing to do: the producers' snapshots tell whether a lost commit landed."""
        if self._updates:
            self._snapshot_producers = [producer for producer in self._snapshot_producers if not getattr(producer, "idle", False)]

    def _discard(self, *, files: int = 0, producers: int = 0) -> None:
        """Delete what was written for this transaction, but for the first ``files`` files and ``producers`` snapshots."""
        for producer in self._snapshot_producers[producers:]:
            producer._clean_all_uncommitted()
        del self._snapshot_producers[producers:]
        for path in self._data_files[files:]:
            try:
                self._table.storage.delete(path)
            except FileNotFoundError:
                continue
            except OSError as e:  # the first error matters more; the file is listed by it
                logger.debug("left behind: %s (%s)", path, e)
        del self._data_files[files:]


class Cleanup:
    """Deletes what was written inside the ``with`` block when staging a snapshot fails, and forgets its producer."""

    def __init__(self, transaction: CommitProtocol) -> None:
        self._transaction = transaction

    def __enter__(self) -> None:
        self._files = len(self._transaction._data_files)
        self._producers = len(self._transaction._snapshot_producers)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._transaction._discard(files=self._files, producers=self._producers)


def _producer_of(update: TableUpdate, producers: dict[int, _SnapshotProducer[Any]]) -> _SnapshotProducer[Any] | None:
    """Return the producer that staged a snapshot, or moved its own branch to it."""
    if isinstance(update, AddSnapshotUpdate):
        return producers.get(update.snapshot.snapshot_id)
    if isinstance(update, SetSnapshotRefUpdate):
        producer = producers.get(update.snapshot_id)
        return producer if producer is not None and producer._target_branch == update.ref_name else None
    return None
