"""Deletion vectors, position deletes and equality deletes on one data file: which rows are left, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import threading
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform

from icelock.arrow.read.context import MOST_BYTES, DeleteCache, ReadContext
from icelock.arrow.read.deletes import _keys, equal_rows
from icelock.arrow.read.task import count_task, read_task
from icelock.errors import FormatError, IcelockError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.metadata.metadata_columns import FILE, POS, ROW_ID
from icelock.plan.task import DeleteFile, ScanTask
from icelock.secret import SecretBytes
from tests.unit.arrow import deleting
from tests.unit.arrow.support import OTHER_DEK, CountingIO, context, metadata, opt, read, rows_table, task, write

SCHEMA = Schema(opt(1, "id", ice.LongType()), opt(2, "name", ice.StringType()))
ROWS = 1000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"id": i, "name": f"n{i % 7}"} for i in range(ROWS)]
    return write(tmp_path / "data.parquet", rows_table(SCHEMA, rows), row_group_size=300)


def with_deletes(path: Path, *deletes: DeleteFile, **fields: Any) -> ScanTask:
    return task(path, key=metadata(path), **{"record_count": ROWS, **fields}, deletes=deletes)


def ids(scan: ReadContext, one: ScanTask) -> list[int]:
    found: list[int] = read(scan, one).column("id").to_pylist()
    assert count_task(scan, one) == len(found)
    return found


def left(*gone: int) -> list[int]:
    return [i for i in range(ROWS) if i not in gone]


# Deletion vectors


def test_a_deletion_vector_hides_its_rows_in_every_row_group_and_batch(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("icelock.arrow.read.stored_file.BATCH_ROWS", 77)
    gone = [0, 76, 77, 299, 300, 301, 650, 999]
    assert ids(context(SCHEMA), with_deletes(data, deleting.vector(tmp_path / "dv.puffin", data, gone))) == left(*gone)
    assert ids(context(SCHEMA), with_deletes(data, deleting.vector(tmp_path / "all.puffin", data, range(ROWS)))) == []


def test_positions_stay_those_of_the_file_when_row_groups_are_skipped(data: Path, tmp_path: Path):
    one = with_deletes(data, deleting.vector(tmp_path / "dv.puffin", data, [5, 905, 906]), first_row_id=5000, sequence_number=1)
    wanted = Schema(*SCHEMA.fields[:1], POS, ROW_ID)
    found = read(context(wanted, GreaterThanOrEqual("id", 903), table_schema=SCHEMA), one).to_pylist()
    assert found[:3] == [{"id": i, "_pos": i, "_row_id": 5000 + i} for i in (903, 904, 907)]
    assert len(found) == 95


def test_a_count_with_a_deletion_vector_does_not_open_the_data_file(data: Path, tmp_path: Path):
    io = CountingIO()
    one = with_deletes(data, deleting.vector(tmp_path / "dv.puffin", data, [1, 2]))
    assert count_task(context(SCHEMA, io=io), one) == ROWS - 2
    assert io.seen.opened == [str(tmp_path / "dv.puffin")]
    assert count_task(context(SCHEMA, EqualTo("name", "n1"), io=io), one) == 142


def test_blobs_of_one_puffin_file_across_ags1_blocks_are_read_once_for_a_scan(tmp_path: Path):
    """Three vectors: before, across and behind the edge of the first 1 MiB block."""
    schema = Schema(opt(1, "id", ice.LongType()))
    files = [write(tmp_path / f"{n}.parquet", rows_table(schema, [{"id": i} for i in range(100)])) for n in range(3)]
    blobs = [deleting.blob([n, 50 + n]) for n in range(3)]
    plain, offsets = deleting.puffin(blobs, gap=524_253)
    assert offsets[1] < 1 << 20 < offsets[1] + len(blobs[1])
    assert offsets[2] > 1 << 20
    key = deleting.ags1(tmp_path / "dv.puffin", plain)
    io = CountingIO()
    scan = context(schema, io=io)
    for n, path in enumerate(files):
        delete = deleting.delete_file(
            tmp_path / "dv.puffin",
            key=key,
            file_format="PUFFIN",
            record_count=2,
            referenced_data_file=str(path),
            content_offset=offsets[n],
            content_size=len(blobs[n]),
        )
        found = read(scan, with_deletes(path, delete, record_count=100)).column("id").to_pylist()
        assert found == [i for i in range(100) if i not in (n, 50 + n)]
    assert io.seen.opened.count(str(tmp_path / "dv.puffin")) == 1
    assert io.seen.open_now == 0


def test_a_large_puffin_file_is_read_blob_by_blob(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("icelock.arrow.read.deletes.KEPT_PUFFIN_BYTES", 100)
    plain, (offset,) = deleting.puffin([deleting.blob([3])], gap=3 << 20)
    key = deleting.ags1(tmp_path / "dv.puffin", plain)
    io = CountingIO()
    delete = dataclasses.replace(
        deleting.vector(tmp_path / "other.puffin", data, [3]),
        path=str(tmp_path / "dv.puffin"),
        key_metadata=SecretBytes(key.encode()),
        file_size=(tmp_path / "dv.puffin").stat().st_size,
        content_offset=offset,
    )
    assert ids(context(SCHEMA, io=io), with_deletes(data, delete)) == left(3)
    assert io.seen.bytes < 3 << 20, "the first block and the vector's own, twice"


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"record_count": 3}, IntegrityError, "has 2 positions, its manifest entry says 3"),
        ({"content_size": 30}, FormatError, "its manifest entry"),
        ({"content_offset": 5}, FormatError, "deletion vector says"),
        ({"content_offset": None}, FormatError, "has no offset or size"),
        ({"content_size": None}, FormatError, "has no offset or size"),
        ({"referenced_data_file": "other.parquet"}, FormatError, r"is about other\.parquet"),
        ({"referenced_data_file": None}, FormatError, "is about None"),
        ({"key_metadata": None}, PolicyError, "has no key metadata"),
        ({"key_metadata": SecretBytes(b"\x01junk")}, FormatError, "key metadata is damaged"),
        ({"content": 3}, FormatError, "content 3"),
    ],
)
def test_an_entry_that_is_not_the_vectors_own_is_refused(
    data: Path, tmp_path: Path, changed: dict[str, Any], error: type[Exception], says: str
):
    delete = dataclasses.replace(deleting.vector(tmp_path / "dv.puffin", data, [1, 2]), **changed)
    with pytest.raises(error, match=rf"dv\.puffin.*{says}|{says}.*dv\.puffin"):
        read(context(SCHEMA), with_deletes(data, delete))


@pytest.mark.parametrize("damage", ["cut", "cut to a block", "extended", "changed", "plain", "empty"])
def test_a_damaged_puffin_file_lets_no_row_through(data: Path, tmp_path: Path, damage: str):
    """Sticks to count too. The file has two AGS1 blocks, and the vector lies in the second."""
    plain, (offset,) = deleting.puffin([deleting.blob([1])], gap=(1 << 20) + 5)
    path = tmp_path / "dv.puffin"
    key = deleting.ags1(path, plain)
    sound = path.read_bytes()
    path.write_bytes(
        {
            "cut": sound[:-1],
            "cut to a block": sound[: 8 + 28 + (1 << 20)],
            "extended": sound + b"\0",
            "changed": sound[:50] + bytes([sound[50] ^ 1]) + sound[51:],
            "plain": plain,
            "empty": b"",
        }[damage]
    )
    delete = deleting.delete_file(
        path, key=key, file_format="PUFFIN", record_count=1, referenced_data_file=str(data), content_offset=offset, content_size=46
    )
    for attempt in (
        lambda: read(context(SCHEMA), with_deletes(data, delete)),
        lambda: count_task(context(SCHEMA), with_deletes(data, delete)),
    ):
        with pytest.raises((IntegrityError, FormatError), match=r"dv\.puffin"):
            attempt()


def test_a_vector_with_the_key_of_another_file_is_refused_although_that_file_was_just_read(data: Path, tmp_path: Path):
    """The cache finds a file by path and key together."""
    sound = deleting.vector(tmp_path / "dv.puffin", data, [1])
    scan = context(SCHEMA)
    assert ids(scan, with_deletes(data, sound)) == left(1)
    other = metadata(Path(sound.path), dek=OTHER_DEK)
    with pytest.raises(IntegrityError, match=r"dv\.puffin: block 0 of 1 does not authenticate"):
        read(scan, with_deletes(data, dataclasses.replace(sound, key_metadata=SecretBytes(other.encode()))))


def test_key_metadata_without_length_is_refused(data: Path, tmp_path: Path):
    """J-07."""
    delete = deleting.vector(tmp_path / "dv.puffin", data, [1])
    short = dataclasses.replace(metadata(Path(delete.path)), encrypted_length=None)
    with pytest.raises(FormatError, match=r"dv\.puffin.*no file length"):
        read(context(SCHEMA), with_deletes(data, dataclasses.replace(delete, key_metadata=SecretBytes(short.encode()))))


def test_an_encrypted_vector_whose_entry_has_no_key_is_told_apart_from_a_plain_one(data: Path, tmp_path: Path):
    delete = dataclasses.replace(deleting.vector(tmp_path / "dv.puffin", data, [1]), key_metadata=None)
    with pytest.raises(KeyUnavailableError, match=r"dv\.puffin is an encrypted stream \(AGS1\)"):
        read(context(SCHEMA, allow_plaintext=True), with_deletes(data, delete))
    one = deleting.blob([1])
    plain, (offset,) = deleting.puffin([one])
    Path(delete.path).write_bytes(plain)
    delete = dataclasses.replace(delete, content_offset=offset, content_size=len(one))
    assert ids(context(SCHEMA, allow_plaintext=True), with_deletes(data, delete)) == left(1)


def test_a_vector_that_deletes_rows_which_the_file_does_not_have_is_refused(data: Path, tmp_path: Path):
    delete = deleting.vector(tmp_path / "dv.puffin", data, [1, ROWS])
    with pytest.raises(IntegrityError, match=r"dv\.puffin deletes row 1000 of .*data\.parquet, which has 1000 rows"):
        read(context(SCHEMA), with_deletes(data, delete))


# Position deletes


def test_position_deletes_hide_the_rows_of_their_file_in_any_order(data: Path, tmp_path: Path):
    pairs = [(data, 7), ("a.parquet", 1), (data, 3), ("z.parquet", 9), (data, 3), (data, 999)]
    delete = deleting.positions(tmp_path / "pos.parquet", pairs)
    one = deleting.positions(tmp_path / "one.parquet", [(data, 500), (data, 501)])
    assert ids(context(SCHEMA), with_deletes(data, delete, one)) == left(3, 7, 500, 501, 999)
    assert ids(context(SCHEMA, GreaterThanOrEqual("id", 998)), with_deletes(data, delete)) == [998]


def test_position_deletes_in_avro_are_read(data: Path, tmp_path: Path):
    schema = {
        "type": "record",
        "name": "position_deletes",
        "fields": [
            {"name": "file_path", "type": "string", "field-id": 2147483546},
            {"name": "pos", "type": "long", "field-id": 2147483545},
        ],
    }
    path = tmp_path / "pos.avro"
    key = deleting.ags1(path, deleting.avro_bytes(schema, [{"file_path": str(data), "pos": pos} for pos in (1, 4)]))
    delete = deleting.delete_file(path, key=key, file_format="AVRO", record_count=2)
    assert ids(context(SCHEMA), with_deletes(data, delete)) == left(1, 4)


def test_a_position_delete_file_is_decoded_once_for_a_scan(data: Path, tmp_path: Path):
    delete = deleting.positions(tmp_path / "pos.parquet", [(data, 1)])
    io = CountingIO()
    scan = context(SCHEMA, io=io)
    for _ in range(3):
        assert count_task(scan, with_deletes(data, delete)) == ROWS - 1
    assert io.seen.opened == [str(tmp_path / "pos.parquet")]


@pytest.mark.parametrize(
    ("table", "changed", "error", "says"),
    [
        (pa.table({"file_path": ["x"], "pos": [1]}, deleting.POSITION_FIELDS), {"record_count": 2}, IntegrityError, "has 1 deletes"),
        (pa.table({"file_path": ["x"], "pos": [-1]}, deleting.POSITION_FIELDS), {}, FormatError, "position -1"),
        (pa.table({"file_path": ["x"]}, pa.schema([deleting.POSITION_FIELDS.field(0)])), {}, FormatError, "lacks column 'pos'"),
        (pa.table({"pos": [1]}, pa.schema([deleting.POSITION_FIELDS.field(1)])), {}, FormatError, "lacks column 'file_path'"),
    ],
)
def test_a_position_delete_file_that_is_none_is_refused(  # noqa: PLR0913 - two fixtures
    data: Path, tmp_path: Path, table: pa.Table, changed: dict[str, Any], error: type[Exception], says: str
):
    path = write(tmp_path / "pos.parquet", table)
    delete = deleting.delete_file(path, key=metadata(path), **{"record_count": 1, **changed})
    with pytest.raises(error, match=rf"pos\.parquet.*{says}"):
        read(context(SCHEMA), with_deletes(data, delete))


def test_a_position_delete_file_without_ids_goes_by_its_names(data: Path, tmp_path: Path):
    path = write(tmp_path / "pos.parquet", pa.table({"file_path": [str(data)], "pos": [5]}))
    assert ids(context(SCHEMA), with_deletes(data, deleting.delete_file(path, key=metadata(path), record_count=1))) == left(5)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b[:60] + bytes([b[60] ^ 1]) + b[61:]])
@pytest.mark.parametrize("kind", ["positions", "equality"])
def test_a_damaged_parquet_delete_file_lets_no_row_through(data: Path, tmp_path: Path, damage: Any, kind: str):
    path = tmp_path / "deletes.parquet"
    if kind == "positions":
        delete = deleting.positions(path, [(data, 1)])
    else:
        columns = Schema(SCHEMA.fields[0])
        delete = deleting.equality(path, rows_table(columns, [{"id": 1}]), columns)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises((IntegrityError, FormatError), match=r"deletes\.parquet"):
        read(context(SCHEMA), with_deletes(data, delete))


def test_delete_files_in_orc_are_refused_before_anything_is_read(data: Path, tmp_path: Path):
    delete = dataclasses.replace(deleting.positions(tmp_path / "pos.parquet", [(data, 1)]), file_format="ORC")
    with pytest.raises(PolicyError, match=r"pos\.parquet is in ORC"):
        read_task(context(SCHEMA), with_deletes(data, delete))


# Equality deletes

NAN = math.nan
T0 = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
KINDS: list[tuple[Any, list[Any]]] = [
    (ice.BooleanType(), [None, True, False]),
    (ice.IntegerType(), [None, -1, 0, 2**31 - 1]),
    (ice.FloatType(), [None, NAN, -0.0, 0.0, 0.5]),
    (ice.DoubleType(), [None, NAN, -0.0, 0.0, 0.1]),
    (ice.StringType(), [None, "", "a", "é"]),
    (ice.BinaryType(), [None, b"", b"\x00"]),
    (ice.FixedType(2), [None, b"ab", b"ba"]),
    (ice.DecimalType(38, 2), [None, Decimal("0.00"), Decimal("-1.29")]),
    (ice.DateType(), [None, dt.date(1969, 12, 31)]),
    (ice.TimeType(), [None, dt.time(0, 0, 0, 1)]),
    (ice.TimestamptzType(), [None, T0, T0 + dt.timedelta(microseconds=1)]),
    (ice.UUIDType(), [None, uuid.UUID(int=0).bytes, uuid.UUID(int=2**128 - 1).bytes]),
]


def same(a: Any, b: Any) -> bool:
    """Equal as Java's StructLikeSet: null and NaN equal themselves, zeros differ by sign."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda p: str(p) if not isinstance(p, list) else "")
