from __future__ import annotations

import copy
import itertools
import pickle
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import FormatError, IntegrityError, KeyUnavailableError, KmsError, KmsErrorKind, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.format.key_metadata import KeyMetadata
from icelock.keys.entropy import SystemEntropy
from icelock.keys.kek import KekCache
from icelock.keys.manager import EncryptionManager
from tests.unit.keys.fakes import DAY_MS, NOW_MS, Clock, CountedEntropy, CountingKms


@pytest.fixture
def kms():
    return CountingKms()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def manager(kms, clock):
    return make(kms, clock)


def make(kms, clock=None, *, keys=(), length=16, master="keyA", cache=None, entropy=None):  # noqa: PLR0913 - one for each part
    return EncryptionManager(
        table="db.t", master_key_id=master, data_key_length=length, keys=keys, kms=kms, cache=cache or KekCache(),
        entropy=entropy or SystemEntropy(), clock=clock or Clock(),
    )  # fmt: skip


def a_list_key(manager, length=100):
    return manager.mint_file_key().closed(length)


def sealed(manager, count=1):
    """Seal so often, each time in a version of the metadata that has the keys of the ones before."""
    lists = []
    for _ in range(count):
        metadata = a_list_key(manager)
        seal = manager.seal_manifest_list_key(metadata)
        lists.append((seal.key_id, metadata))
        manager = replace(manager, keys=[*manager.keys, *seal.new_entries])
    return manager, lists


def fresh(manager):
    """The same metadata in another process: nothing cached."""
    return replace(manager, cache=KekCache())


# sealing and opening


def test_first_seal_mints_a_kek_and_returns_it_before_the_list_key(manager, kms):
    metadata = a_list_key(manager)
    seal = manager.seal_manifest_list_key(metadata)
    kek, list_key = seal.new_entries
    assert (kek.encrypted_by_id, kek.properties) == ("keyA", {"KEY_TIMESTAMP": str(NOW_MS)})
    assert (list_key.key_id, list_key.encrypted_by_id, list_key.properties) == (seal.key_id, kek.key_id, {})
    assert kms.calls == {"wrap": 1, "unwrap": 1}  # the new KEK is tried once


def test_sealed_bytes_are_aes_gcm_under_the_kek_with_the_timestamp_as_aad(manager, kms):
    metadata = a_list_key(manager)
    list_key = manager.seal_manifest_list_key(metadata).new_entries[1]
    blob = list_key.encrypted_key_metadata
    assert AESGCM(kms.wrapped[0]).decrypt(blob[:12], blob[12:], str(NOW_MS).encode()) == metadata.encode()


def test_opens_what_it_sealed(manager):
    after, lists = sealed(manager, 3)
    for key_id, metadata in lists:
        assert fresh(after).open_manifest_list_key(key_id) == metadata


def test_later_seals_use_the_kek_that_is_there(manager, kms):
    after, _ = sealed(manager, 5)
    assert len(after.keys) == 6
    assert len({key.encrypted_by_id for key in after.keys[1:]}) == 1
    assert kms.calls == {"wrap": 1, "unwrap": 1}  # the new KEK is tried once


@pytest.mark.parametrize("length", [16, 24, 32])
def test_keks_and_deks_have_the_data_key_length(kms, length):
    manager = make(kms, length=length)
    assert len(manager.mint_file_key().dek) == length
    sealed(manager)
    assert len(kms.wrapped[0]) == length


def test_key_metadata_without_length_is_refused(manager, kms):
    with pytest.raises(FormatError, match="close the file first"):
        manager.seal_manifest_list_key(replace(a_list_key(manager), encrypted_length=None))
    assert not kms.calls


def test_nothing_random_is_used_twice(kms):
    manager, _ = sealed(make(kms, entropy=CountedEntropy()), 10)
    ids = [key.key_id for key in manager.keys]
    nonces = [key.encrypted_key_metadata[:12] for key in manager.keys]
    assert len(set(ids)) == len(set(nonces)) == 11


# calls of the KMS


