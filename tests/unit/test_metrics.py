"""``icelock.metrics``: numbers beside those counted outside: a KMS's log, files on storage, sizes by ``os.stat``."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

import icelock
from icelock import metrics
from icelock.errors import KmsError, KmsErrorKind, PolicyError
from icelock.kms import ask
from icelock.kms.retry import RetryingKms, RetryPolicy
from icelock.metrics import Metrics
from tests.lakes.sqlite import KEYED, TestLake, people

MERGED = {"write.delete.mode": "merge-on-read"}


@pytest.fixture
def lake(tmp_path: Path) -> TestLake:
    return TestLake.with_namespace(tmp_path)


def stored(lake: TestLake) -> dict[Path, int]:
    return {path: path.stat().st_size for path in lake.warehouse.rglob("*") if path.is_file()}


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_files_written_are_those_on_storage(lake: TestLake, file_format: str):
    with metrics.measure() as done:
        table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, **MERGED, "write.format.default": file_format})
        table.append(people())
        table.delete("id = 3")  # with a deletion vector
    there = stored(lake)
    assert len(there) == 3 + 3 + 3  # metadata files; data file, manifest, list; deletion vectors, manifest, list
    assert (done.files_written, done.bytes_written) == (len(there), sum(there.values()))
    assert done.commits == 2


def test_files_read_are_all_that_a_scan_needs(lake: TestLake):
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, **MERGED})
    table.append(people())
    table.delete("id = 3")
    fresh = lake.catalog()
    with metrics.measure() as done:
        assert fresh.load_table("db.t").scan().to_arrow().num_rows == 9
    current = max(lake.warehouse.rglob("*.metadata.json"), key=lambda path: path.name)
    lists = sorted(lake.warehouse.rglob("snap-*.avro"), key=lambda path: path.stat().st_mtime_ns)
    needed = [current, lists[-1], *lake.warehouse.rglob("*-m?.avro"), *lake.warehouse.rglob("*.parquet"), *lake.warehouse.rglob("*.puffin")]
    assert len(needed) == 1 + 1 + 2 + 1 + 1
    assert (done.files_read, done.bytes_read) == (len(needed), sum(path.stat().st_size for path in needed))
    data = list(lake.warehouse.rglob("*.parquet"))
    assert (done.files_planned, done.bytes_planned) == (1, data[0].stat().st_size)


def test_calls_of_the_key_service_are_those_that_it_had(lake: TestLake):
    with metrics.measure() as done:
        table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
        table.append(people())
        lake.catalog().load_table("db.t").scan().to_arrow()
    had = lake.calls.take()
    assert (done.kms_wraps, done.kms_unwraps) == (sum(c.startswith("wrap") for c in had), sum(c.startswith("unwrap") for c in had))
    assert done.kms_calls == len(had) == 4
    assert done.key_cache_misses == 1  # the second catalog's
    lake.calls.deny("unwrap")
    with metrics.measure() as failed, pytest.raises(KmsError):
        lake.catalog().load_table("db.t").scan().to_arrow()
    assert (failed.kms_unwraps, failed.kms_failures, failed.refusals) == (1, 1, 1)


class Flaky:
    """Unavailable for a number of calls."""

    def __init__(self, failures: int) -> None:
        self.left, self.calls = failures, 0

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise KmsError("away", kind=KmsErrorKind.UNAVAILABLE, key_id=wrapping_key_id)
        return key[::-1]

    unwrap_key = wrap_key


def test_attempts_that_were_repeated_are_retries():
    inner = Flaky(2)
    with metrics.measure() as done:
        ask.wrapped(RetryingKms(inner, RetryPolicy(), sleep=lambda _: None), b"0123456789012345", "keyA")
    assert (done.kms_wraps, done.kms_retries, done.kms_failures) == (1, 2, 0)
    assert inner.calls == done.kms_calls + done.kms_retries


def test_commits_that_lose_are_conflicts_and_are_tried_again(lake: TestLake, monkeypatch: pytest.MonkeyPatch):
    catalog = lake.catalog()
    table = catalog.create_table("db.t", people().schema, properties={**KEYED, "commit.retry.min-wait-ms": "1"})
    table.append(people())
    commit, failures = catalog.commit_table, [CommitFailedException("another writer")] * 2

    def losing(*given):
        if failures:
            raise failures.pop()
        return commit(*given)

    monkeypatch.setattr(catalog, "commit_table", losing)
    with metrics.measure() as done:
        table.append(people(100))
    assert (done.commits, done.commit_conflicts, done.commit_retries) == (1, 2, 2)
    assert done.data_files_committed == 1
    newest = max(lake.warehouse.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert done.bytes_committed == newest.stat().st_size


def test_an_error_counts_as_one_refusal_however_many_operations_it_leaves(lake: TestLake):
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    with metrics.measure() as refused, pytest.raises(PolicyError):
        table.append(people().rename_columns(["id", "name", "elsewhere"]))
    with metrics.measure() as read, pytest.raises(icelock.PolicyError):
        table.scan(selected_fields=("nope",)).to_arrow()
    assert (refused.refusals, read.refusals) == (1, 1)


def test_threads_lose_no_count():
    with metrics.measure() as done, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: metrics.add(files_read=1, bytes_read=3), range(4_000)))
    assert (done.files_read, done.bytes_read) == (4_000, 12_000)


def test_a_forked_process_begins_at_zero_and_counts_although_a_lock_was_held():
    metrics.add(files_read=5)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with metrics._lock:
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    child = os.fork()
    if child == 0:
        metrics.add(files_read=2)
        os._exit(metrics.snapshot().files_read)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


@pytest.fixture
def from_zero() -> Iterator[None]:
    metrics.reset()
    yield
    metrics.reset()


@pytest.mark.usefixtures("from_zero")
def test_a_reset_begins_at_zero_and_changes_no_measurement():
    with metrics.measure() as done:
        metrics.add(commits=2)
        assert metrics.snapshot().commits == 2
        metrics.reset()
        metrics.add(commits=1)
    assert (metrics.snapshot().commits, done.commits) == (1, 3)


def test_an_error_ends_a_measurement_too():
    with pytest.raises(ZeroDivisionError), metrics.measure() as done:  # noqa: PT012
        metrics.add(fallbacks=1)
        raise ZeroDivisionError
    assert done.fallbacks == 1


def test_metrics_are_values_that_show_what_there_is():
    some = Metrics(kms_wraps=2, bytes_read=7)
    assert repr(some) == "Metrics(kms_wraps=2, bytes_read=7)"
    assert "<th>kms wraps</th><td>2</td>" in some._repr_html_()
    assert pickle.loads(pickle.dumps(some)) == some  # noqa: S301
    assert some != Metrics()