def test_each_value_of_each_type_deletes_itself_and_nothing_else(tmp_path: Path, kind: Any, values: list[Any]):
    schema = Schema(opt(1, "id", ice.LongType()), opt(2, "v", kind))
    path = write(tmp_path / "data.parquet", rows_table(schema, [{"id": i, "v": value} for i, value in enumerate(values)]))
    columns = Schema(schema.fields[1])
    for value in values:
        delete = deleting.equality(tmp_path / "eq.parquet", rows_table(columns, [{"v": value}]), columns)
        one = task(path, key=metadata(path), record_count=len(values), deletes=(delete,))
        assert ids(context(schema), one) == [i for i, other in enumerate(values) if not same(value, other)]


PAIRS = st.lists(
    st.tuples(st.none() | st.integers(-1, 2), st.sampled_from([None, "a", "b"]), st.sampled_from([None, NAN, 0.0, -0.0, 1.0])), max_size=12
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PAIRS, PAIRS, st.integers(1, 12))
def test_rows_equal_in_all_columns_are_found_whatever_the_sizes(rows: list[Any], deleted: list[Any], batch: int):
    types = (pa.int64(), pa.string(), pa.float64())

    def keys(of: list[Any]) -> list[pa.Array]:
        columns = [pa.array([row[i] for row in of], kind, from_pandas=False) for i, kind in enumerate(types)]
        return [key for column in columns for key in _keys(column)]

    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        found = equal_rows(keys(part), keys(deleted))
        expected = [any(all(same(a, b) for a, b in zip(row, gone, strict=True)) for gone in deleted) for row in part]
        assert (expected if any(expected) else None) == (None if found is None else found.to_pylist())


