"""Which snapshots, refs and keys may go: the spec's rules on hand-made metadata, times in days."""

from __future__ import annotations

from typing import Any

import pytest

from icelock.errors import FormatError, KeyUnavailableError
from icelock.format.encrypted_key import EncryptedKey
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.maintenance.removal.retention import dead_keys, expirable

DAY = 86_400_000
NOW = 1_000 * DAY
MASTER = "master"


def snapshot(number: int, parent: int | None, age_days: float, **more: Any) -> dict[str, Any]:
    own = {"snapshot-id": number, "timestamp-ms": NOW - int(age_days * DAY), "sequence-number": number, "manifest-list": f"s3://b/{number}"}
    return {**own, **({} if parent is None else {"parent-snapshot-id": parent}), "summary": {"operation": "append"}, **more}


def branch(number: int, **more: int) -> dict[str, Any]:
    return {"snapshot-id": number, "type": "branch", **more}


def tag(number: int, **more: int) -> dict[str, Any]:
    return {"snapshot-id": number, "type": "tag", **more}


def metadata(snapshots: list[Any], refs: dict[str, Any], *, keys: Any = (), **properties: str) -> TableMetadataV3:
    return TableMetadataV3.model_validate(
        {
            "format-version": 3,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "s3://b",
            "last-sequence-number": 99,
            "last-updated-ms": NOW,
            "last-column-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {"encryption.key-id": MASTER, **properties},
            "current-snapshot-id": refs["main"]["snapshot-id"] if "main" in refs else None,
            "refs": refs,
            "snapshots": snapshots,
            "next-row-id": 0,
            "encryption-keys": list(keys),
        }
    )


# Five snapshots on main, 1 (20 days) to 5 (1 day).
LINE = [snapshot(n, n - 1 if n > 1 else None, age) for n, age in ((1, 20), (2, 10), (3, 6), (4, 4), (5, 1))]


