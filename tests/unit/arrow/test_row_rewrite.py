"""What becomes of one data file when some of its rows are deleted: worked out by hand from SQL's rules and the positions of six rows."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThan, In, IsNull, Not, NotEqualTo, NotIn, Or
from pyiceberg.schema import Schema
from pyroaring import BitMap64

from icelock.arrow.write import row_rewrite
from icelock.arrow.write.row_rewrite import (
    REMOVED,
    UNCHANGED,
    DeleteMode,
    Rewrite,
    RewriteContext,
    mark_deleted,
    rewrite_file,
    with_lineage,
)
from icelock.errors import PolicyError
from icelock.keys.entropy import SystemEntropy
from icelock.metadata.manifest import DataFile
from icelock.plan.task import DeleteFile, ScanTask
from icelock.secret import SecretBytes
from tests.unit.arrow import deleting, writing
from tests.unit.arrow.support import DEK, context, metadata, opt, read, rows_table, task, write

SCHEMA = Schema(opt(1, "id", ice.LongType()), opt(2, "x", ice.DoubleType()))
ROWS: list[dict[str, Any]] = [
    {"id": 0, "x": 1.0},
    {"id": 1, "x": None},
    {"id": 2, "x": math.nan},
    {"id": 3, "x": -1.0},
    {"id": None, "x": 1.0},
    {"id": 5, "x": None},
]
FIRST, SEQUENCE = 1000, 7
COPY, MERGE = DeleteMode.COPY_ON_WRITE, DeleteMode.MERGE_ON_READ
both_modes = pytest.mark.parametrize("mode", [COPY, MERGE], ids=lambda mode: mode.value)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "data.parquet", rows_table(SCHEMA, ROWS), row_group_size=4)


def planned(path: Path, *deletes: DeleteFile, **fields: Any) -> ScanTask:
    given = {"record_count": len(ROWS), "first_row_id": FIRST, "sequence_number": SEQUENCE, **fields}
    return task(path, key=metadata(path), deletes=deletes, **given)


def rewrite_context(folder: Path, mode: DeleteMode, row_filter: BooleanExpression | None = None, **write: Any) -> RewriteContext:
    def new_files() -> Any:
        return with_lineage(writing.context(folder / "new", SCHEMA, **write))

    return RewriteContext(read=context(SCHEMA, row_filter), write=new_files, mode=mode, entropy=SystemEntropy())


def kept(files: tuple[DataFile, ...]) -> list[tuple[Any, ...]]:
    """The rows of new files, by pyarrow alone: id, row id, sequence number."""
    rows = [row for file in files for row in writing.parquet_file(file).read().to_pylist()]
    return [(row["id"], row["_row_id"], row["_last_updated_sequence_number"]) for row in rows]


def rows_at(*positions: int) -> list[tuple[Any, ...]]:
    return [(ROWS[position]["id"], FIRST + position, SEQUENCE) for position in positions]


# The rows that a filter deletes. A comparison with NULL is neither true nor false, and the row is kept. NaN is unequal to all numbers, and
# neither less nor greater (IEEE 754).
FILTERS: list[tuple[BooleanExpression, set[int]]] = [
    (EqualTo("x", 1.0), {0, 4}),
    (NotEqualTo("x", 1.0), {2, 3}),
    (Not(EqualTo("x", 1.0)), {2, 3}),
    (GreaterThan("x", 0.0), {0, 4}),
    (Not(GreaterThan("x", 0.0)), {2, 3}),
    (NotIn("x", [-1.0, 5.0]), {0, 2, 4}),
    (IsNull("x"), {1, 5}),
    (And(EqualTo("x", 1.0), EqualTo("id", 0)), {0}),
    (Or(EqualTo("x", 1.0), EqualTo("id", 5)), {0, 4, 5}),
    (Not(And(EqualTo("x", 1.0), EqualTo("id", 9))), {0, 1, 2, 3, 5}),  # row 4: not (true and NULL) is NULL
    (In("id", [7, 8]), set()),
]


@pytest.mark.parametrize(("row_filter", "deleted"), FILTERS, ids=[str(number) for number in range(len(FILTERS))])
def test_rows_go_where_the_filter_is_true_and_null_keeps_them(
    data: Path, tmp_path: Path, row_filter: BooleanExpression, deleted: set[int]
) -> None:
    found = rewrite_file(rewrite_context(tmp_path, MERGE, row_filter), planned(data))
    assert found == (Rewrite(deleted=BitMap64(deleted)) if deleted else UNCHANGED)
    copied = rewrite_file(rewrite_context(tmp_path, COPY, row_filter), planned(data))
    if not deleted:
        assert copied == UNCHANGED
        return
    assert (copied.removed, copied.deleted) == (True, None)
    assert kept(copied.files) == rows_at(*sorted(set(range(6)) - deleted))


@both_modes
def test_a_file_of_which_every_live_row_goes_is_removed_and_nothing_is_written(data: Path, tmp_path: Path, mode: DeleteMode) -> None:
    everything = rewrite_context(tmp_path, mode, Or(IsNull("x"), Not(IsNull("x"))))
    assert rewrite_file(everything, planned(data)) == REMOVED
    before = deleting.vector(tmp_path / "v.puffin", data, [1, 4])
    assert rewrite_file(rewrite_context(tmp_path, mode), planned(data, before), BitMap64([0, 2, 3, 5])) == REMOVED
    assert rewrite_file(rewrite_context(tmp_path, mode), planned(data), BitMap64()) == UNCHANGED
    assert writing.files_in(tmp_path / "new") == []


@both_modes
def test_given_positions_go_whatever_the_filter_says(data: Path, tmp_path: Path, mode: DeleteMode) -> None:
    found = rewrite_file(rewrite_context(tmp_path, mode, EqualTo("x", 1.0)), planned(data), BitMap64([1, 3]))
    if mode is MERGE:
        assert found == Rewrite(deleted=BitMap64([1, 3]))
    else:
        assert kept(found.files) == rows_at(0, 2, 4, 5)


@both_modes
def test_rows_that_were_deleted_before_stay_deleted(data: Path, tmp_path: Path, mode: DeleteMode) -> None:
    """A vector, position deletes and an equality delete on one file: rows 1 and 5, 2, and 3; the filter finds 0 alone."""
    vector = deleting.vector(tmp_path / "v.puffin", data, [1, 5])
    positions = deleting.positions(tmp_path / "p.parquet", [(tmp_path / "other", 0), (data, 2)])
    equality = deleting.equality(tmp_path / "e.parquet", rows_table(Schema(SCHEMA.fields[0]), [{"id": 3}]), Schema(SCHEMA.fields[0]))
    one = planned(data, vector, positions, equality)
    found = rewrite_file(rewrite_context(tmp_path, mode, EqualTo("id", 0)), one)
    if mode is MERGE:
        assert found == Rewrite(deleted=BitMap64([0, 1, 2, 5])), "row 3 is the equality delete's"
    else:
        assert kept(found.files) == rows_at(4)
    assert rewrite_file(rewrite_context(tmp_path, mode, EqualTo("x", 1.0)), one) == REMOVED, "rows 0 and 4 were the last ones"
    assert rewrite_file(rewrite_context(tmp_path, mode, IsNull("x")), one) == UNCHANGED


def test_positions_of_rows_that_are_deleted_already_do_not_count_twice(data: Path, tmp_path: Path) -> None:
    one = planned(data, deleting.vector(tmp_path / "v.puffin", data, [1, 5]))
    assert mark_deleted(context(SCHEMA), one, BitMap64([0, 1, 2, 3])) == Rewrite(deleted=BitMap64([0, 1, 2, 3, 5]))
    assert mark_deleted(context(SCHEMA), one, BitMap64([0, 1, 2, 3, 4])) == REMOVED


def test_rows_keep_the_ids_that_are_stored_and_get_those_that_are_not(tmp_path: Path) -> None:
    """A file that was rewritten before has ids as columns; null ones (rows that were new) follow from the file's first id."""
    rows = [{"id": i, "x": None, "_row_id": stored, "_last_updated_sequence_number": 3} for i, stored in enumerate([40, None, 42])]
    path = write(tmp_path / "again.parquet", rows_table(with_lineage(writing.context(tmp_path, SCHEMA)).schema, rows))
    copied = rewrite_file(rewrite_context(tmp_path, COPY, EqualTo("id", 0)), planned(path, record_count=3))
    assert kept(copied.files) == [(1, FIRST + 1, 3), (2, 42, 3)]