def test_columns_need_not_be_selected_and_deletes_work_together(data: Path, tmp_path: Path):
    by_name = Schema(SCHEMA.fields[1])
    both = Schema(*SCHEMA.fields)
    deletes = (
        deleting.equality(tmp_path / "a.parquet", rows_table(by_name, [{"name": "n3"}, {"name": "absent"}]), by_name),
        deleting.equality(tmp_path / "b.parquet", rows_table(by_name, [{"name": "n5"}]), by_name),
        deleting.equality(tmp_path / "c.parquet", rows_table(both, [{"id": 1, "name": "n1"}, {"id": 2, "name": "n1"}]), both),
        deleting.vector(tmp_path / "dv.puffin", data, [0]),
    )
    expected = [i for i in range(ROWS) if i % 7 not in (3, 5) and i not in (0, 1)]
    only_id = context(Schema(SCHEMA.fields[0]), table_schema=SCHEMA)
    assert ids(only_id, with_deletes(data, *deletes)) == expected
    filtered = context(Schema(SCHEMA.fields[0]), GreaterThanOrEqual("id", 990), table_schema=SCHEMA)
    assert ids(filtered, with_deletes(data, *deletes)) == [i for i in expected if i >= 990]
    assert count_task(context(Schema(), table_schema=SCHEMA), with_deletes(data, *deletes)) == len(expected)


