"""What becomes of a commit whose answer is an error or gets lost: nothing that may be needed is deleted, nothing useless is left.

Hive's own failures are in ``tests/services/hive``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError

from icelock.errors import CommitError, IntegrityError, KeyUnavailableError
from tests.concurrency.race_places import sqlite_lake
from tests.concurrency.whole_table import assert_whole, ids
from tests.helpers.hive_faults import CutWire
from tests.helpers.tables import load
from tests.lakes.postgres import PostgresLake
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.servers.postgres import Postgres

# No retries, so that one failure is seen, and hardly any waiting between looks at the row.
ONCE = {**KEYED, "commit.retry.num-retries": "0", "commit.status-check.min-wait-ms": "1"}
RETRIED = {**ONCE, "commit.retry.num-retries": "2", "commit.retry.min-wait-ms": "1"}


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestLake]:
    if request.param == "sqlite":
        yield sqlite_lake(tmp_path)
        return
    with closing(PostgresLake(tmp_path, request.getfixturevalue("postgres"))) as made:
        yield made


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def make(lake: TestLake, properties: dict[str, str], rows: int = 5) -> Any:
    table = lake.catalog().create_table("db.t", people().schema, properties=properties)
    table.append(people(0, rows))
    return table


def set_owner(table: Any) -> None:
    table.transaction().set_properties({"owner": "me"}).commit_transaction()


def at_commit(table: Any, do: Callable[[Callable[[], None]], None], times: int = 1) -> list[int]:
    """Let the next COMMITs of the table's catalog be ``do(the real one)``; return the list of what was done."""
    dialect = table.catalog.engine.dialect
    real, done = dialect.do_commit, []

    def commit(connection: Any) -> None:
        if len(done) < times:
            done.append(1)
            do(lambda: real(connection))
        else:
            real(connection)

    dialect.do_commit = commit
    return done


def lost(lake: TestLake) -> Exception:
    return (
        psycopg.OperationalError("the connection is lost") if isinstance(lake, PostgresLake) else sqlite3.OperationalError("disk I/O error")
    )


def unchanged(lake: TestLake, before: dict[str, bytes]) -> None:
    assert lake.files() == before
    assert ids(load(lake)) == list(range(5))


def test_a_commit_that_was_made_though_its_answer_was_an_error_is_a_success(lake: TestLake) -> None:
    table = make(lake, ONCE)

    def after(commit: Callable[[], None]) -> None:
        commit()
        raise lost(lake)

    assert at_commit(table, after) == []
    table.append(people(5, 5))
    assert ids(table) == ids(load(lake)) == list(range(10))
    set_owner(table)
    assert_whole(load(lake))


def test_a_commit_on_which_another_was_made_is_a_success(lake: TestLake) -> None:
    """The row names a later file, whose history has ours."""
    table = make(lake, ONCE)

    def after(commit: Callable[[], None]) -> None:
        commit()
        load(lake).append(people(10, 5))
        raise lost(lake)

    at_commit(table, after)
    table.append(people(5, 5))
    assert ids(load(lake)) == list(range(15))
    assert_whole(load(lake))


def test_a_commit_that_was_not_made_leaves_nothing(lake: TestLake) -> None:
    table = make(lake, ONCE)
    before = lake.files()

    def instead(_: Callable[[], None]) -> None:
        raise lost(lake)

    at_commit(table, instead)
    with pytest.raises(CommitFailedException, match="nothing was changed"):
        table.append(people(5, 5))
    unchanged(lake, before)


def test_a_commit_that_was_not_made_is_repeated(lake: TestLake) -> None:
    table = make(lake, RETRIED)

    def instead(_: Callable[[], None]) -> None:
        raise lost(lake)

    done = at_commit(table, instead, times=2)
    table.append(people(5, 5))
    assert len(done) == 2
    assert ids(load(lake)) == list(range(10))
    assert_whole(load(lake))


def test_a_database_that_is_gone_after_the_commit_leaves_everything(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake, ONCE)
    before = lake.files()
    connect = table.catalog.engine.connect

    def after(commit: Callable[[], None]) -> None:
        commit()
        table.catalog.engine.connect = gone
        raise lost(lake)

    def gone() -> Any:
        raise lost(lake)

    at_commit(table, after)
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted") as caught:
        table.append(people(5, 5))
    kept = set(lake.files()) - set(before)
    assert sorted(name.rsplit(".", 1)[1] for name in kept) == ["avro", "avro", "json", "parquet"]
    assert any(name.endswith(".parquet") and name.rsplit("/", 1)[1] in caught.value.__notes__[0] for name in kept)
    table.catalog.engine.connect = connect
    monkeypatch.undo()
    assert ids(load(lake)) == list(range(10)), "it had been made"
    assert_whole(load(lake))