def test_a_file_without_row_ids_gets_none(data: Path, tmp_path: Path) -> None:
    copied = rewrite_file(rewrite_context(tmp_path, COPY, EqualTo("id", 0)), planned(data, first_row_id=None, sequence_number=None))
    assert {row[1:] for row in kept(copied.files)} == {(None, None)}


def test_each_new_file_has_a_key_of_its_own_and_reads_back(data: Path, tmp_path: Path) -> None:
    rewrite = rewrite_context(tmp_path, COPY, EqualTo("id", 0))
    files = [file for number in (1, 2) for file in rewrite_file(rewrite, planned(data), task_id=number).files]
    keys = [writing.key_metadata(file)["key"] for file in files]
    assert len({*keys, DEK}) == 3
    assert len({file.file_path for file in files}) == 2
    for file in files:
        path = writing.path_of(file)
        assert path.read_bytes()[:4] == b"PARE"
        sealed = ScanTask(**{**_plain(planned(path, record_count=5)), "key_metadata": SecretBytes(file.key_metadata)})
        assert read(context(SCHEMA), sealed).column("id").to_pylist() == [1, 2, 3, None, 5]


def _plain(one: ScanTask) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def test_a_rewrite_that_fails_leaves_no_file(data: Path, tmp_path: Path) -> None:
    io = writing.CountingIO(fail_at=200)
    with pytest.raises(OSError, match="disk full"):
        rewrite_file(rewrite_context(tmp_path, COPY, EqualTo("id", 0), io=io), planned(data))
    assert len(io.made) == 1
    assert writing.files_in(tmp_path / "new") == []