def test_many_deleted_values_are_matched_in_small_batches(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("icelock.arrow.read.stored_file.BATCH_ROWS", 10)
    columns = Schema(*SCHEMA.fields)
    gone = [{"id": i, "name": f"n{i % 7}"} for i in range(-5000, ROWS, 2)]
    delete = deleting.equality(tmp_path / "eq.parquet", rows_table(columns, gone), columns)
    assert ids(context(SCHEMA), with_deletes(data, delete)) == list(range(1, ROWS, 2))


def test_a_renamed_and_promoted_column_is_matched_by_id(tmp_path: Path):
    old = Schema(opt(1, "id", ice.IntegerType()), opt(2, "f", ice.FloatType()))
    now = Schema(opt(1, "key", ice.LongType()), opt(2, "d", ice.DoubleType()))
    path = write(tmp_path / "data.parquet", rows_table(old, [{"id": i, "f": i / 10} for i in range(5)]))
    wide = Schema(opt(1, "key", ice.LongType()))
    narrow = deleting.equality(tmp_path / "old.parquet", rows_table(Schema(old.fields[0]), [{"id": 3}]), wide)
    new = deleting.equality(tmp_path / "new.parquet", rows_table(wide, [{"key": 1}, {"key": 2**40}]), wide)
    one = task(path, key=metadata(path), record_count=5, deletes=(narrow, new))
    assert read(context(now), one).column("key").to_pylist() == [0, 2, 4]


def test_a_dropped_column_is_compared_all_the_same(data: Path, tmp_path: Path):
    """The table has only id now; another column has the dropped one's name."""
    now = Schema(opt(1, "id", ice.LongType()), opt(9, "name", ice.StringType()))
    dropped = Schema(SCHEMA.fields[1])
    delete = deleting.equality(tmp_path / "eq.parquet", rows_table(dropped, [{"name": "n0"}]), dropped)
    assert ids(context(now), with_deletes(data, delete)) == [i for i in range(ROWS) if i % 7]


def test_a_column_that_the_data_file_lacks_has_its_initial_default_or_null(data: Path, tmp_path: Path):
    for default, value, hit in ((None, None, True), (7, 7, True), (7, None, False)):
        added = opt(3, "extra", ice.IntegerType()).model_copy(update={"initial_default": default})
        now = Schema(*SCHEMA.fields, added)
        columns = Schema(added)
        delete = deleting.equality(tmp_path / "eq.parquet", rows_table(columns, [{"extra": value}]), columns)
        assert ids(context(now), with_deletes(data, delete)) == ([] if hit else left())


def test_a_partition_value_stands_for_a_column_that_is_not_in_the_file(data: Path, tmp_path: Path):
    schema = Schema(*SCHEMA.fields, opt(3, "region", ice.StringType()))
    spec = PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="region"), spec_id=4)
    columns = Schema(schema.fields[2])
    delete = deleting.equality(tmp_path / "eq.parquet", rows_table(columns, [{"region": "eu"}]), columns)
    for region, expected in (("eu", []), ("us", left())):
        one = with_deletes(data, delete, spec_id=4, partition=(region,))
        assert ids(context(schema, specs={4: spec}), one) == expected


