"""Commits against other writers and against failures: nothing lost, the lock given back, and no file deleted that may be needed."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType, MetaException, NoSuchLockException, UnlockRequest
from pyiceberg.catalog.hive import _HiveClient
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, TableAlreadyExistsError
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from icelock.catalog.hive.client import MetastoreClient
from icelock.errors import CommitError, IntegrityError, PolicyError
from tests.helpers.hive_faults import CutWire, Faults
from tests.helpers.tables import ids, local
from tests.lakes.hive import HiveLake, sha256
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.hive

ALTER = "alter_table_with_environment_context"
# No retries, so that one failure is seen; and no waiting between looks at the row.
ONCE = {**KEYED, "commit.retry.num-retries": "0", "commit.status-check.min-wait-ms": "1"}
GONE = TTransportException(TTransportException.END_OF_FILE, "the wire broke")
ANSWER = MetaException("the disk is full")
OOPS = TApplicationException(TApplicationException.INTERNAL_ERROR, "oops")


def kind(error: Exception) -> str:
    return type(error).__name__


def unchanged(hive: HiveLake, before: dict[str, str]) -> None:
    assert hive.parameters() == before
    assert hive.locks() == []
    # The metadata file of the failed commit is gone.
    assert hive.metadata_files() == {local(before[name]).name for name in before if name.endswith("metadata_location")}
    assert ids(hive.load()) == list(range(5))


def set_owner(table: Any) -> Any:
    return table.transaction().set_properties({"owner": "me"}).commit_transaction()


@contextlib.contextmanager
def held(hive: HiveLake, table: str = "t") -> Any:
    """Hold the table's lock as another writer; ``release`` gives it back earlier."""
    component = LockComponent(level=LockLevel.TABLE, type=LockType.EXCLUSIVE, dbname=hive.database, tablename=table, isTransactional=True)
    with _HiveClient(hive.uri) as client:
        lock = client.lock(LockRequest(component=[component], user="other", hostname="elsewhere"))
    released = threading.Event()

    def release() -> None:
        if not released.is_set():
            released.set()
            with _HiveClient(hive.uri) as client:
                client.unlock(UnlockRequest(lockid=lock.lockid))

    try:
        yield release
    finally:
        release()


def test_four_threads_that_append_lose_nothing(hive: HiveLake) -> None:
    """20 commits through two catalogs: each row once, a hash that fits, keys of every snapshot, row ids without overlap."""
    hive.make(properties={**KEYED, "commit.retry.num-retries": "30", "commit.retry.min-wait-ms": "10", "commit.retry.max-wait-ms": "200"})
    catalogs = [hive.catalog(), hive.catalog()]

    def work(thread: int) -> None:
        for turn in range(5):
            catalogs[thread % 2].load_table(hive.name()).append(people((thread * 5 + turn) * 10))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    table = hive.load()
    assert ids(table) == list(range(200))
    assert len(table.snapshots()) == 20
    key_ids = [snapshot.key_id for snapshot in table.snapshots()]
    assert len(set(key_ids)) == 20
    assert set(key_ids) <= {key.key_id for key in table.metadata.encryption_keys}
    assert sorted(snapshot.first_row_id for snapshot in table.snapshots()) == list(range(0, 200, 10))
    assert table.metadata.next_row_id == 200
    assert hive.parameters()["metadata_hash"] == sha256(hive.metadata_path().read_bytes())
    assert hive.locks() == []
    # Each commit left one metadata file, and each snapshot one manifest list: failed attempts were cleaned up.
    assert len(hive.metadata_files()) == 21
    assert sum("/snap-" in name for name in hive.files()) == 20


def test_a_stale_table_does_not_overwrite_another_commit(hive: HiveLake) -> None:
    stale = hive.make(rows=5, properties=ONCE)
    hive.load().append(people(5, 5))
    before = hive.parameters()
    files = hive.files()
    with pytest.raises(CommitFailedException):
        stale.append(people(10))
    assert hive.parameters() == before
    assert hive.files() == files
    assert hive.locks() == []
    assert ids(hive.load()) == list(range(10))