@pytest.mark.parametrize(("mode", "given"), [(COPY, None), (COPY, [0]), (MERGE, None)])
def test_no_more_than_a_batch_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DeleteMode, given: list[int] | None) -> None:
    rows = 10_000
    path = write(tmp_path / "long.parquet", rows_table(SCHEMA, [{"id": i, "x": 0.5} for i in range(rows)]))
    monkeypatch.setattr("icelock.arrow.read.stored_file.BATCH_ROWS", 100)
    taken: list[int] = []
    real = row_rewrite.read_task

    def counted(*args: Any, **more: Any) -> Any:
        for batch in real(*args, **more):
            taken.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(row_rewrite, "read_task", counted)
    rewrite = rewrite_context(tmp_path, mode, NotIn("id", [5, 5000]))
    found = rewrite_file(rewrite, planned(path, record_count=rows), None if given is None else BitMap64(given))
    assert max(taken) == 100
    if mode is MERGE:
        assert found.deleted == BitMap64(range(rows)) - BitMap64([5, 5000])
    else:
        assert [row[0] for row in kept(found.files)] == ([5, 5000] if given is None else list(range(1, rows)))


def test_only_a_file_that_is_written_again_needs_the_names_of_lineage_columns(data: Path, tmp_path: Path) -> None:
    clash = Schema(*SCHEMA.fields, opt(3, "_row_id", ice.LongType()))
    for mode, refused in ((COPY, True), (MERGE, False)):
        rewrite = RewriteContext(
            read=context(clash, EqualTo("x", 1.0)),
            write=lambda: with_lineage(writing.context(tmp_path / "new", clash)),
            mode=mode,
            entropy=SystemEntropy(),
        )
        assert rewrite_file(rewrite, planned(data), BitMap64(range(6))) == REMOVED
        if refused:
            with pytest.raises(PolicyError, match="reserved name"):
                rewrite_file(rewrite, planned(data))
        else:
            assert rewrite_file(rewrite, planned(data)).deleted == BitMap64([0, 4])


@pytest.mark.parametrize(
    ("value", "mode"), [(None, COPY), ("copy-on-write", COPY), ("Merge-On-Read", MERGE), ("merge", None), ("", None)], ids=str
)
def test_the_mode_is_java_s(value: str | None, mode: DeleteMode | None) -> None:
    properties = {} if value is None else {"write.merge.mode": value, "write.delete.mode": "other"}
    if mode is None:
        with pytest.raises(PolicyError, match=r"write\.merge\.mode is .* must be copy-on-write or merge-on-read"):
            DeleteMode.of(properties, "write.merge.mode")
    else:
        assert DeleteMode.of(properties, "write.merge.mode") is mode


def test_executors_can_import_it() -> None:
    code = "import sys, icelock.arrow.write.row_rewrite\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {name.split(".")[1] for name in loaded if name.startswith("icelock.")}
    assert not ours & {"kms", "table", "catalog", "spark", "maintenance", "cli"}
    assert "icelock.keys.manager" not in loaded


def test_the_filter_alone_decides_what_is_read(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are found in the filter's columns; other columns are read for the rows that are kept only."""
    asked: list[list[str]] = []
    real = row_rewrite.read_task

    def noted(scan: Any, one: Any, **more: Any) -> Any:
        asked.append([field.name for field in scan.schema.fields])
        return real(scan, one, **more)

    monkeypatch.setattr(row_rewrite, "read_task", noted)
    rewrite_file(rewrite_context(tmp_path, COPY, EqualTo("x", 1.0)), planned(data))
    assert asked == [["_pos"], ["id", "x", "_row_id", "_last_updated_sequence_number"]]
    asked.clear()
    rewrite_file(rewrite_context(tmp_path, COPY, AlwaysTrue()), planned(data), BitMap64(range(6)))
    assert asked == []


def test_the_order_of_rows_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", pa.table({"id": [3, 1, 2], "x": [0.0, 0.0, 1.0]}, schema=rows_table(SCHEMA, []).schema))
    copied = rewrite_file(rewrite_context(tmp_path, COPY, EqualTo("x", 1.0)), planned(path, record_count=3))
    assert [row[0] for row in kept(copied.files)] == [3, 1]