def test_a_null_struct_is_not_a_struct_with_a_null(tmp_path: Path):
    """Java compares the struct on the way, too."""
    struct = opt(2, "st", ice.StructType(opt(3, "x", ice.IntegerType()), opt(4, "y", ice.IntegerType())))
    schema = Schema(opt(1, "id", ice.LongType()), struct)
    path = write(tmp_path / "data.parquet", rows_table(schema, [{"id": i, "st": v} for i, v in enumerate([None, {"x": None}, {"x": 1}])]))
    columns = Schema(opt(2, "st", ice.StructType(opt(3, "x", ice.IntegerType()))))
    for value, expected in ((None, [1, 2]), ({"x": None}, [0, 2]), ({"x": 1}, [0, 1])):
        delete = deleting.equality(tmp_path / "eq.parquet", rows_table(columns, [{"st": value}]), columns, equality_ids=(3,))
        assert ids(context(schema), task(path, key=metadata(path), record_count=3, deletes=(delete,))) == expected


def test_equality_deletes_in_avro_are_read(data: Path, tmp_path: Path):
    schema = {"type": "record", "name": "table", "fields": [{"name": "id", "type": ["null", "long"], "default": None, "field-id": 1}]}
    path = tmp_path / "eq.avro"
    key = deleting.ags1(path, deleting.avro_bytes(schema, [{"id": 3}, {"id": None}]))
    columns = (SCHEMA.fields[0].model_dump_json(),)
    delete = deleting.delete_file(path, key=key, file_format="AVRO", content=2, record_count=2, equality_ids=(1,), equality_columns=columns)
    assert ids(context(SCHEMA), with_deletes(data, delete)) == left(3)