def test_a_commit_that_meets_another_is_repeated(hive: HiveLake) -> None:
    stale = hive.make(rows=5)
    hive.load().append(people(5, 5))
    stale.append(people(10, 5))
    assert ids(hive.load()) == ids(stale) == list(range(15))


def test_a_commit_that_changes_nothing_writes_nothing(hive: HiveLake) -> None:
    table = hive.make(rows=5)
    before = hive.parameters()
    response = hive.catalog().commit_table(table, (), ())
    assert response.metadata_location == before["metadata_location"]
    unchanged(hive, before)


def test_a_commit_waits_for_the_lock_of_another_writer(hive: HiveLake) -> None:
    table = hive.make(rows=5)
    with held(hive) as release:
        timer = threading.Timer(0.5, release)
        timer.start()
        begun = time.monotonic()
        table.append(people(5, 5))
        assert time.monotonic() - begun > 0.4
        timer.join()
    assert ids(hive.load()) == list(range(10))
    assert hive.locks() == []


def test_a_lock_that_is_not_given_up_ends_the_commit(hive: HiveLake) -> None:
    hive.make(rows=5, properties=ONCE)
    quick = {"lock-check-retries": "3", "lock-check-min-wait-time": "0.01", "lock-check-max-wait-time": "0.02"}
    table = hive.load(**quick)
    before = hive.parameters()
    with held(hive):
        with pytest.raises(CommitFailedException, match="locked by another writer"):
            set_owner(table)
        # The request that waited was taken back: only the other's lock is there.
        assert [lock.user for lock in hive.locks()] == ["other"]
    unchanged(hive, before)


def test_locks_of_other_tables_do_not_matter(hive: HiveLake) -> None:
    table = hive.make(rows=5)
    hive.make("u")
    with held(hive, "u"):
        table.append(people(5, 5))
    assert ids(hive.load()) == list(range(10))


STEPS = ("lock", "get_table", "check_lock")


@pytest.mark.turns(3)
@pytest.mark.parametrize("error", [GONE, ANSWER, TApplicationException(TApplicationException.INTERNAL_ERROR, "oops")], ids=kind)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", STEPS)
def test_a_failure_before_the_row_is_altered_changes_nothing(hive: HiveLake, call: str, when: str, error: Exception) -> None:
    hive.make(rows=5, properties=ONCE)
    before, files = hive.parameters(), hive.files()
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    Faults(catalog).fail(call, when, error, times=3)
    with pytest.raises(CommitFailedException, match="nothing was changed"):
        table.append(people(5, 5))
    unchanged(hive, before)
    assert hive.files() == files


def test_a_busy_metastore_is_asked_for_the_lock_again(hive: HiveLake) -> None:
    hive.make(rows=5, properties=ONCE)
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    faults = Faults(catalog)
    faults.fail("lock", "after", MetaException("deadlock"), times=2)
    set_owner(table)
    assert faults.calls.count("lock") == 3
    assert hive.locks() == []
    assert hive.parameters()["owner"] == "me"


class Refusal(Exception):  # noqa: N818
    """Something goes wrong in this process."""


@pytest.mark.turns(3)
@pytest.mark.parametrize("step", ["_read", "_stage_commit", "replacement", "write"])
@pytest.mark.parametrize("error", [Refusal, OSError, KeyboardInterrupt])
def test_an_exception_at_any_step_gives_the_lock_back(hive: HiveLake, monkeypatch: Any, step: str, error: type[BaseException]) -> None:
    hive.make(rows=5, properties=ONCE)
    before = hive.parameters()
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())

    def fail(*_: Any, **__: Any) -> Any:
        assert len(hive.locks()) == 1
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(catalog if hasattr(catalog, step) else catalog._store, step, fail)
        with pytest.raises(error):
            set_owner(table)
    unchanged(hive, before)


def test_a_metadata_file_half_written_is_removed(hive: HiveLake, monkeypatch: Any) -> None:
    hive.make(rows=5, properties=ONCE)
    before = hive.parameters()
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())

    def half(form: Any, staged: Any) -> None:  # noqa: ARG001
        with staged.io.new_output(staged.metadata_location).create() as stream:
            stream.write(b'{"format')
        raise Refusal

    with monkeypatch.context() as patch:
        patch.setattr(catalog._store, "write", half)
        with pytest.raises(Refusal):
            set_owner(table)
    unchanged(hive, before)


