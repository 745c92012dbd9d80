"""Writers append to a plain table while it is converted: what was committed is in the encrypted table, once.

Two of them are PyIceberg's own clients, which take no turn and know nothing of encryption; one is icelock's.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from icelock.maintenance import audit, convert
from tests.lakes.sqlite import TestLake, people

FIRST = 40
AT_ONCE = 3


class Writer:
    """Appends a row at a time; ``acknowledged`` are the ids whose commit returned, ``tried`` all of them."""

    def __init__(self, catalog: Any, number: int) -> None:
        self._catalog = catalog
        self._number = number
        self.acknowledged: list[int] = []
        self.tried: list[int] = []
        self.errors: list[Exception] = []

    def run(self, until: threading.Event) -> None:
        while not until.is_set():
            row = 1_000_000 * self._number + len(self.tried)
            self.tried.append(row)
            try:
                table = self._catalog.load_table("db.t")
                if table.metadata.format_version == 3:
                    return
                table.append(people(row, 1))
            except Exception as e:  # noqa: BLE001 - a writer that lost, or met the encrypted table
                self.errors.append(e)
            else:
                self.acknowledged.append(row)


def writers(lake: TestLake) -> list[Writer]:
    plain = {name: lake.properties()[name] for name in ("uri", "warehouse")}
    theirs = [load_catalog("test", type="sql", **plain) for _ in range(AT_ONCE - 1)]
    ours = lake.catalog(**{"icelock.plain-tables": "db.t"})
    return [Writer(catalog, number) for number, catalog in enumerate([*theirs, ours], 1)]


@pytest.mark.parametrize(("in_turn", "history"), [(0, "drop"), (32 << 20, "drop"), (32 << 20, "keep")])
def test_nothing_is_lost_and_nothing_is_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_turn: int, history: Any) -> None:
    """With 0 bytes in the turn all is taken in by rounds, but for the last one."""
    monkeypatch.setattr("icelock.table.maintenance.conversion.convert._IN_TURN_BYTES", in_turn)
    lake = TestLake.with_namespace(tmp_path)
    made = lake.catalog(**{"icelock.plain-tables": "db.t"}).create_table("db.t", people().schema, properties={"icelock.plain": "true"})
    for start in range(0, FIRST, 10):
        made.append(people(start))
    working, done = writers(lake), threading.Event()
    threads = [threading.Thread(target=writer.run, args=(done,)) for writer in working]
    for thread in threads:
        thread.start()
    while sum(len(writer.acknowledged) for writer in working) < AT_ONCE:
        done.wait(0.01)
    try:
        result = convert(lake.catalog().load_table("db.t"), key_id="keyA", history=history)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    table = lake.catalog().load_table("db.t")
    found = Counter(table.scan().to_arrow()["id"].to_pylist())
    assert set(found.values()) == {1}
    acknowledged = {row for writer in working for row in writer.acknowledged}
    assert {*range(FIRST), *acknowledged} <= set(found)
    assert set(found) <= {*range(FIRST), *(row for writer in working for row in writer.tried)}
    assert result.files == len(found) - FIRST + FIRST // 10
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