def test_a_scan_of_40_snapshots_in_16_threads_unwraps_once(manager):
    after, lists = sealed(manager, 40)
    kms = CountingKms(seconds=0.01)
    reader = replace(after, kms=kms, cache=KekCache())
    with ThreadPoolExecutor(16) as pool:
        opened = list(pool.map(reader.open_manifest_list_key, [key_id for key_id, _ in lists]))
    assert opened == [metadata for _, metadata in lists]
    assert kms.calls == {"unwrap": 1}


def test_versions_of_a_table_share_the_cache(manager, kms):
    after, lists = sealed(manager, 2)
    reader = fresh(after)
    reader.open_manifest_list_key(lists[0][0])
    replace(reader, keys=after.keys).open_manifest_list_key(lists[1][0])
    assert kms.calls["unwrap"] == 2  # one tried the new KEK


def test_a_new_kek_is_opened_without_asking_the_kms(manager, kms):
    after, lists = sealed(manager)
    after.open_manifest_list_key(lists[0][0])
    assert kms.calls == {"wrap": 1, "unwrap": 1}  # the new KEK is tried once


def test_minting_file_keys_asks_no_kms(manager, kms):
    for _ in range(10):
        manager.mint_file_key()
    assert not kms.calls


def test_only_the_raw_kek_goes_to_the_kms():
    kms = CountingKms(limit=32)
    sealed(make(kms, length=32), 3)
    assert [len(key) for key in kms.wrapped] == [32]


def test_a_kms_with_two_versions_of_the_master_key_is_left_to_it():
    """The blob is kept byte for byte, text prefix and all (cases C-37)."""

    class Versioned(CountingKms):
        version = 1

        def wrap_key(self, key, wrapping_key_id):
            return b"vault:v%d:\xff\x00\n" % self.version + super().wrap_key(key, wrapping_key_id)

        def unwrap_key(self, wrapped_key, wrapping_key_id):
            assert wrapped_key[:12] in (b"vault:v1:\xff\x00\n", b"vault:v2:\xff\x00\n")
            return super().unwrap_key(wrapped_key[12:], wrapping_key_id)

    kms, clock = Versioned(), Clock()
    after, lists = sealed(make(kms, clock))
    kms.version, clock.now = 2, NOW_MS + 800 * DAY_MS
    after, more = sealed(after)
    stored = fresh(replace(after, keys=[EncryptedKey.from_json(key.to_json()) for key in after.keys]))
    assert [stored.open_manifest_list_key(key_id) for key_id, _ in lists + more] == [metadata for _, metadata in lists + more]


def test_the_master_key_id_goes_to_the_kms_as_the_table_has_it(clock):
    """An alias is not compared with anything that the KMS says about its key (cases C-38)."""
    kms = CountingKms()
    kms.keys["alias/lake"] = kms.keys["keyA"]
    after, lists = sealed(make(kms, clock, master="alias/lake"))
    fresh(after).open_manifest_list_key(lists[0][0])
    assert kms.ids == ["alias/lake"] * 3  # wrap, try, unwrap


def test_a_reader_needs_no_right_to_wrap(manager):
    after, lists = sealed(manager)
    reader = replace(after, kms=CountingKms(deny={"wrap"}), cache=KekCache())
    assert reader.open_manifest_list_key(lists[0][0]) == lists[0][1]


def test_a_writer_of_a_new_table_needs_the_right_to_unwrap_before_it_writes():
    manager = make(CountingKms(deny={"unwrap"}))
    with pytest.raises(KmsError, match="no right to unwrap") as caught:
        manager.prepare_kek()
    assert (caught.value.kind, caught.value.key_id) == (KmsErrorKind.DENIED, "keyA")


def test_two_kms_that_know_the_same_id_do_not_mix():
    cache, one, two = KekCache(), CountingKms(), CountingKms(key=b"x" * 32)
    tables = [sealed(make(kms, cache=cache), 2) for kms in (one, two)]
    shared = KekCache()
    for manager, lists in tables:
        for key_id, metadata in lists:
            assert replace(manager, cache=shared).open_manifest_list_key(key_id) == metadata
    assert (one.calls["unwrap"], two.calls["unwrap"]) == (2, 2)  # each has tried its KEK