def test_a_lock_that_was_lost_ends_the_commit(hive: HiveLake) -> None:
    """The process slept longer than the metastore keeps a lock."""
    hive.make(rows=5, properties=ONCE)
    before = hive.parameters()
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    Faults(catalog).fail("check_lock", "before", NoSuchLockException("No such lock"))
    with pytest.raises(CommitFailedException, match="was lost before the commit"):
        set_owner(table)
    unchanged(hive, before)


def test_a_writer_that_took_no_lock_is_not_overwritten(hive: HiveLake, monkeypatch: Any) -> None:
    """alter_table names the file that it replaces: metastores with HIVE-26882 compare."""
    hive.make(rows=5, properties=ONCE)
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    other = hive.metadata_path().with_name("00009-other.metadata.json")
    other.write_bytes(hive.metadata_path().read_bytes())
    write = catalog._store.write

    def write_and_be_late(*args: Any) -> None:
        write(*args)
        hive.alter(put={"metadata_location": f"file:{other}"})

    with monkeypatch.context() as patch:
        patch.setattr(catalog._store, "write", write_and_be_late)
        with pytest.raises(CommitFailedException, match="has been modified"):
            set_owner(table)
    assert local(hive.parameters()["metadata_location"]) == other
    assert hive.locks() == []


@pytest.mark.parametrize("error", [GONE, ANSWER, TimeoutError("slow")], ids=kind)
def test_a_commit_that_was_made_though_the_call_failed_is_a_success(hive: HiveLake, error: Exception) -> None:
    hive.make(rows=5, properties=ONCE)
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    Faults(catalog).fail(ALTER, "after", error)
    table.append(people(5, 5))
    assert ids(table) == ids(hive.load()) == list(range(10))
    assert hive.locks() == []


