from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from icelock.errors import KeyUnavailableError, PolicyError
from icelock.keys.kek import KekCache
from icelock.secret import SecretBytes
from tests.unit.keys.fakes import CountingKms

KMS, OTHER_KMS = CountingKms(), CountingKms()


class Loads:
    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1
        return SecretBytes(bytes([self.count]) * 16)


class Seconds:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_loads_once():
    cache, loads = KekCache(), Loads()
    assert [cache.get(KMS, "keyA", b"blob", loads) for _ in range(3)] == [SecretBytes(b"\x01" * 16)] * 3
    assert loads.count == 1


@pytest.mark.parametrize(("kms", "key_id", "blob"), [(OTHER_KMS, "keyA", b"blob"), (KMS, "keyB", b"blob"), (KMS, "keyA", b"bolb")])
def test_kms_key_id_and_blob_each_make_a_difference(kms, key_id, blob):
    cache, loads = KekCache(), Loads()
    first = cache.get(KMS, "keyA", b"blob", loads)
    assert cache.get(kms, key_id, blob, loads) != first


def test_keeps_for_one_hour_and_no_longer():
    clock, loads = Seconds(), Loads()
    cache = KekCache(clock)
    cache.get(KMS, "keyA", b"blob", loads)
    clock.now = 3_599.9
    cache.get(KMS, "keyA", b"blob", loads)
    assert loads.count == 1
    clock.now = 3_600.0
    cache.get(KMS, "keyA", b"blob", loads)
    assert loads.count == 2


def test_use_does_not_prolong_an_entry():
    clock, loads = Seconds(), Loads()
    cache = KekCache(clock, 10)
    for clock.now in range(11):
        cache.get(KMS, "keyA", b"blob", loads)
    assert loads.count == 2


def test_age_counts_from_the_beginning_of_a_load():
    clock, loads = Seconds(), Loads()
    cache = KekCache(clock, 10)

    def slow():
        clock.now += 8
        return loads()

    cache.get(KMS, "keyA", b"blob", slow)
    clock.now = 10
    cache.get(KMS, "keyA", b"blob", loads)
    assert loads.count == 2


def test_expired_keys_leave_memory_at_the_next_use():
    clock = Seconds()
    cache = KekCache(clock, 10)
    cache.put(KMS, "keyA", b"blob", SecretBytes(b"k" * 16))
    assert len(cache) == 1
    clock.now = 10
    assert len(cache) == 0


def test_zero_seconds_keep_nothing():
    cache, loads = KekCache(max_age_seconds=0), Loads()
    for _ in range(3):
        cache.get(KMS, "keyA", b"blob", loads)
    assert loads.count == 3


@pytest.mark.parametrize("seconds", [-1, 3_601, 1e9, float("nan")])
def test_more_than_an_hour_is_refused(seconds):
    with pytest.raises(PolicyError, match=r"encryption\.kek-cache-seconds"):
        KekCache(max_age_seconds=seconds)


def test_no_entries_are_refused():
    with pytest.raises(PolicyError):
        KekCache(max_entries=0)


def test_the_least_recently_used_goes_first():
    cache, loads = KekCache(max_entries=2), Loads()
    for blob in (b"a", b"b", b"a", b"c"):
        cache.get(KMS, "keyA", blob, loads)
    assert (len(cache), loads.count) == (2, 3)
    cache.get(KMS, "keyA", b"a", loads)
    assert loads.count == 3
    cache.get(KMS, "keyA", b"b", loads)
    assert loads.count == 4


def test_put_saves_a_load():
    cache, loads = KekCache(), Loads()
    cache.put(KMS, "keyA", b"blob", SecretBytes(b"k" * 16))
    assert cache.get(KMS, "keyA", b"blob", loads) == SecretBytes(b"k" * 16)
    assert loads.count == 0


def test_clear_forgets():
    cache, loads = KekCache(), Loads()
    cache.get(KMS, "keyA", b"blob", loads)
    cache.clear()
    cache.get(KMS, "keyA", b"blob", loads)
    assert loads.count == 2