# KEK rotation


@pytest.mark.parametrize(("age_ms", "keks"), [(730 * DAY_MS - 1, 1), (730 * DAY_MS, 2), (731 * DAY_MS, 2)])
def test_a_kek_is_rotated_at_exactly_730_days(manager, clock, kms, age_ms, keks):
    after, lists = sealed(manager)
    clock.now = NOW_MS + age_ms
    after, more = sealed(after)
    assert kms.calls["wrap"] == keks
    assert len([key for key in after.keys if key.encrypted_by_id == "keyA"]) == keks
    for key_id, metadata in lists + more:
        assert fresh(after).open_manifest_list_key(key_id) == metadata


def test_the_newest_live_kek_is_used(manager, clock):
    keks = []
    for day in (0, 800, 400):
        clock.now = NOW_MS + day * DAY_MS
        keks += manager.prepare_kek()
    clock.now = NOW_MS + 900 * DAY_MS
    for keys in itertools.permutations(keks):
        seal = replace(manager, keys=keys).seal_manifest_list_key(a_list_key(manager))
        assert [entry.encrypted_by_id for entry in seal.new_entries] == [keks[1].key_id]


@pytest.mark.parametrize("ahead_ms", [5 * 60_000 + 1, DAY_MS, 3_650 * DAY_MS])
def test_a_kek_of_the_future_is_passed_over_and_opens_all_the_same(manager, clock, ahead_ms):
    """One writer's clock was ahead for a while; those of the others are right."""
    clock.now = NOW_MS + ahead_ms
    after, of_the_future = sealed(manager)
    clock.now = NOW_MS
    after, first = sealed(after)
    after, second = sealed(after)
    keks = [key for key in after.keys if key.encrypted_by_id == "keyA"]
    assert [int(kek.properties["KEY_TIMESTAMP"]) - NOW_MS for kek in keks] == [ahead_ms, 0], "one more, and then that one"
    assert after.keys[-1].encrypted_by_id == keks[1].key_id
    for key_id, metadata in of_the_future + first + second:
        assert fresh(after).open_manifest_list_key(key_id) == metadata


def test_rotation_is_not_put_off_by_a_kek_of_the_future(manager, clock):
    clock.now = NOW_MS + 3_650 * DAY_MS
    after, _ = sealed(manager)
    for day in (0, 731, 1_500):
        clock.now = NOW_MS + day * DAY_MS
        after, _ = sealed(after)
        kek = next(key for key in after.keys if key.key_id == after.keys[-1].encrypted_by_id)
        assert int(kek.properties["KEY_TIMESTAMP"]) == clock.now
    clock.now = NOW_MS + 3_651 * DAY_MS
    after, _ = sealed(after)
    assert after.keys[-1].encrypted_by_id == after.keys[0].key_id, "its time has come"


def test_a_clock_that_is_five_minutes_ahead_makes_no_more_keks(manager, clock):
    clock.now = NOW_MS + 5 * 60_000
    after, _ = sealed(manager)
    clock.now = NOW_MS
    after, _ = sealed(after)
    assert len([key for key in after.keys if key.encrypted_by_id == "keyA"]) == 1


def test_a_writer_whose_clock_is_behind_for_good_makes_one_kek(manager, clock):
    after, _ = sealed(manager)
    clock.now = NOW_MS - 400 * DAY_MS
    for _ in range(3):
        after, _ = sealed(after)
    assert len([key for key in after.keys if key.encrypted_by_id == "keyA"]) == 2


def test_keks_of_another_master_key_are_not_used(manager, kms, clock):
    after, _ = sealed(manager)
    kms.keys["keyB"] = b"1123456789012345"
    kek, _ = make(kms, clock, keys=after.keys, master="keyB").seal_manifest_list_key(a_list_key(manager)).new_entries
    assert kek.encrypted_by_id == "keyB"