def test_a_commit_on_which_another_was_made_is_a_success(hive: HiveLake, monkeypatch: Any) -> None:
    """The row names a later file, whose history has ours."""
    hive.make(rows=5, properties=ONCE)
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    Faults(catalog).fail(ALTER, "after", GONE)
    was_made = catalog._store.was_made

    def look_late(*args: Any, **kwargs: Any) -> Any:
        # Without the lock, which this commit still holds.
        with monkeypatch.context() as inner:
            inner.setattr("icelock.catalog.hive.lock.TableLock._acquire", lambda _: None)
            inner.setattr("icelock.catalog.hive.lock.TableLock.renew", lambda _: None)
            hive.load().append(people(10, 5))
        return was_made(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(catalog._store, "was_made", look_late)
        table.append(people(5, 5))
    assert ids(hive.load()) == list(range(15))


def test_a_commit_that_the_metastore_refused_leaves_nothing(hive: HiveLake) -> None:
    hive.make(rows=5, properties=ONCE)
    before, files = hive.parameters(), hive.files()
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    Faults(catalog).fail(ALTER, "before", ANSWER)
    with pytest.raises(CommitFailedException, match="the disk is full; nothing was changed"):
        table.append(people(5, 5))
    unchanged(hive, before)
    assert hive.files() == files


def test_a_commit_whose_outcome_the_row_does_not_tell_deletes_nothing(hive: HiveLake) -> None:
    """The request may still be on its way."""
    hive.make(rows=5, properties=ONCE)
    before, files = hive.parameters(), hive.files()
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    faults = Faults(catalog)
    faults.fail(ALTER, "before", GONE)
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted") as caught:
        table.append(people(5, 5))
    assert faults.calls.count("get_table") == 1 + 4
    kept = set(hive.files()) - set(files)
    assert sorted(name.rsplit(".", 1)[1] for name in kept) == ["avro", "avro", "json", "parquet"]
    assert any(name.endswith(".parquet") and name.rsplit("/", 1)[1] in caught.value.__notes__[0] for name in kept)
    (json_file,) = [name for name in kept if name.endswith(".json")]
    assert json_file.rsplit("/", 1)[1] in str(caught.value)
    assert hive.parameters() == before
    assert hive.locks() == []
    # The commit can be finished by hand with the file that the message names.
    path = hive.warehouse / json_file
    hive.alter(put={"metadata_location": f"file:{path}", "metadata_hash": sha256(path.read_bytes())})
    assert ids(hive.load()) == list(range(10))


def test_a_commit_whose_row_cannot_be_read_afterwards_deletes_nothing(hive: HiveLake) -> None:
    """The metastore refused, or says so, and then does not answer."""
    hive.make(rows=5, properties={**ONCE, "commit.status-check.num-retries": "1"})
    files = hive.files()
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    faults = Faults(catalog)
    faults.fail(ALTER, "after", ANSWER)
    got = hive.catalog()._get_hive_table

    def once(client: Any, database: str, name: str) -> Any:
        if ALTER in faults.calls:
            raise GONE
        return got(client, database, name)

    catalog._get_hive_table = once
    with pytest.raises(CommitStateUnknownException):
        table.append(people(5, 5))
    assert set(files) < set(hive.files())
    assert ids(hive.load()) == list(range(10))
    assert hive.locks() == []


def test_an_interrupted_alter_deletes_nothing(hive: HiveLake) -> None:
    hive.make(rows=5, properties=ONCE)
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    Faults(catalog).fail(ALTER, "after", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        table.append(people(5, 5))
    assert ids(hive.load()) == list(range(10))
    assert hive.locks() == []


def test_a_check_after_the_commit_that_fails_deletes_nothing(hive: HiveLake, monkeypatch: Any) -> None:
    hive.make(rows=5, properties=ONCE)
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())

    def fail(*_: Any, **__: Any) -> None:
        msg = "did not come back"
        raise CommitError(msg)

    with monkeypatch.context() as patch:
        patch.setattr("icelock.catalog.base.check_kept", fail)
        with pytest.raises(CommitError):
            table.append(people(5, 5))
    assert ids(hive.load()) == list(range(10))


def test_a_lock_that_is_not_given_back_does_not_undo_a_commit(hive: HiveLake, caplog: pytest.LogCaptureFixture) -> None:
    hive.make(rows=5, properties=ONCE)
    catalog = hive.catalog()
    table = catalog.load_table(hive.name())
    faults = Faults(catalog)
    faults.fail("unlock", "before", GONE)
    table.append(people(5, 5))
    assert hive.locks() == []
    faults.fail("unlock", "before", GONE, times=2)
    table.append(people(10, 5))
    assert "not given back" in caplog.text
    (left,) = hive.locks()
    assert left.agentInfo.startswith("icelock-")
    with _HiveClient(hive.uri) as client:
        client.unlock(UnlockRequest(lockid=left.lockid))
    assert ids(hive.load()) == list(range(15))


@pytest.mark.turns(3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", [*STEPS, ALTER, "unlock"])
def test_the_wire_breaks_at_a_request(hive: HiveLake, call: str, when: str) -> None:
    """Retries make it one commit, or the outcome is unknown; never two, and never a table that cannot be read."""
    hive.make(rows=5, properties={**ONCE, "commit.retry.num-retries": "2", "commit.retry.min-wait-ms": "1"})
    with CutWire(hive.uri) as wire:
        table = hive.load(uri=wire.uri)
        wire.cut(call, when)
        if (call, when) == (ALTER, "before"):
            with pytest.raises(CommitStateUnknownException):
                table.append(people(5, 5))
            assert ids(hive.load()) == list(range(5))
        else:
            table.append(people(5, 5))
            assert ids(hive.load()) == list(range(10))
            assert len(hive.load().snapshots()) == 2
    assert hive.locks() == []


def test_the_metastore_dies_at_the_alter_and_stays_dead(hive: HiveLake) -> None:
    hive.make(rows=5, properties=ONCE)
    files = hive.files()
    with CutWire(hive.uri) as wire:
        table = hive.load(uri=wire.uri)
        wire.cut(ALTER, "after", dead=True)
        with pytest.raises(CommitStateUnknownException):
            table.append(people(5, 5))
        assert set(files) < set(hive.files())
        wire.mend()
        # It had been done; the table is whole.
        assert ids(hive.load()) == list(range(10))
    for lock in hive.locks():  # nobody could give it back: the metastore drops it in time
        with _HiveClient(hive.uri) as client:
            client.unlock(UnlockRequest(lockid=lock.lockid))


def test_no_metastore_at_all(hive: HiveLake) -> None:
    table = hive.make(rows=5, properties=ONCE)
    before, files = hive.parameters(), hive.files()
    with CutWire(hive.uri) as wire:
        catalog = hive.catalog(uri=wire.uri)
        table = catalog.load_table(hive.name())
    with pytest.raises(CommitFailedException, match="no metastore answers"):
        table.append(people(5, 5))
    unchanged(hive, before)
    assert hive.files() == files


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [GONE, ANSWER], ids=kind)
def test_a_create_that_fails(hive: HiveLake, error: Exception, when: str) -> None:
    catalog = hive.catalog()
    Faults(catalog).fail("create_table", when, error)
    if when == "after":
        catalog.create_table(hive.name(), people().schema, properties=ONCE).append(people())
        assert ids(hive.load()) == list(range(10))
        return
    expected = CommitError if error is ANSWER else CommitStateUnknownException
    with pytest.raises(expected):
        catalog.create_table(hive.name(), people().schema, properties=ONCE)
    assert catalog.list_tables(hive.database) == []
    assert len(hive.files()) == (0 if error is ANSWER else 1)


def test_a_create_that_finds_no_metastore_leaves_no_file(hive: HiveLake, monkeypatch: Any) -> None:
    catalog = hive.catalog()
    stage = catalog._store.stage

    def stage_and_lose(*args: Any) -> Any:
        catalog._client, staged = MetastoreClient({"uri": "thrift://127.0.0.1:1"}), stage(*args)
        return staged

    with monkeypatch.context() as patch:
        patch.setattr(catalog._store, "stage", stage_and_lose)
        with pytest.raises(CommitError, match="no metastore answers"):
            catalog.create_table(hive.name(), people().schema, properties=KEYED)
    assert hive.files() == {}


def test_two_creates_at_once_make_one_table(hive: HiveLake, monkeypatch: Any) -> None:
    catalog = hive.catalog()
    free = catalog.free_name

    def slow(identifier: Any) -> Any:
        found = free(identifier)
        hive.make(rows=5)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "free_name", slow)
        with pytest.raises(TableAlreadyExistsError):
            catalog.create_table(hive.name(), people().schema, properties=KEYED)
    assert len(hive.metadata_files()) == 2
    assert ids(hive.load()) == list(range(5))