def test_clear_forgets_what_is_being_loaded():
    cache, loads = KekCache(), Loads()

    def cleared_meanwhile():
        cache.clear()
        return SecretBytes(b"o" * 16)

    assert cache.get(KMS, "keyA", b"blob", cleared_meanwhile) == SecretBytes(b"o" * 16)
    assert len(cache) == 0
    assert cache.get(KMS, "keyA", b"blob", loads) == SecretBytes(b"\x01" * 16)


def test_a_load_that_was_cleared_leaves_the_next_one_alone():
    cache, loads, entered, release = KekCache(), Loads(), threading.Event(), threading.Event()

    def slow():
        entered.set()
        assert release.wait(5)
        return SecretBytes(b"o" * 16)

    with ThreadPoolExecutor(1) as pool:
        old = pool.submit(cache.get, KMS, "keyA", b"blob", slow)
        assert entered.wait(5)
        cache.clear()
        assert cache.get(KMS, "keyA", b"blob", loads) == SecretBytes(b"\x01" * 16)
        release.set()
        assert old.result(5) == SecretBytes(b"o" * 16)
    assert cache.get(KMS, "keyA", b"blob", loads) == SecretBytes(b"\x01" * 16)
    assert loads.count == 1


def test_16_threads_cause_one_load():
    cache, loads, all_here = KekCache(), Loads(), threading.Barrier(16)

    def slow():
        threading.Event().wait(0.05)
        return loads()

    def use(_):
        all_here.wait()
        return cache.get(KMS, "keyA", b"blob", slow)

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(use, range(16)))) == 1
    assert loads.count == 1


def test_one_slow_load_does_not_hold_up_another():
    cache, release = KekCache(), threading.Event()

    def slow():
        assert release.wait(5)
        return SecretBytes(b"s" * 16)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cache.get, KMS, "keyA", b"slow", slow)
        assert cache.get(KMS, "keyA", b"quick", Loads()) == SecretBytes(b"\x01" * 16)
        release.set()
        assert waiting.result(5) == SecretBytes(b"s" * 16)


def test_a_failed_load_is_not_kept():
    cache, loads = KekCache(), Loads()

    def fail():
        msg = "down"
        raise KeyUnavailableError(msg)

    with pytest.raises(KeyUnavailableError, match="down"):
        cache.get(KMS, "keyA", b"blob", fail)
    assert len(cache) == 0
    assert cache.get(KMS, "keyA", b"blob", loads) == SecretBytes(b"\x01" * 16)


def test_threads_that_wait_for_a_failed_load_get_its_error():
    cache, all_here, calls = KekCache(), threading.Barrier(8), []

    def fail():
        calls.append(1)
        threading.Event().wait(0.05)
        msg = "down"
        raise KeyUnavailableError(msg)

    def use(_):
        all_here.wait()
        with pytest.raises(KeyUnavailableError, match="down"):
            cache.get(KMS, "keyA", b"blob", fail)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert len(calls) == 1


def test_an_interrupt_stays_in_its_thread_and_one_that_waits_loads_instead():
    cache, loads, entered = KekCache(), Loads(), threading.Event()

    def interrupted():
        entered.set()
        threading.Event().wait(0.1)
        raise KeyboardInterrupt

    def use():
        with pytest.raises(KeyboardInterrupt):
            cache.get(KMS, "keyA", b"blob", interrupted)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(use)
        assert entered.wait(5)
        assert cache.get(KMS, "keyA", b"blob", loads) == SecretBytes(b"\x01" * 16)
        waiting.result(5)
    assert loads.count == 1


def test_a_client_is_kept_alive_by_its_entry():
    """Else its identity could be that of another client, made later."""
    cache = KekCache()
    for n in range(50):
        kms = CountingKms()
        cache.get(kms, "keyA", b"blob", lambda n=n: SecretBytes(bytes([n]) * 16))
        del kms
    assert len(cache) == 50


def test_repr_shows_no_keys():
    cache = KekCache()
    cache.put(KMS, "keyA", b"blob", SecretBytes(b"k" * 16))
    assert repr(cache) == "KekCache(max_age_seconds=3600, max_entries=256)"