@pytest.mark.parametrize(
    ("settings", "gone"),
    [
        ({}, {1, 2, 3}),  # five days, one to keep
        ({"history.expire.max-snapshot-age-ms": str(15 * DAY)}, {1}),
        ({"history.expire.max-snapshot-age-ms": "1"}, {1, 2, 3, 4}),
        ({"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "3"}, {1, 2}),
        ({"history.expire.min-snapshots-to-keep": "3"}, {1, 2}),
        ({"history.expire.min-snapshots-to-keep": "9"}, set()),
        ({"history.expire.min-snapshots-to-keep": "0"}, {1, 2, 3}),
    ],
)
def test_the_tables_own_retention(settings: dict[str, str], gone: set[int]) -> None:
    assert expirable(metadata(LINE, {"main": branch(5)}, **settings), now_ms=NOW).snapshots == gone


def test_a_given_limit_takes_the_place_of_the_tables_age_and_not_of_its_number_to_keep() -> None:
    table = metadata(LINE, {"main": branch(5)}, **{"history.expire.min-snapshots-to-keep": "2"})
    assert expirable(table, now_ms=NOW, older_than_ms=NOW).snapshots == {1, 2, 3}
    assert expirable(table, now_ms=NOW, older_than_ms=NOW - 15 * DAY).snapshots == {1}


def test_the_limit_is_older_and_not_as_old() -> None:
    assert expirable(metadata(LINE, {"main": branch(5)}), now_ms=NOW, older_than_ms=NOW - 6 * DAY).snapshots == {1, 2}


def test_a_branchs_own_settings_win() -> None:
    table = metadata(LINE, {"main": branch(5, **{"max-snapshot-age-ms": 7 * DAY, "min-snapshots-to-keep": 1})})
    assert expirable(table, now_ms=NOW, older_than_ms=NOW).snapshots == {1, 2}
    table = metadata(LINE, {"main": branch(5, **{"min-snapshots-to-keep": 4})})
    assert expirable(table, now_ms=NOW, older_than_ms=NOW).snapshots == {1}


def test_a_tag_and_a_branch_keep_what_they_name() -> None:
    side = [*LINE, snapshot(6, 2, 9), snapshot(7, 6, 8)]
    table = metadata(side, {"main": branch(5), "audit": branch(7), "first": tag(1)})
    # The side branch keeps its head alone: 6 and 2 are older than five days.
    assert expirable(table, now_ms=NOW).snapshots == {2, 3, 6}


def test_refs_that_are_too_old_go_and_main_never_does() -> None:
    refs = {
        "main": branch(1, **{"max-ref-age-ms": 1}),
        "old": tag(2, **{"max-ref-age-ms": 9 * DAY}),
        "kept": tag(3, **{"max-ref-age-ms": 6 * DAY}),
    }
    found = expirable(metadata(LINE, refs), now_ms=NOW)
    assert found.refs == {"old"}
    # 4 and 5 are on no branch: 4 days and 1 day old, so they may be staged.
    assert found.snapshots == {2}


def test_the_tables_age_for_refs() -> None:
    refs = {"main": branch(5), "old": tag(1), "own": tag(2, **{"max-ref-age-ms": 30 * DAY})}
    found = expirable(metadata(LINE, refs, **{"history.expire.max-ref-age-ms": str(5 * DAY)}), now_ms=NOW)
    assert (found.refs, found.snapshots) == ({"old"}, {1, 3})


def test_a_snapshot_that_nothing_leads_to_goes_by_age() -> None:
    staged = [*LINE, snapshot(8, 5, 0.5), snapshot(9, 1, 19)]
    assert expirable(metadata(staged, {"main": branch(5)}), now_ms=NOW).snapshots == {1, 2, 3, 9}
    assert expirable(metadata(staged, {"main": branch(5)}), now_ms=NOW, older_than_ms=NOW).snapshots == {1, 2, 3, 4, 8, 9}


def test_a_table_without_snapshots() -> None:
    assert expirable(metadata([], {}), now_ms=NOW).snapshots == frozenset()


def kek(name: str, age_days: int | None, by: str = MASTER) -> EncryptedKey:
    stamp = {} if age_days is None else {"KEY_TIMESTAMP": str(NOW - age_days * DAY)}
    return EncryptedKey(key_id=name, encrypted_key_metadata=b"x", encrypted_by_id=by, properties=stamp)


def key(name: str, by: str) -> EncryptedKey:
    return EncryptedKey(key_id=name, encrypted_key_metadata=b"x", encrypted_by_id=by)


def test_keys_of_what_stays_stay_with_their_kek_and_so_does_the_kek_in_use() -> None:
    keys = [kek("K1", 900), key("L1", "K1"), kek("K2", 800), key("L2", "K2"), kek("K3", 10), kek("K4", 5), key("L3", "K3")]
    snapshots = [snapshot(n, None, 1, **{"key-id": f"L{n}"}) for n in (1, 2, 3)]
    table = metadata(snapshots, {"main": branch(3), "t": tag(2)}, keys=keys)
    assert dead_keys(table, {1}, now_ms=NOW) == ("K1", "L1")
    assert dead_keys(table, {1, 2}, now_ms=NOW) == ("K1", "L1", "K2", "L2")
    # K4 is the newest live one: the next snapshot is sealed under it although none is yet.
    assert dead_keys(table, {1, 2, 3}, now_ms=NOW) == ("K1", "L1", "K2", "L2", "K3", "L3")
    assert dead_keys(table, (), now_ms=NOW) == ()


def test_entries_that_no_snapshot_names_are_dead_already() -> None:
    """J-03: Java's expiry leaves them."""
    keys = [kek("K1", 1), key("L0", "K1"), key("L1", "K1"), kek("old", 1000)]
    table = metadata([snapshot(1, None, 1, **{"key-id": "L1"})], {"main": branch(1)}, keys=keys)
    assert dead_keys(table, (), now_ms=NOW) == ("L0", "old")


def test_a_kek_of_unknown_age_is_an_error() -> None:
    for wrong, error in (
        (kek("K", None), KeyUnavailableError),
        (EncryptedKey(key_id="K", encrypted_key_metadata=b"x", encrypted_by_id=MASTER, properties={"KEY_TIMESTAMP": "soon"}), FormatError),
    ):
        with pytest.raises(error):
            dead_keys(metadata([], {}, keys=[wrong]), (), now_ms=NOW)