def test_a_new_table_whose_answer_is_lost(lake: TestLake) -> None:
    catalog = lake.catalog()

    def after(commit: Callable[[], None]) -> None:
        commit()
        raise lost(lake)

    def instead(_: Callable[[], None]) -> None:
        raise lost(lake)

    table = catalog.create_table("db.u", people().schema, properties=ONCE)
    at_commit(table, after)
    assert catalog.create_table("db.t", people().schema, properties=ONCE).scan().count() == 0
    at_commit(table, instead)
    with pytest.raises(CommitStateUnknownException):
        catalog.create_table("db.v", people().schema, properties=ONCE)
    assert catalog.list_tables("db") == [("db", "t"), ("db", "u")]
    assert sum(name.startswith("db/v/") for name in lake.files()) == 1, "nobody knows: the file is kept"
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("db.t", people().schema, properties=ONCE)
    assert sum(name.startswith("db/t/") for name in lake.files()) == 1


# Faults before the database is asked: nothing can have happened, so nothing is left, whatever the error.


@pytest.mark.turns(3)
@pytest.mark.parametrize("step", ["load_from_metadata", "_stage_commit", "write"])
@pytest.mark.parametrize(
    "error", [OSError("the disk is full"), IntegrityError("changed"), KeyUnavailableError("no"), KeyboardInterrupt()], ids=repr
)
def test_a_fault_before_the_database_is_asked_leaves_nothing(
    lake: TestLake, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    table = make(lake, ONCE)
    before = lake.files()
    owner = table.catalog._store if step == "write" else table.catalog
    real = getattr(owner, step)

    def fail(*arguments: Any, **named: Any) -> Any:
        if step == "write":
            real(*arguments, **named)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, fail)
        with pytest.raises(type(error)):
            table.append(people(5, 5))
    unchanged(lake, before)
    table.append(people(5, 5))
    assert_whole(load(lake))


