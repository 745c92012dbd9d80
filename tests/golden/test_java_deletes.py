"""Equality deletes, deletion vectors and Avro of Java Iceberg 1.12.0, row by row, and nothing of them when a byte is changed."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThan, IsNaN, IsNull, LessThan
from pyiceberg.schema import Schema

import icelock
from icelock.arrow.read.task import count_task
from icelock.errors import IcelockError
from icelock.plan.task import EQUALITY_DELETES, ScanTask
from tests.golden.relocate import GOLDEN_ROOT
from tests.golden.rows import rows, sorted_json
from tests.helpers.turns import todays

HERE = Path(__file__).parent / "deletes"
TABLES = ("eq_parquet", "eq_avro")


def open_table(name: str, root: Path = HERE) -> icelock.StaticTable:
    (metadata,) = (root / name / "table" / "metadata").glob("*.metadata.json")
    properties = {
        "py-io-impl": "tests.golden.relocate.RelocatingFileIO",
        GOLDEN_ROOT: str(root),
        "encryption.kms-type": "memory",
        "kms.memory.keys.keyA": b"0123456789012345".hex(),
    }
    return icelock.StaticTable.from_metadata(f"file:/tmp/iceberg-golden/{name}/metadata/{metadata.name}", properties)


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / name / "expected.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", TABLES)
def test_rows_equal_java_now_and_at_every_snapshot(name: str) -> None:
    table, java = open_table(name), expected(name)
    assert rows(table.scan().to_arrow()) == sorted_json(java["rows"])
    assert {str(snapshot.snapshot_id) for snapshot in table.snapshots()} == set(java["at_snapshot"])
    for snapshot_id, wanted in java["at_snapshot"].items():
        scan = table.scan(snapshot_id=int(snapshot_id))
        assert rows(scan.to_arrow()) == sorted_json(wanted)
        assert scan.count() == len(wanted)
        assert scan.to_arrow_batch_reader().read_all().num_rows == len(wanted)


@pytest.mark.parametrize("name", TABLES)
def test_deleted_rows_are_the_others_of_their_files(name: str) -> None:
    table, java = open_table(name), expected(name)
    found = table.scan(selected_fields=("*", "_deleted")).to_arrow()
    live = found.filter(pc.invert(found.column("_deleted"))).drop_columns("_deleted")
    assert rows(live) == sorted_json(java["rows"])
    assert found.num_rows == sum(task.record_count for task in table.scan().scan_tasks())
    assert found.num_rows > live.num_rows


@pytest.mark.parametrize("name", TABLES)
def test_metadata_columns_equal_java(name: str) -> None:
    table, java = open_table(name), expected(name)
    lineage = table.scan(selected_fields=("id", "_row_id", "_last_updated_sequence_number")).to_arrow()
    assert sorted(list(row.values()) for row in lineage.to_pylist()) == sorted(java["row_lineage"])
    columns = table.scan(selected_fields=("id", "_file", "_pos", "_spec_id", "_partition")).to_arrow()
    assert rows(columns) == sorted_json(java["metadata_columns"])


FILTERS: list[tuple[BooleanExpression, Callable[[dict[str, Any]], bool]]] = [
    (EqualTo("cat", "a"), lambda row: row["cat"] == "a"),
    (IsNull("cat"), lambda row: row["cat"] is None),
    (EqualTo("id", 2), lambda row: row["id"] == 2),
    (EqualTo("id", 25), lambda row: row["id"] == 25),
    (And(GreaterThan("id", 20), LessThan("id", 50)), lambda row: 20 < row["id"] < 50),
    (IsNaN("w"), lambda row: row["w"] == "nan"),
    (IsNull("extra"), lambda row: row["extra"] is None),
    (EqualTo("n", 2), lambda row: row["n"] == 2),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("row_filter", "matches"), FILTERS, ids=lambda f: str(f) if isinstance(f, BooleanExpression) else "")
def test_a_filter_prunes_files_and_deletes_and_no_deleted_row_comes_back(
    name: str, row_filter: BooleanExpression, matches: Callable[[dict[str, Any]], bool]
) -> None:
    wanted = [row for row in expected(name)["rows"] if matches(row)]
    scan = open_table(name).scan(row_filter=row_filter)
    assert rows(scan.to_arrow()) == sorted_json(wanted)
    assert scan.count() == len(wanted)
    only_id = open_table(name).scan(row_filter=row_filter, selected_fields=("id",)).to_arrow()
    assert sorted(only_id.column("id").to_pylist()) == sorted(row["id"] for row in wanted)


@pytest.mark.parametrize("name", TABLES)
def test_tasks_carry_the_key_of_each_delete_file_and_no_delete_that_cannot_apply(name: str) -> None:
    """C-31."""
    tasks = open_table(name).scan().scan_tasks()
    deletes = [delete for task in tasks for delete in task.deletes]
    assert {delete.content for delete in deletes} == {1, 2}
    assert all(delete.key_metadata is not None for delete in deletes)
    newest = max(tasks, key=lambda task: task.sequence_number or 0)
    assert not newest.deletes
    assert any(delete.equality_ids == (5,) for delete in deletes), "the dropped column's"
    by_note = [task for task in tasks if any(delete.equality_ids == (5,) for delete in task.deletes)]
    assert {(task.spec_id, task.partition) for task in by_note} == {(0, ("a",))}


def whole_and_cut(scan: Any) -> tuple[list[ScanTask], list[ScanTask]]:
    """Return the data files all of whose live rows match, and those of which only some do."""
    context = scan.read_context(Schema())
    counts = [(task, count_task(context, task), count_task(replace(context, row_filter=AlwaysTrue()), task)) for task in scan.scan_tasks()]
    return [task for task, n, live in counts if 0 < n == live], [task for task, n, live in counts if 0 < n < live]


@pytest.mark.parametrize("name", TABLES)
def test_files_whose_live_rows_all_match_are_whole_and_the_others_are_cut(name: str) -> None:
    table = open_table(name)
    deletes = {task.path: task.deletes for task in table.scan().scan_tasks()}
    whole, cut = whole_and_cut(table.scan(row_filter="cat = 'a'"))
    assert {file.partition[0] for file in whole} == {"a"}
    assert cut == []
    live_in_cut = 0
    whole, cut = whole_and_cut(table.scan(row_filter="w = 1.5"))
    assert whole == []
    for file in cut:
        live_in_cut += 1
        assert deletes[file.path]
    assert live_in_cut == 3
    # All rows of partition b that are left have one of these values: only deletes make the file a whole one.
    whole, cut = whole_and_cut(table.scan(row_filter="cat = 'b' and w >= 0.0"))
    assert [file.partition[0] for file in whole] == ["b"]
    assert cut == []


def test_every_type_that_java_writes_is_read_from_parquet_and_from_avro() -> None:
    one = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    stamp = dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    defaults = {
        "dd": dt.date(2024, 2, 3),
        "du": one,
        "dn": Decimal("7.25"),
        "dts": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "dbin": b"\x00\xff",
    }
    full = {
        "id": 1,
        "b": True,
        "i": -1,
        "f": 0.5,
        "d": 0.1,
        "dec9": Decimal("-1.29"),
        "dec38": Decimal("1234567890123456789012345678.0123456789"),
        "dt": dt.date(1969, 12, 31),
        "tm": dt.time(23, 59, 59, 999999),
        "ts": stamp.replace(tzinfo=None),
        "tstz": stamp,
        "s": "é𝄞",
        "u": one,
        "fx": b"\x01\x02\x03",
        "bin": b"\x00\xff",
        "im": [(1, "one"), (2, None)],
        "sm": [("a", 1), ("b", None)],
        "lst": [{"p": 5, "q": one}, None, {"p": None, "q": None}],
        "stm": [({"k": 4}, Decimal("-0.5"))],
    }
    empty = {**dict.fromkeys(full), "id": 2}
    scan = open_table("types").scan()
    assert {task.file_format for task in scan.scan_tasks()} == {"PARQUET", "AVRO"}
    found = sorted(scan.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [{**row, "id": row["id"] + shift, **defaults} for shift in (0, 10) for row in (full, empty)]


def copied(name: str, root: Path) -> Path:
    for path in (HERE / name / "table").rglob("*"):
        if path.is_file():
            target = root / name / "table" / path.relative_to(HERE / name / "table")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return root / name / "table"


def current_files(table: icelock.StaticTable, folder: Path) -> list[Path]:
    """Manifests, data files and delete files of the current snapshot, where they lie in ``folder``."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    names = [snapshot.manifest_list, *(m.manifest_path for m in manifests), *(entry.data_file.file_path for entry in entries)]
    return [folder / name.split("/", 4)[4] for name in dict.fromkeys(names)]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut by one byte": lambda data: data[:-1],
    "cut in the middle": lambda data: data[: len(data) // 2],
    "one byte appended": lambda data: data + b"\0",
    "a bit in the middle": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
    "a bit in the first bytes": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "emptied": lambda _: b"",
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", TABLES)
def test_no_row_of_a_table_with_a_damaged_file_is_returned(name: str, damage: str, tmp_path: Path) -> None:
    """A third of the files of the snapshot a day: a typed error that names it. A bit inside Parquet may be of a column that is not read."""
    folder = copied(name, tmp_path)
    files = current_files(open_table(name, tmp_path), folder)
    assert len(files) > 12
    for path in todays(f"{damage}, {name}", files, 3):
        sound = path.read_bytes()
        path.write_bytes(DAMAGE[damage](sound))
        try:
            assert rows(open_table(name, tmp_path).scan().to_arrow()) == sorted_json(expected(name)["rows"])
            assert (damage, path.suffix) == ("a bit in the middle", ".parquet")
        except IcelockError as e:
            assert path.name in str(e)  # noqa: PT017 - either outcome is right for one kind of damage
        path.write_bytes(sound)


@pytest.mark.parametrize("name", TABLES)
def test_files_that_are_exchanged_with_each_other_are_refused(name: str, tmp_path: Path) -> None:
    """C-62: data with data, deletes with deletes, manifests with manifests."""
    folder = copied(name, tmp_path)
    files = current_files(open_table(name, tmp_path), folder)[1:]
    for one, other in itertools.pairwise(files):
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        with pytest.raises(IcelockError, match=f"{one.name}|{other.name}"):
            open_table(name, tmp_path).scan().to_arrow()
        one.write_bytes(first)
        other.write_bytes(second)


@pytest.mark.parametrize("name", TABLES)
def test_equality_deletes_are_read_once_for_a_scan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    table = open_table(name)
    inner = table.io.inner
    new_input = inner.new_input
    monkeypatch.setattr(inner, "new_input", lambda location: (opened.append(location), new_input(location))[1])
    scan = table.scan()
    deletes = [delete.path for task in scan.scan_tasks() for delete in task.deletes if delete.content == EQUALITY_DELETES]
    assert len(deletes) > len(set(deletes)), "one file applies to several data files"
    scan.to_arrow()
    assert all(opened.count(path) == 1 for path in set(deletes))
