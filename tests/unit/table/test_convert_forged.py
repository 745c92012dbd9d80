"""Plain manifests that say what is not so: a conversion judges them alike whether it keeps history or not. It refuses, or it heals.

Whoever can write to storage can change plain manifests, and nobody notices. What they decide after that is said in the threat model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from icelock.errors import FormatError, IntegrityError
from icelock.maintenance import convert
from tests.helpers.tables import ids, local
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_convert import commit_deletes, equality, plain_catalog, plain_table, positions

Change = Callable[[list[Any]], None]
DATA, DELETES = 0, 1


def rewritten(location: str, change: Change) -> int:
    """Change the rows of an Avro file; return its length."""
    path = local(location)
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        rows: list[Any] = list(reader)
        schema, metadata = reader.writer_schema, reader.metadata
    change(rows)
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, metadata={key: value for key, value in metadata.items() if not key.startswith("avro.")})
    return path.stat().st_size


def forge(table: Any, change: Change, content: int) -> None:
    """Change the first manifest of the current snapshot that has this content."""
    snapshot = table.current_snapshot()
    manifest = next(one for one in snapshot.manifests(table.io) if one.content == content)
    length = rewritten(manifest.manifest_path, change)

    def tell(rows: list[Any]) -> None:
        for row in rows:
            if row["manifest_path"] == manifest.manifest_path:
                row["manifest_length"] = length

    rewritten(snapshot.manifest_list, tell)


def file(**fields: Any) -> Change:
    return lambda rows: rows[0]["data_file"].update(fields)


def entry(**fields: Any) -> Change:
    return lambda rows: rows[0].update(fields)


def made(lake: TestLake, deletes: str) -> Any:
    """A plain table of the ids 0 to 19, one of which a delete file may take away."""
    table = plain_table(lake)
    if deletes in {"positions", "beyond"}:
        (first,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
        commit_deletes(table, positions(table, first, 10 if deletes == "beyond" else 3))
    if deletes == "equality":
        commit_deletes(table, equality(table, 3))
    return plain_catalog(lake).load_table("db.t")


REFUSED: list[Any] = [
    # deletes, content of the manifest, change, error, words
    ("none", DATA, file(record_count=0), IntegrityError, "has 10 rows"),
    ("none", DATA, file(record_count=3), IntegrityError, "has 10 rows"),
    ("none", DATA, file(record_count=99), IntegrityError, "has 10 rows"),
    ("equality", DATA, file(record_count=0), IntegrityError, "has 10 rows"),
    ("equality", DATA, file(record_count=99), IntegrityError, "has 10 rows"),
    ("positions", DATA, file(record_count=99), IntegrityError, "has 10 rows"),
    ("none", DATA, file(content=1), FormatError, "listed as a manifest of data files"),
    ("none", DATA, file(content=2, equality_ids=[1]), FormatError, "listed as a manifest of data files"),
    ("none", DATA, file(content=7), FormatError, "is not a manifest: 7"),
    ("none", DATA, file(file_format="TEXT"), FormatError, "is not a manifest: 'TEXT'"),
    ("none", DATA, file(file_path="/warehouse/a\0b.parquet"), FormatError, "contains a NUL"),
    ("none", DATA, file(file_path="file:///warehouse/a\0b.parquet"), FormatError, "contains a NUL"),
    ("positions", DELETES, file(file_path="/warehouse/a\0b.parquet"), FormatError, "contains a NUL"),
    ("none", DATA, entry(status=9), FormatError, "is not a manifest: 9"),
    ("none", DATA, file(file_format="AVRO"), FormatError, "is not an Avro file"),
    ("positions", DELETES, file(content=0), FormatError, "listed as a manifest of delete files"),
    ("equality", DELETES, file(content=0), FormatError, "listed as a manifest of delete files"),
    ("positions", DELETES, file(content=2), FormatError, "names no columns"),
    ("positions", DELETES, file(record_count=0), IntegrityError, "has 1 (rows|deletes)"),
    ("equality", DELETES, file(record_count=0), IntegrityError, "has 1 (rows|deletes)"),
    ("equality", DELETES, file(record_count=9), IntegrityError, "has 1 (rows|deletes)"),
    ("equality", DELETES, file(equality_ids=None), FormatError, "names no columns"),
    # Read by no snapshot afterwards: rows that are deleted must be there, and columns that are compared.
    ("equality", DELETES, file(equality_ids=[2]), FormatError, "lacks column 'name'"),
    ("beyond", DELETES, file(), IntegrityError, "deletes row 10 of .*, which has 10 rows"),
]


@pytest.mark.parametrize("history", ["drop", "keep"])
@pytest.mark.parametrize(("deletes", "content", "change", "error", "words"), REFUSED)
def test_refused_and_the_table_stays_plain(  # noqa: PLR0913 - a row of the table above
    lake: TestLake, deletes: str, content: int, change: Change, error: type[Exception], words: str, history: Any
) -> None:
    forge(made(lake, deletes), change, content)
    before = set(lake.files())
    with pytest.raises(error, match=words):
        convert(lake.catalog().load_table("db.t"), key_id="keyA", history=history)
    table = lake.catalog().load_table("db.t")
    assert "encryption.key-id" not in table.properties
    assert set(lake.files()) == before


@pytest.mark.parametrize("history", ["drop", "keep"])
@pytest.mark.parametrize(
    "change",
    [file(sort_order_id=9), file(sort_order_id=-1), file(file_size_in_bytes=1), file(split_offsets=[-5]), file(equality_ids=[1])],
    ids=["unknown sort order", "no sort order", "size", "split offsets", "compared columns"],
)
@pytest.mark.parametrize("deletes", ["none", "positions", "equality"])
def test_healed(lake: TestLake, change: Change, deletes: str, history: Any) -> None:
    """Files are written again, and entries say of the new ones what is so. A sort order that no table knows is none (spec, "Sorting")."""
    forge(made(lake, deletes), change, DATA)
    convert(lake.catalog().load_table("db.t"), key_id="keyA", history=history)
    table = lake.catalog().load_table("db.t")
    assert ids(table) == [number for number in range(20) if number != 3 or deletes == "none"]
    for task in table.scan().plan_files():
        assert task.file.sort_order_id in (None, 0)
        assert task.file.file_size_in_bytes == local(task.file.file_path).stat().st_size
        assert not task.file.equality_ids
        assert all(offset >= 0 for offset in task.file.split_offsets or ())