def test_an_equality_delete_file_without_rows_deletes_none(data: Path, tmp_path: Path):
    columns = Schema(SCHEMA.fields[0])
    delete = deleting.equality(tmp_path / "eq.parquet", rows_table(columns, []), columns)
    assert ids(context(SCHEMA), with_deletes(data, delete)) == left()


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"equality_ids": None}, FormatError, "does not say which columns it compares"),
        ({"equality_ids": ()}, FormatError, "does not say which columns it compares"),
        ({"record_count": 5}, IntegrityError, "has 1 deletes, its manifest entry says 5"),
        ({"equality_ids": (2,), "equality_columns": (SCHEMA.fields[1].model_dump_json(),)}, FormatError, "lacks column 'name'"),
    ],
)
def test_an_equality_delete_file_that_does_not_hold_what_it_should_is_refused(
    data: Path, tmp_path: Path, changed: dict[str, Any], error: type[Exception], says: str
):
    columns = Schema(SCHEMA.fields[0])
    delete = deleting.equality(tmp_path / "eq.parquet", rows_table(columns, [{"id": 1}]), columns)
    with pytest.raises(error, match=rf"eq\.parquet.*{says}"):
        read(context(SCHEMA), with_deletes(data, dataclasses.replace(delete, **changed)))


# The cache


