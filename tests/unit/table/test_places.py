"""Places of files by their hashes: none that was given is missing, and they take 8 bytes each."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from icelock.io.listing import list_files
from icelock.table.maintenance.removal.places import Places
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_expire import make

MANY = 200_000


def place(number: int) -> str:
    return f"/warehouse/db/t/data/00000-{number}-0f2f9f5e-8c1e-4a53-9c34-6d6f5b7f8f00-00001.parquet"


def test_what_was_given_is_in_it_and_nothing_else() -> None:
    tracemalloc.start()
    places = Places(map(place, range(MANY)))
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 10 * MANY, "8 bytes each; a set of text takes about 170"
    assert most < 40 * MANY
    assert len(places) == MANY
    assert all(place(number) in places for number in range(MANY))
    assert not any(place(number) in places for number in range(MANY, MANY + 20_000))
    assert "" not in Places([])


def test_names_that_a_local_disk_of_macos_takes_for_one_are_one() -> None:
    """Upper and lower case; an accent in one letter (U+00F6) or after it (U+0308). An object store tells them apart."""
    places = Places(["/wh/t/city=oslo/a.parquet", "/wh/t/city=K\u00f6ln/b.parquet", "bucket/t/city=oslo/a.parquet"])
    assert "/wh/t/city=Oslo/a.parquet" in places
    assert "/wh/t/city=ko\u0308ln/b.parquet" in places
    assert "bucket/t/city=Oslo/a.parquet" not in places
    assert "/wh/t/city=oslo/b.parquet" not in places


def test_a_local_folder_is_listed_without_holding_it(tmp_path: Path) -> None:
    """Arrow makes an object of some hundred bytes for each file of a folder before the first is given."""
    for number in range(3000):
        (tmp_path / f"{number:04}-a-rather-long-name-as-data-files-have.parquet").touch()
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - not measured

    io = PyArrowFileIO()
    list(list_files(io, str(tmp_path / "none")))
    tracemalloc.start()
    count = sum(1 for _ in list_files(io, str(tmp_path)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3000
    assert most < 100_000


def test_columns_and_rows_say_the_same(lake: TestLake) -> None:
    """Live paths read by column are those of the row-wise reader."""
    from icelock.table.maintenance.removal.deletable import _paths  # noqa: PLC0415

    table = make(lake, 3)
    table.delete("id = 10")
    for manifest in table.current_snapshot().manifests(table.io):
        found = [_paths(manifest, table.io, live_only=True, as_columns=how) for how in (True, False)]
        assert found[0] == found[1]
