"""Interleaved commits of many writers: whatever the order, every snapshot's key opens."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from icelock.format.aes_gcm import KEY_LENGTHS
from icelock.keys.entropy import SystemEntropy
from icelock.keys.kek import KekCache
from icelock.keys.manager import EncryptionManager
from tests.unit.keys.fakes import DAY_MS, NOW_MS, Clock, CountingKms

WRITERS = 3
# A step is (writer, days that pass, what it does): refresh and prepare, seal, or commit what it sealed.
STEPS = st.lists(
    st.tuples(st.integers(0, WRITERS - 1), st.sampled_from([0, 0, 0, 1, 400, 730]), st.sampled_from(["refresh", "seal", "commit"])),
    max_size=40,
)


class Table:
    """What a catalog keeps: entries and snapshots, changed by compare-and-swap."""

    def __init__(self):
        self.keys = ()
        self.snapshots = []

    def commit(self, base, entries, snapshot):
        if base is not self.keys:
            return False
        self.keys = (*self.keys, *entries)
        self.snapshots.append(snapshot)
        return True


class Writer:
    def __init__(self, table, manager):
        self.table = table
        self.manager = manager
        self.base = table.keys
        self.spare = ()
        self.sealed = None
        self.kms = manager.kms

    def refresh(self):
        self.base = self.table.keys
        self.manager = replace(self.manager, keys=self.base, unused_keks=self.spare)

    def seal(self):
        metadata = self.manager.mint_file_key().closed(100)
        seal = self.manager.seal_manifest_list_key(metadata)
        self.sealed = (seal, metadata)
        self.spare = (*seal.new_entries, *self.spare)

    def commit(self):
        if self.sealed is None:
            return
        seal, metadata = self.sealed
        if self.table.commit(self.base, seal.new_entries, (seal.key_id, metadata)):
            self.spare = ()
        self.sealed = None
        self.refresh()


@given(steps=STEPS, length=st.sampled_from(KEY_LENGTHS))
def test_every_snapshot_opens_after_interleaved_commits(steps, length):
    clock, table = Clock(), Table()
    writers = []
    for _ in range(WRITERS):
        manager = EncryptionManager(
            table="db.t", master_key_id="keyA", data_key_length=length, keys=(), kms=CountingKms(), cache=KekCache(),
            entropy=SystemEntropy(), clock=clock,
        )  # fmt: skip
        writers.append(Writer(table, manager))
    for index, days, action in steps:
        clock.now += days * DAY_MS
        getattr(writers[index], action)()

    reader = replace(writers[0].manager, keys=table.keys)
    assert [reader.open_manifest_list_key(key_id) for key_id, _ in table.snapshots] == [metadata for _, metadata in table.snapshots]
    assert len({key.key_id for key in table.keys}) == len(table.keys)
    used = {key.encrypted_by_id for key in table.keys}
    assert all(key.key_id in used for key in table.keys if key.encrypted_by_id == "keyA"), "a KEK was committed that nothing needs"
    assert clock.now >= NOW_MS