def test_the_cache_loads_once_for_many_threads_and_forgets_what_is_too_much():
    cache, loads = DeleteCache(most_bytes=100), []

    def load(name: str, size: int) -> Any:
        return lambda: (loads.append(name) or name, size)

    threads = [threading.Thread(target=lambda: cache.get("a", load("a", 60))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["a"]
    cache.get("b", load("b", 60))
    cache.get("b", load("b", 60))
    cache.get("a", load("a", 60))
    cache.get("huge", load("huge", 101))
    cache.get("huge", load("huge", 101))
    assert loads == ["a", "b", "a", "huge", "huge"]
    assert MOST_BYTES == 256 << 20


def test_a_failed_load_is_not_kept():
    cache = DeleteCache()

    def fail() -> Any:
        msg = "storage is away"
        raise OSError(msg)

    for _ in range(2):
        with pytest.raises(OSError, match="storage is away"):
            cache.get("a", fail)
    assert cache.get("a", lambda: (1, 1)) == 1


def test_file_and_position_columns_are_those_of_the_data_file(data: Path, tmp_path: Path):
    delete = deleting.vector(tmp_path / "dv.puffin", data, [0])
    found = read(context(Schema(FILE, POS), EqualTo("id", 4), table_schema=SCHEMA), with_deletes(data, delete))
    assert found.to_pylist() == [{"_file": str(data), "_pos": 4}]


def test_errors_show_no_key(data: Path, tmp_path: Path):
    delete = deleting.vector(tmp_path / "dv.puffin", data, [1])
    wrong = metadata(Path(delete.path), dek=OTHER_DEK)
    with pytest.raises(IcelockError) as caught:
        read(context(SCHEMA), with_deletes(data, dataclasses.replace(delete, key_metadata=SecretBytes(wrong.encode()))))
    assert OTHER_DEK.decode() not in str(caught.value)
    assert OTHER_DEK.decode() not in repr(delete)
