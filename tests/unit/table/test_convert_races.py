"""Two conversions of one table at once, as from two hosts; and a way back that is raced with writers: one wins, and nothing is mixed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from icelock.errors import CommitError, IcelockError, IntegrityError, PolicyError
from icelock.maintenance import audit, convert, leftovers, undo_conversion
from icelock.metadata.table_metadata import is_encrypted
from tests.helpers.tables import ids, local
from tests.lakes.sqlite import TestLake, people
from tests.unit.table.test_convert import plain_table

REFUSED = (CommitError, CommitFailedException, PolicyError, IntegrityError)


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Do all at the same time; return what each returned, or the error that refused it."""
    begin = Barrier(len(acts))

    def one(act: Callable[[], Any]) -> Any:
        begin.wait()
        try:
            return act()
        except REFUSED as e:
            return e

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(one, acts))


@pytest.mark.parametrize("history", ["drop", "keep"])
@pytest.mark.parametrize("keys", [("keyA", "keyA"), ("keyA", "keyB")], ids=["one key", "two keys"])
def test_two_conversions_at_once(lake: TestLake, history: Any, keys: tuple[str, str]) -> None:
    """One is made. The other one is refused, and leaves no file."""
    plain_table(lake)
    catalogs = [lake.catalog() for _ in keys]
    done = at_once(
        *(
            lambda catalog=catalog, key=key: convert(catalog.load_table("db.t"), key_id=key, history=history)  # type: ignore[misc]
            for catalog, key in zip(catalogs, keys, strict=True)
        )
    )
    won = [number for number, one in enumerate(done) if not isinstance(one, Exception)]
    assert len(won) == 1, done
    catalog = lake.catalog()
    table = catalog.load_table("db.t")
    assert table.properties["encryption.key-id"] == keys[won[0]]
    assert ids(table) == list(range(20))
    (report,) = audit(catalog, "db.t", depth=["bytes", "foreign"]).tables
    assert set(report.counts) <= {"plain-object-of-conversion"}, report.findings
    assert report.objects["encrypted, left over"].files == 0
    assert [file.path for file in leftovers(table).files] == []


def test_two_conversions_go_on_with_one_progress_file_that_was_copied(lake: TestLake, tmp_path: Path) -> None:
    """To another machine, say. Both use the copies that are finished; who loses does not delete what the other one's table has."""
    table = plain_table(lake, rows=40)
    last = local([task.file.file_path for task in table.scan().plan_files()][-1])
    whole, here, there = last.read_bytes(), tmp_path / "here", tmp_path / "there"
    last.write_bytes(whole[:-9])
    with pytest.raises(IcelockError):
        convert(lake.catalog().load_table("db.t"), key_id="keyA", progress_file=here)
    last.write_bytes(whole)
    shutil.copyfile(here, there)
    finished = here.read_bytes().count(b"\n") - 1
    assert finished
    catalogs = [lake.catalog() for _ in range(2)]
    done = at_once(
        *(
            lambda catalog=catalog, path=path: convert(catalog.load_table("db.t"), key_id="keyA", progress_file=path)  # type: ignore[misc]
            for catalog, path in zip(catalogs, (here, there), strict=True)
        )
    )
    (won,) = (one for one in done if not isinstance(one, Exception))
    assert won.reused == finished, done
    catalog = lake.catalog()
    assert ids(catalog.load_table("db.t")) == list(range(40))
    (report,) = audit(catalog, "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())


@pytest.mark.parametrize("times", range(4))
def test_the_way_back_beside_writers(lake: TestLake, times: int) -> None:
    """An append is in the table afterwards, or it is refused; so is the way back."""
    del times
    plain_table(lake)
    convert(lake.catalog().load_table("db.t"), key_id="keyA")
    writers = [lake.catalog().load_table("db.t") for _ in range(3)]
    undone, *wrote = at_once(
        lambda: undo_conversion(lake.catalog().load_table("db.t")),
        *(lambda table=table, n=n: table.append(people(100 + n, 1)) for n, table in enumerate(writers)),  # type: ignore[misc]
    )
    landed = [100 + number for number, one in enumerate(wrote) if not isinstance(one, Exception)]
    table = lake.catalog().load_table("db.t")
    assert is_encrypted(table.metadata) == isinstance(undone, Exception), (undone, wrote)
    assert ids(table) == [*range(20), *landed], (undone, wrote)
    for snapshot in table.snapshots():
        for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files():
            is_plain = local(task.file.file_path).read_bytes()[:4] == b"PAR1"
            assert is_plain != is_encrypted(table.metadata)
