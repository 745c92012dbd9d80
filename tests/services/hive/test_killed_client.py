"""A client killed at any call of a commit: the table is as before or as after, and its lock goes when the metastore says so.

Nobody gives back the lock of a client that is gone. The metastore drops it when it was not renewed for ``hive.txn.timeout`` (300 s) and
its housekeeper comes round (``hive.timedout.txn.reaper.interval``, 180 s): after eight minutes at most. Hive 2 and 3 run it where
``hive.compactor.initiator.on`` is true and ``hive.txn.manager`` is DbTxnManager; elsewhere an administrator has to unlock. Until then
writers wait, each attempt for about three minutes, and then say who is in the way; readers do not wait.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hive_metastore.ttypes import UnlockRequest
from pyiceberg.catalog.hive import _HiveClient
from pyiceberg.exceptions import CommitFailedException

from icelock.maintenance import remove_leftovers
from tests.crash.server import Server
from tests.crash.steps import stepping
from tests.crash.test_killed_writers import NEVER
from tests.helpers.table_model import MASTER
from tests.helpers.tables import ids, local
from tests.helpers.turns import in_turn
from tests.lakes.hive import HiveLake
from tests.lakes.sqlite import people
from tests.servers.metastore import Metastore
from tests.verify.verify_table import verify

pytestmark = [pytest.mark.hive, pytest.mark.slow]

CALLS = "metastore|metadata.json"
LANDED = "after metastore alter_table_with_environment_context"
QUICK = {"lock-check-retries": "2", "lock-check-min-wait-time": "0.01", "lock-check-max-wait-time": "0.02"}
SHORT = {
    "hive.txn.timeout": "2s",
    "hive.compactor.initiator.on": "true",
    "hive.support.concurrency": "true",
    "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
    "hive.timedout.txn.reaper.start": "0s",
    "hive.timedout.txn.reaper.interval": "1s",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def test_a_client_killed_at_any_call_of_a_commit(hive: HiveLake, server: Server) -> None:
    """At a quarter of the moments a day, and always at those beside the commit; at all of them with ``ICELOCK_SWEEPS=all``."""
    code, every_step = killed(hive, server, NEVER)
    assert code == 0
    assert {"before metastore lock", "after metastore lock", "after close metadata.json", "before metastore unlock"} <= set(every_step)
    commit = every_step.index(LANDED)
    for at in in_turn("a Hive client", len(every_step), 7, always=(commit - 1, commit)):
        code, steps = killed(hive, server, at)
        assert (code, len(steps)) == (-signal.SIGKILL, at + 1), steps


def killed(hive: HiveLake, server: Server, at: int) -> tuple[int, list[str]]:
    """Kill a client at a moment, if there is that one, and check its table; return the exit code and the moments."""
    hive.make(f"t{at}", rows=5)
    code, steps = server.run("", stepping(hive.properties()), at, table=hive.name(f"t{at}"), only=CALLS)
    where = f"killed at step {at}: {steps[-1] if steps else 'none'}"
    expected = [*range(5), *((100, 101) if LANDED in steps else ())]
    assert ids(hive.load(f"t{at}")) == expected, where
    held = "after metastore lock" in steps and "after metastore unlock" not in steps
    assert free_locks(hive, f"t{at}", where) == held, where
    clean_and_append(hive, f"t{at}", expected, where)
    return code, steps


def free_locks(hive: HiveLake, table: str, where: str) -> int:
    """Look that a writer is told of the lock, if there is one, and drop it as the metastore does in time; return how many there were."""
    locks = hive.locks()
    if locks:
        before = hive.files()
        with pytest.raises(CommitFailedException, match="locked by another writer"):
            hive.load(table, **QUICK).transaction().set_properties({"commit.retry.num-retries": "0"}).commit_transaction()
        assert hive.files() == before, where
    for lock in locks:
        with _HiveClient(hive.uri) as client:
            client.unlock(UnlockRequest(lockid=lock.lockid))
    return len(locks)


def clean_and_append(hive: HiveLake, table: str, expected: list[int], where: str) -> None:
    loaded = hive.load(table)
    remove_leftovers(loaded, older_than=timedelta(seconds=-60))
    metadata = json.loads(hive.metadata_path(table).read_text(encoding="utf-8"))
    log = {local(entry["metadata-file"]).name for entry in metadata["metadata-log"]}
    assert hive.metadata_files(table) == {hive.metadata_path(table).name, *log}, where
    assert verify(hive.metadata_path(table), {"keyA": [MASTER]})["unreached_files"] == 0, where
    loaded.append(people(1000, 1))
    assert ids(hive.load(table)) == [*expected, 1000], where
    assert hive.locks() == [], where


def test_the_lock_of_a_killed_client_goes_by_itself(tmp_path: Path, server: Server) -> None:
    """With a timeout of 2 s and a housekeeper that comes each second; the next writer only waits."""
    with Metastore(settings=SHORT) as started:
        hive = HiveLake(tmp_path, started.uri)
        hive.make(rows=5)
        code, _ = server.run("", stepping(hive.properties()), 0, table=hive.name(), only="after metastore lock")
        assert code == -signal.SIGKILL
        assert len(hive.locks()) == 1
        begun = time.monotonic()
        hive.load(**{"lock-check-retries": "20", "lock-check-max-wait-time": "1"}).append(people(5, 5))
        waited = time.monotonic() - begun
        assert ids(hive.load()) == list(range(10))
        assert hive.locks() == []
        assert 1 < waited < 30
