"""The steps of a commit on values: a catalog that answers as it is told, snapshots that say what they were asked, and no storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, ValidationException
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetPropertiesUpdate

from icelock.errors import IntegrityError
from icelock.metadata.table_metadata import Snapshot, TableMetadataV3
from icelock.table.commit.protocol import CommitProtocol, CommitTurn, DoubtfulConflictError, Stage
from icelock.table.commit.staged import Staged

QUICK = {"commit.retry.min-wait-ms": "0"}
OWN, OTHER = 7, 8


def metadata(*snapshots: int, **properties: str) -> TableMetadataV3:
    """A plain table: what is staged on it needs no keys."""
    found = [
        {"snapshot-id": n, "timestamp-ms": n, "sequence-number": n, "manifest-list": f"s3://b/{n}", "summary": {"operation": "append"}}
        for n in snapshots
    ]
    return TableMetadataV3.model_validate(
        {
            "format-version": 3,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "s3://b",
            "last-sequence-number": len(snapshots),
            "last-updated-ms": 100,
            "last-column-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {**QUICK, **properties},
            "snapshots": found,
            "refs": {"main": {"snapshot-id": snapshots[-1], "type": "branch"}} if snapshots else {},
            "next-row-id": 0,
        }
    )


class FakeStorage:
    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, location: str) -> None:
        self.deleted.append(location)


class FakeTable:
    """An ``OpenTable``: ``answers`` are what the catalog does for each commit, None or an error."""

    is_new = False

    def __init__(self, **properties: str) -> None:
        self.storage: Any = FakeStorage()
        self.encryption: Any = SimpleNamespace(clock=lambda: 200)
        self.metadata = metadata(1, **properties)
        self.metadata_location = "v1"
        self.catalog: Any = SimpleNamespace(name="test", turn=self.turn)
        self.current: tuple[str | None, TableMetadataV3] = ("v1", self.metadata)
        self.answers: list[BaseException | None] = []
        self.sent: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []
        self.stage = Stage.ASKED
        self.exclusive = True

    def name(self) -> tuple[str, ...]:
        return ("db", "t")

    @contextmanager
    def turn(self, name: tuple[str, ...]) -> Iterator[CommitTurn]:
        assert name == self.name()
        turn = CommitTurn(self.current[0])
        turn.exclusive, turn.stage = self.exclusive, self.stage
        turn.load = lambda: SimpleNamespace(metadata=self.current[1], metadata_location=self.current[0])  # type: ignore[assignment,method-assign,return-value]
        yield turn

    def follow(self, fresh: Any) -> None:
        self.metadata, self.metadata_location = fresh.metadata, fresh.metadata_location

    def _do_commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None:
        self.sent.append((updates, requirements))
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer

    def moved_on(self, location: str = "v2", *snapshots: int) -> None:
        self.current = (location, metadata(1, *(snapshots or (OTHER,))))


class FakeProducer:
    """A snapshot of the main branch. ``asked`` are the steps that it was taken through."""

    snapshot_id = OWN
    _target_branch = "main"
    idle = False

    def __init__(self, staged: Staged, *, reads_data: bool = False, conflict: bool = False) -> None:
        self._staged = staged
        self.reads_data = reads_data
        self._conflict = conflict
        self.asked: list[str] = []

    def named_columns(self, schema: Any) -> tuple[int, ...]:
        del schema
        return ()

    def _refresh_for_retry(self) -> None:
        self.asked.append("refresh")

    def _validate_concurrency(self) -> None:
        self.asked.append("validate")
        if self._conflict:
            raise ValidationException("conflict")

    def _commit(self) -> tuple[Any, Any]:
        self.asked.append(f"write {'alone' if self._staged.cannot_lose else 'in a race'}")
        head = self._staged.metadata.refs["main"].snapshot_id
        added = Snapshot(
            snapshot_id=OWN,
            parent_snapshot_id=head,
            manifest_list="s3://b/own",
            sequence_number=9,
            timestamp_ms=300,
            first_row_id=0,
            added_rows=0,
        )
        return (AddSnapshotUpdate(snapshot=added),), (AssertRefSnapshotId(ref="main", snapshot_id=head),)

    def _cleanup_uncommitted(self) -> None:
        self.asked.append("tidy")

    def _clean_all_uncommitted(self) -> None:
        self.asked.append("discard")


def staged_on(table: FakeTable, **how: bool) -> tuple[Staged, FakeProducer]:
    staged = Staged(table)  # type: ignore[arg-type]
    producer = FakeProducer(staged, **how)
    staged.producers.append(producer)
    staged.stage(*producer._commit())
    staged.track("s3://b/data")
    producer.asked.clear()
    return staged, producer


def commit(staged: Staged) -> None:
    CommitProtocol(staged, staged.table.catalog).commit()


def test_what_nobody_overtook_is_committed_as_it_is_staged() -> None:
    table = FakeTable()
    staged, producer = staged_on(table)
    commit(staged)
    (updates, requirements) = table.sent[0]
    assert [type(update).__name__ for update in updates] == ["AddSnapshotUpdate"]
    assert sorted(type(one).__name__ for one in requirements) == ["AssertCurrentSchemaId", "AssertRefSnapshotId", "AssertTableUUID"]
    assert producer.asked == ["tidy"]
    assert (staged.updates, staged.requirements, staged.producers, staged.new_files) == ((), (), [], [])
    assert table.storage.deleted == []


@pytest.mark.parametrize("reads_data", [False, True])
def test_after_a_commit_of_another_the_snapshot_is_checked_and_made_again(*, reads_data: bool) -> None:
    """In the turn, where nobody can overtake it; one that reads data outside of it first."""
    table = FakeTable()
    staged, producer = staged_on(table, reads_data=reads_data)
    table.moved_on()
    commit(staged)
    assert producer.asked == ["refresh", "validate", "write in a race" if reads_data else "write alone", "tidy"]
    assert [one.snapshot_id for one in table.sent[0][1] if isinstance(one, AssertRefSnapshotId)] == [OTHER]
    assert len(table.sent) == 1


def test_a_conflict_ends_the_commit_and_deletes_its_files() -> None:
    table = FakeTable()
    staged, producer = staged_on(table, conflict=True)
    table.moved_on()
    with pytest.raises(ValidationException, match="conflict"):
        commit(staged)
    assert (table.sent, table.storage.deleted, producer.asked[-1]) == ([], ["s3://b/data"], "discard")


def test_a_rebuild_that_is_refused_loses_no_update() -> None:
    """What is sent next holds for the head that the snapshot was made for, so a catalog refuses it."""
    table = FakeTable()
    staged, producer = staged_on(table)
    refusals = [CommitFailedException("a catalog that is asked while the snapshot is rebuilt")]
    producer._validate_concurrency = lambda: (_ for _ in ()).throw(refusals.pop()) if refusals else None  # type: ignore[method-assign]
    table.moved_on()
    commit(staged)
    (updates, requirements) = table.sent[0]
    assert [type(update).__name__ for update in updates] == ["AddSnapshotUpdate"]
    assert [one.snapshot_id for one in requirements if isinstance(one, AssertRefSnapshotId)] == [1]


def test_an_attempt_that_was_made_after_all_is_found_by_its_snapshot() -> None:
    table = FakeTable()
    staged, producer = staged_on(table)
    table.moved_on("v2", OWN)
    commit(staged)
    assert (table.sent, producer.asked, table.storage.deleted) == ([], ["tidy"], [])


def refused() -> CommitFailedException:
    return CommitFailedException("refused")


@pytest.mark.parametrize(
    ("answers", "stage", "raised", "deleted"),
    [
        ([refused()] * 5, Stage.ASKED, CommitFailedException, True),
        ([CommitStateUnknownException("no answer")], Stage.ASKED, CommitStateUnknownException, False),
        ([ConnectionError("before the catalog was asked")], Stage.PREPARING, ConnectionError, True),
        ([ConnectionError("who knows")], Stage.UNKNOWN, ConnectionError, False),
        ([DoubtfulConflictError("perhaps ours"), *[refused()] * 4], Stage.ASKED, CommitStateUnknownException, False),
        ([refused(), IntegrityError("the table goes back")], Stage.ASKED, IntegrityError, False),
    ],
    ids=["refused", "no answer", "not asked", "unknown stage", "perhaps ours", "goes back"],
)
def test_files_are_deleted_only_if_the_commit_certainly_failed(
    *, answers: list[BaseException], stage: Stage, raised: type[BaseException], deleted: bool
) -> None:
    table = FakeTable()
    staged, producer = staged_on(table)
    table.answers, table.stage = list(answers), stage
    with pytest.raises(raised) as failure:
        commit(staged)
    assert len(table.sent) == len(answers)
    assert table.storage.deleted == (["s3://b/data"] if deleted else [])
    assert ("discard" in producer.asked) == deleted
    assert ("s3://b/data" in "".join(getattr(failure.value, "__notes__", []))) != deleted
    assert staged.new_files == []


def test_a_table_that_is_gone_is_not_committed_to() -> None:
    table = FakeTable()
    staged, _ = staged_on(table)
    table.current = (None, table.metadata)
    with pytest.raises(NoSuchTableError, match="dropped or renamed"):
        commit(staged)
    assert table.storage.deleted == ["s3://b/data"]


def test_without_retries_a_commit_holds_for_the_version_that_was_seen_only() -> None:
    table = FakeTable(**{"commit.retry.num-retries": "0"})
    staged, producer = staged_on(table)
    table.moved_on()
    with pytest.raises(CommitFailedException, match=r"another writer committed first.*num-retries is 0"):
        commit(staged)
    assert (table.sent, producer.asked) == ([], ["discard"])


def test_updates_without_a_snapshot_are_sent_once() -> None:
    """Nothing can be made again for them, so a refusal is final."""
    table = FakeTable()
    staged = Staged(table)  # type: ignore[arg-type]
    staged.stage((SetPropertiesUpdate(updates={"owner": "me"}),))
    table.answers = [refused()]
    with pytest.raises(CommitFailedException):
        commit(staged)
    assert len(table.sent) == 1


def test_staging_that_fails_deletes_only_what_it_wrote() -> None:
    table = FakeTable()
    staged, producer = staged_on(table)
    later = FakeProducer(staged)

    def fail() -> None:
        with staged.discarding_on_error():
            staged.track("s3://b/later")
            staged.producers.append(later)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert (table.storage.deleted, later.asked, producer.asked) == (["s3://b/later"], ["discard"], [])
    assert (staged.new_files, staged.producers) == (["s3://b/data"], [producer])