def test_a_fault_while_a_snapshot_is_made_again_leaves_nothing(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = make(lake, RETRIED)
    load(lake).append(people(5, 5))
    before = lake.files()

    def fail(*_: Any, **__: Any) -> Any:
        msg = "the disk is full"
        raise OSError(msg)

    original = __import__("icelock.table.commit.producer", fromlist=["x"]).write_manifest_list
    calls: list[int] = []

    def second(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        return fail() if len(calls) > 1 else original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr("icelock.table.commit.producer.write_manifest_list", second)
        with pytest.raises(OSError, match="full"):
            stale.append(people(10, 5))
    assert lake.files() == before
    assert ids(load(lake)) == list(range(10))


def test_a_check_that_fails_after_the_commit_deletes_nothing(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake, ONCE)
    real, calls = table.catalog.load_table, []

    def fail(*_: Any) -> Any:
        calls.append(1)
        raise lost(lake)

    with monkeypatch.context() as patch:
        patch.setattr(table.catalog, "load_table", fail)
        with pytest.raises(CommitError, match="the commit was made"):
            table.append(people(5, 5))
    assert len(calls) == 4, "asked as often as commit.status-check.num-retries says"
    assert ids(real("db.t")) == list(range(10))
    assert_whole(load(lake))


def test_a_lock_that_is_not_given_up_ends_the_commit(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icelock.catalog.sql.catalog.LOCK_WAIT_MS", 200)
    table = make(lake, ONCE)
    before = lake.files()
    with lake.catalog().turn(("db", "t")), pytest.raises(CommitFailedException, match="gave no lock"):
        table.append(people(5, 5))
    unchanged(lake, before)


def test_readers_that_keep_sqlite_from_committing_end_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icelock.catalog.sql.catalog.LOCK_WAIT_MS", 200)
    lake = sqlite_lake(tmp_path)
    table = make(lake, ONCE)
    before = lake.files()
    reader = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM iceberg_tables").fetchone() == (1,)
    with pytest.raises(CommitFailedException, match="database is locked"):
        table.append(people(5, 5))
    reader.close()
    unchanged(lake, before)
    table.append(people(5, 5))
    assert_whole(load(lake))


def test_a_writer_that_takes_no_lock_is_not_overwritten(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is compared as well: a client that changed it all the same wins."""
    table = make(lake, ONCE)
    other = load(lake)
    other.append(people(5, 5))
    before = lake.files()
    stale = table.metadata_location

    def behind(self: Any) -> Any:
        self.location = stale
        return self._store.catalog.load_from_metadata(("db", "t"), stale)

    with monkeypatch.context() as patch:
        patch.setattr("icelock.catalog.sql.catalog.SqlTurn.load", behind)
        with pytest.raises(CommitFailedException, match="another writer committed first"):
            set_owner(table)
    assert lake.files() == before
    assert ids(load(lake)) == list(range(10))


# PostgreSQL only: the wire, the server's process, the server.


@pytest.mark.turns(3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("request_", ["BEGIN", "FOR UPDATE", "UPDATE iceberg_tables", "COMMIT"])
def test_the_wire_breaks_at_a_request(postgres: Postgres, tmp_path: Path, request_: str, when: str) -> None:
    """Retries make it one commit; never two, and never a table that cannot be read."""
    lake = PostgresLake(tmp_path, postgres)
    make(lake, RETRIED)
    with CutWire(f"thrift://127.0.0.1:{postgres.port}") as wire:
        uri = postgres.uri(lake.database, int(wire.uri.rsplit(":", 1)[1]))
        table = lake.catalog(uri=uri).load_table("db.t")
        wire.cut(request_, when)
        table.append(people(5, 5))
    assert ids(load(lake)) == list(range(10))
    assert len(load(lake).snapshots()) == 2
    assert_whole(load(lake))


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
def test_the_server_s_process_is_killed_around_the_commit(postgres: Postgres, tmp_path: Path, made: bool) -> None:  # noqa: FBT001
    lake = PostgresLake(tmp_path, postgres)
    table = make(lake, ONCE)
    before = lake.files()

    def killed(commit: Callable[[], None]) -> None:
        if made:
            commit()
        with postgres.connect() as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", [lake.database]
            )
        commit()

    at_commit(table, killed)
    if made:
        table.append(people(5, 5))
        assert ids(load(lake)) == list(range(10))
        assert_whole(load(lake))
    else:
        with pytest.raises(CommitFailedException, match="nothing was changed"):
            table.append(people(5, 5))
        unchanged(lake, before)


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
def test_the_server_restarts_around_the_commit(own_server: Postgres, tmp_path: Path, made: bool) -> None:  # noqa: FBT001
    lake = PostgresLake(tmp_path, own_server)
    table = make(lake, RETRIED)

    def restarted(commit: Callable[[], None]) -> None:
        if made:
            commit()
        own_server.crash()
        own_server.start()
        commit()

    done = at_commit(table, restarted)
    table.append(people(5, 5))
    assert done == [1]
    assert ids(load(lake)) == list(range(10))
    assert len(load(lake).snapshots()) == 2
    assert_whole(load(lake))


def _before_the_row(table: Any, monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Do something once between the lock and the row: when the new metadata file was written."""
    write = table.catalog._store.write
    left = [do]

    def written(*arguments: Any) -> Any:
        made = write(*arguments)
        if left:
            left.pop()()
        return made

    monkeypatch.setattr(table.catalog._store, "write", written)


def test_the_server_restarts_while_a_commit_holds_its_lock(own_server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = PostgresLake(tmp_path, own_server)
    table = make(lake, RETRIED)

    def restart() -> None:
        own_server.crash()
        own_server.start()

    _before_the_row(table, monkeypatch, restart)
    table.append(people(5, 5))
    assert ids(load(lake)) == list(range(10))
    assert len(load(lake).snapshots()) == 2
    assert_whole(load(lake))


def test_a_lock_that_was_lost_to_another_writer_loses_no_commit(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database ends our session; another writer gets the lock and commits before we go on."""
    lake = PostgresLake(tmp_path, postgres)
    table, other = make(lake, RETRIED), load(lake)

    def lose() -> None:
        with postgres.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", [lake.database]
            )
        other.append(people(5, 5))

    _before_the_row(table, monkeypatch, lose)
    table.append(people(10, 5))
    assert ids(load(lake)) == list(range(15))
    assert len(load(lake).snapshots()) == 3
    assert_whole(load(lake))


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
def test_a_server_that_stays_away_leaves_everything(own_server: Postgres, tmp_path: Path, made: bool) -> None:  # noqa: FBT001
    lake = PostgresLake(tmp_path, own_server)
    table = make(lake, ONCE)
    before = lake.files()

    def gone(commit: Callable[[], None]) -> None:
        if made:
            commit()
        own_server.crash()
        raise lost(lake)

    at_commit(table, gone)
    with pytest.raises(CommitStateUnknownException, match="the database did not say"):
        table.append(people(5, 5))
    assert set(before) < set(lake.files())
    own_server.start()
    assert ids(load(lake)) == list(range(10 if made else 5))
    assert len(load(lake).snapshots()) == (2 if made else 1)