@pytest.mark.parametrize(
    ("timestamp", "error"), [(None, KeyUnavailableError), ("soon", FormatError), ("-1", FormatError), (str(2**63), FormatError)]
)
def test_a_kek_without_a_good_timestamp_stops_sealing(manager, timestamp, error):
    after, _ = sealed(manager)
    broken = replace(after.keys[0], properties={} if timestamp is None else {"KEY_TIMESTAMP": timestamp})
    with pytest.raises(error, match=r"table db\.t, .*KEY_TIMESTAMP"):
        replace(after, keys=[broken, *after.keys[1:]]).seal_manifest_list_key(a_list_key(manager))


# one commit, tried several times


def test_a_commit_that_is_tried_again_wraps_once(manager, kms):
    first = manager.seal_manifest_list_key(a_list_key(manager))
    again = replace(manager, keys=[], unused_keks=first.new_entries)
    metadata = a_list_key(manager)
    second = again.seal_manifest_list_key(metadata)
    assert kms.calls == {"wrap": 1, "unwrap": 1}  # the new KEK is tried once
    assert second.new_entries[0] == first.new_entries[0]
    assert second.key_id != first.key_id
    assert fresh(replace(manager, keys=second.new_entries)).open_manifest_list_key(second.key_id) == metadata


def test_the_kek_of_a_commit_that_won_is_preferred_to_the_own_spare_one(manager, kms, clock):
    ours = manager.seal_manifest_list_key(a_list_key(manager))
    theirs, _ = sealed(make(kms, clock))
    seal = replace(manager, keys=theirs.keys, unused_keks=ours.new_entries).seal_manifest_list_key(a_list_key(manager))
    assert [entry.encrypted_by_id for entry in seal.new_entries] == [theirs.keys[0].key_id]


def test_preparing_a_kek_mints_it_once(manager, kms):
    spare = manager.prepare_kek()
    assert [entry.encrypted_by_id for entry in spare] == ["keyA"]
    prepared = replace(manager, keys=[], unused_keks=spare)
    assert prepared.prepare_kek() == ()
    assert prepared.seal_manifest_list_key(a_list_key(manager)).new_entries[0] == spare[0]
    assert kms.calls == {"wrap": 1, "unwrap": 1}  # the new KEK is tried once


def test_preparing_a_kek_that_is_there_unwraps_it_once(manager, kms):
    after, _ = sealed(manager)
    writer = fresh(after)
    assert writer.prepare_kek() == ()
    writer.seal_manifest_list_key(a_list_key(writer))
    assert kms.calls == {"wrap": 1, "unwrap": 2}  # the new KEK is tried, and opened by another process


def test_preparing_without_the_right_to_wrap_fails_before_anything_is_written(clock):
    with pytest.raises(KmsError, match=r"table db\.t: no right to wrap") as caught:
        make(CountingKms(deny={"wrap"}), clock).prepare_kek()
    assert caught.value.kind is KmsErrorKind.DENIED


# damage


def changed(manager, index, **fields):
    keys = list(manager.keys)
    keys[index] = replace(keys[index], **fields)
    return fresh(replace(manager, keys=keys))


@pytest.mark.parametrize("digit", range(13))
def test_a_changed_timestamp_is_an_integrity_error(manager, digit):
    after, lists = sealed(manager)
    text = str(NOW_MS)
    other = text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :]
    with pytest.raises(IntegrityError, match=rf"table db\.t, key id '.*KEY_TIMESTAMP '{other}'"):
        changed(after, 0, properties={"KEY_TIMESTAMP": other}).open_manifest_list_key(lists[0][0])


@pytest.mark.parametrize("text", [f"0{NOW_MS}", f"{NOW_MS} ", f"+{NOW_MS}"])
def test_the_timestamps_exact_text_counts(manager, text):
    after, lists = sealed(manager)
    with pytest.raises(IntegrityError):
        changed(after, 0, properties={"KEY_TIMESTAMP": text}).open_manifest_list_key(lists[0][0])