def test_a_rename_waits_for_a_commit(hive: HiveLake) -> None:
    """Without the lock it would put the row back that it read before the commit."""
    hive.make(rows=5)
    quick = {"lock-check-retries": "2", "lock-check-min-wait-time": "0.01"}
    with held(hive), pytest.raises(CommitFailedException, match="locked by another writer"):
        hive.catalog(**quick).rename_table(hive.name(), hive.name("u"))
    assert ids(hive.catalog().rename_table(hive.name(), hive.name("u"))) == list(range(5))
    assert hive.locks() == []


def test_a_table_dropped_or_renamed_meanwhile_is_not_made_again(hive: HiveLake) -> None:
    table = hive.make(rows=5, properties=ONCE)
    hive.catalog().rename_table(hive.name(), hive.name("u"))
    with pytest.raises(NoSuchTableError, match="dropped or renamed"):
        table.append(people(5, 5))
    hive.catalog().drop_table(hive.name("u"))
    with pytest.raises(NoSuchTableError, match="dropped or renamed"):
        set_owner(table)
    assert hive.catalog().list_tables(hive.database) == []
    assert hive.locks() == []


def test_a_refused_update_gives_the_lock_back(hive: HiveLake) -> None:
    table = hive.make(rows=5, properties=ONCE)
    before = hive.parameters()
    with pytest.raises(PolicyError):
        table.transaction().set_properties({"write.format.default": "orc"}).commit_transaction()
    unchanged(hive, before)
    hive.metadata_path().write_bytes(hive.metadata_path().read_bytes().replace(b'"town', b'"twon').replace(b'"city"', b'"sity"'))
    with pytest.raises(IntegrityError):
        set_owner(table)
    assert hive.locks() == []