def test_a_timestamp_that_is_no_utf_8_is_a_format_error(manager):
    after, lists = sealed(manager)
    with pytest.raises(FormatError, match="KEY_TIMESTAMP in decimal"):
        changed(after, 0, properties={"KEY_TIMESTAMP": "\ud800"}).open_manifest_list_key(lists[0][0])


def test_a_missing_timestamp_is_unavailable(manager, kms):
    after, lists = sealed(manager)
    with pytest.raises(KeyUnavailableError, match="has no KEY_TIMESTAMP"):
        changed(after, 0, properties={}).open_manifest_list_key(lists[0][0])
    assert kms.calls["unwrap"] == 1  # that of the new KEK


def test_a_changed_entry_is_an_integrity_error(manager):
    after, lists = sealed(manager)
    blob = bytearray(after.keys[1].encrypted_key_metadata)
    for position in range(len(blob)):
        blob[position] ^= 1
        with pytest.raises(IntegrityError):
            changed(after, 1, encrypted_key_metadata=bytes(blob)).open_manifest_list_key(lists[0][0])
        blob[position] ^= 1


def test_a_cut_entry_is_a_format_error_that_names_table_and_key(manager):
    after, lists = sealed(manager)
    with pytest.raises(FormatError, match=f"table db.t, key id {lists[0][0]!r}".replace("+", r"\+")):
        changed(after, 1, encrypted_key_metadata=b"short").open_manifest_list_key(lists[0][0])


def test_swapped_entries_are_not_noticed_here_but_open_the_other_list(manager):
    """An entry is not bound to its id; the manifest list itself tells (AAD prefix and length)."""
    after, lists = sealed(manager, 2)
    first, second = after.keys[1:]
    keys = [after.keys[0], replace(second, key_id=first.key_id), replace(first, key_id=second.key_id)]
    assert replace(after, keys=keys).open_manifest_list_key(first.key_id) == lists[1][1]


def test_another_kek_is_an_integrity_error(manager):
    after, lists = sealed(manager)
    (other,) = manager.prepare_kek()
    keys = [other, replace(after.keys[1], encrypted_by_id=other.key_id)]
    with pytest.raises(IntegrityError, match="or another KEK"):
        fresh(replace(after, keys=keys)).open_manifest_list_key(lists[0][0])


def test_missing_entries_are_unavailable(manager):
    after, lists = sealed(manager)
    with pytest.raises(KeyUnavailableError, match=r"table db\.t, key id 'gone': encryption-keys has no entry 'gone'"):
        after.open_manifest_list_key("gone")
    with pytest.raises(KeyUnavailableError, match="has no entry"):
        replace(after, keys=after.keys[1:]).open_manifest_list_key(lists[0][0])


def test_a_snapshot_that_names_a_kek_is_a_format_error(manager):
    after, _ = sealed(manager)
    with pytest.raises(FormatError, match="expected a manifest-list key, got a KEK"):
        after.open_manifest_list_key(after.keys[0].key_id)


def test_a_list_key_in_place_of_a_kek_is_a_format_error(manager):
    after, lists = sealed(manager, 2)
    with pytest.raises(FormatError, match="to be a KEK"):
        changed(after, 2, encrypted_by_id=after.keys[1].key_id).open_manifest_list_key(lists[1][0])


def test_a_kek_of_another_master_key_is_refused_naming_both(manager, kms):
    after, lists = sealed(manager)
    with pytest.raises(KeyUnavailableError, match=r"master key 'keyB' \(encryption.key-id\), got 'keyA'"):
        replace(after, master_key_id="keyB").open_manifest_list_key(lists[0][0])
    assert kms.calls["unwrap"] == 1  # that of the new KEK


def test_the_wrong_kms_is_an_error_that_names_the_table(manager):
    after, lists = sealed(manager)
    empty = CountingKms()
    empty.keys.clear()
    with pytest.raises(KmsError, match=r"table db\.t: no key keyA") as caught:
        replace(after, kms=empty, cache=KekCache()).open_manifest_list_key(lists[0][0])
    assert (caught.value.kind, caught.value.key_id) == (KmsErrorKind.MISSING, "keyA")


@pytest.mark.parametrize("kind", list(KmsErrorKind))
def test_the_five_kinds_reach_the_user_with_table_and_key(manager, kind):
    class Failing(CountingKms):
        def unwrap_key(self, _wrapped_key, wrapping_key_id):
            msg = f"{wrapping_key_id}: {kind.value}"
            raise KmsError(msg, kind=kind, key_id=wrapping_key_id)

    after, lists = sealed(manager)
    with pytest.raises(KmsError, match=r"table db\.t: keyA: ") as caught:
        replace(after, kms=Failing(), cache=KekCache()).open_manifest_list_key(lists[0][0])
    assert (caught.value.kind, caught.value.key_id) == (kind, "keyA")
    assert kind.value in str(caught.value)


def test_errors_show_no_key_bytes(manager, kms):
    after, lists = sealed(manager)
    with pytest.raises(IntegrityError) as caught:
        changed(after, 0, properties={"KEY_TIMESTAMP": "1"}).open_manifest_list_key(lists[0][0])
    text = "".join(traceback.format_exception(caught.value))
    for secret in (kms.wrapped[0], kms.keys["keyA"], lists[0][1].dek.reveal()):
        assert repr(secret) not in text
        assert secret.hex() not in text


# the value itself


@pytest.mark.parametrize("length", [0, 8, 17, 64])
def test_other_data_key_lengths_are_refused(kms, length):
    with pytest.raises(PolicyError, match="must be 16, 24 or 32"):
        make(kms, length=length)


def test_an_empty_master_key_id_is_refused(kms):
    with pytest.raises(PolicyError, match=r"encryption\.key-id is empty"):
        make(kms, master="")


def test_one_id_with_two_contents_is_refused(manager, kms):
    after, _ = sealed(manager)
    with pytest.raises(FormatError, match="twice"):
        make(kms, keys=[*after.keys, replace(after.keys[0], encrypted_key_metadata=b"x" * 44)])


def test_sealing_does_not_change_the_manager(manager):
    sealed(manager, 3)
    assert manager.keys == ()
    with pytest.raises(AttributeError):
        manager.table = "other"


def test_a_manager_is_not_pickled(manager):
    with pytest.raises(TypeError, match="send file keys instead"):
        pickle.dumps(manager)
    with pytest.raises(TypeError, match="send file keys instead"):
        copy.deepcopy(manager)


def test_repr_shows_no_keys_and_no_kms(manager):
    assert repr(manager) == "EncryptionManager(table='db.t', master_key_id='keyA', data_key_length=16)"


def test_concurrent_seals_return_entries_that_all_open(manager):
    kek = manager.prepare_kek()
    writer = replace(manager, keys=kek)
    with ThreadPoolExecutor(8) as pool:
        metadata = [a_list_key(manager, length=n) for n in range(50)]
        seals = list(pool.map(writer.seal_manifest_list_key, metadata))
    reader = fresh(replace(writer, keys=[*kek, *(entry for seal in seals for entry in seal.new_entries)]))
    assert [reader.open_manifest_list_key(seal.key_id) for seal in seals] == metadata


def test_key_metadata_of_a_java_table_may_lack_prefix_and_length(manager):
    """Opening does not judge: whether the length may be missing is the file's matter."""
    after, lists = sealed(manager)
    key = lists[0][1].dek
    blob = KeyMetadata(dek=key, aad_prefix=None, encrypted_length=None).encode()
    kek = AESGCM(after.kms.wrapped[0])
    entry = replace(after.keys[1], encrypted_key_metadata=bytes(12) + kek.encrypt(bytes(12), blob, str(NOW_MS).encode()))
    assert fresh(replace(after, keys=[after.keys[0], entry])).open_manifest_list_key(entry.key_id).encrypted_length is None
