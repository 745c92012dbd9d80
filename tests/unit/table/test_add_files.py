"""add_files: plain files are refused, or their rows are taken in encrypted and the files stay as they are."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icelock.errors import FormatError, KmsError, PolicyError
from icelock.table.table import Table
from tests.helpers.table_model import live_entries, verified
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, TestLake, people

SCHEMA = people().schema
BY_CITY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", SCHEMA, partition_spec=BY_CITY, properties=KEYED)
    made.append(people(0, 3))
    return made


@pytest.fixture
def outside(lake: TestLake) -> Path:
    folder = lake.folder / "outside"
    folder.mkdir()
    return folder


def plain(folder: Path, name: str, rows: pa.Table, **options: Any) -> str:
    pq.write_table(rows, folder / name, **options)
    return str(folder / name)


def test_plain_files_are_refused_with_an_offer(lake: TestLake, table: Any, outside: Path) -> None:
    path = plain(outside, "a.parquet", people(10, 5))
    before = lake.files()
    with pytest.raises(PolicyError, match="reencrypt=True"):
        table.add_files([path])
    assert lake.files() == before
    assert len(table.snapshots()) == 1


def test_a_plain_table_is_not_said_to_be_encrypted(table: Any, outside: Path) -> None:
    path = plain(outside, "a.parquet", people(10, 5))
    nothing = {"properties": {}, "encryption_keys": [], "snapshots": [], "refs": {}, "current_snapshot_id": None}
    metadata = table.metadata.model_copy(update=nothing)
    other = Table(table.name(), metadata, table.metadata_location, table.storage, table.catalog, encryption=table.encryption)
    with pytest.raises(PolicyError, match="is plain"):
        other.add_files([path])


def test_rows_are_taken_in_encrypted_in_one_snapshot(lake: TestLake, table: Any, outside: Path) -> None:
    paths = [plain(outside, "a.parquet", people(10, 5), row_group_size=2), plain(outside, "b.parquet", people(20, 500))]
    bytes_before = [Path(path).read_bytes() for path in paths]
    table.add_files(paths, {"by": "me"}, reencrypt=True)
    assert ids(table) == [*range(3), *range(10, 15), *range(20, 520)]
    assert [Path(path).read_bytes() for path in paths] == bytes_before
    assert len(table.snapshots()) == 2
    summary = table.current_snapshot().summary
    assert summary.operation.value == "append"
    assert (summary.additional_properties["by"], summary.additional_properties["added-records"]) == ("me", "505")
    assert all(entry.data_file.file_path.startswith(table.location()) for _, entry in live_entries(table))
    assert all(data[:4] in (b"PARE", b"AGS1") for name, data in lake.files().items() if not name.endswith(".metadata.json"))
    assert not any(b"canary" in data for data in lake.files().values())
    assert table.properties == KEYED, "no name mapping is set: the new files have ids"
    verified(table)


def test_to_a_branch(table: Any, outside: Path) -> None:
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "b").commit()
    table.add_files([plain(outside, "a.parquet", people(10, 2))], branch="b", reencrypt=True)
    assert ids(table) == [0, 1, 2]
    assert sorted(table.scan().use_ref("b").to_arrow()["id"].to_pylist()) == [0, 1, 2, 10, 11]


def test_columns_go_by_field_ids_or_else_by_names(lake: TestLake, outside: Path) -> None:
    """Renamed since: the ids of one file, the name mapping for the other. Columns in another order, one missing, narrower types."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "city", StringType()))
    table = lake.catalog().create_table("db.m", schema, properties=KEYED)
    with table.transaction() as tx:
        tx.set_properties({"schema.name-mapping.default": schema.name_mapping.model_dump_json()})
        with tx.update_schema() as update:
            update.rename_column("name", "who")
    with_ids = pa.schema(
        [pa.field("city", pa.string(), metadata={"PARQUET:field_id": "3"}), pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "1"})]
    )
    paths = [
        plain(outside, "ids.parquet", pa.table({"city": ["c"], "id": pa.array([1], pa.int32())}, schema=with_ids)),
        plain(outside, "names.parquet", pa.table({"name": ["n"], "id": pa.array([2], pa.int32())})),
        plain(outside, "new.parquet", pa.table({"who": pa.array(["w"], pa.large_string()), "id": [3]})),
    ]
    table.add_files(paths, reencrypt=True)
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == [
        {"id": 1, "who": None, "city": "c"},
        {"id": 2, "who": "n", "city": None},
        {"id": 3, "who": "w", "city": None},
    ]


def test_what_does_not_fit_is_refused_and_nothing_is_written(lake: TestLake, table: Any, outside: Path) -> None:
    good = plain(outside, "good.parquet", people(10, 2))
    (outside / "text.parquet").write_text("not Parquet, and long enough to look at its end")
    own = next(entry.data_file.file_path for _, entry in live_entries(table))
    cases: list[tuple[type[Exception], str, list[str]]] = [
        (PolicyError, "given more than once", [good, good]),
        (PolicyError, "in the table already", [own]),
        (PolicyError, "lacks: extra", [good, plain(outside, "extra.parquet", people(1, 1).append_column("extra", pa.array([1])))]),
        (FileNotFoundError, "none.parquet", [good, str(outside / "none.parquet")]),
        (FormatError, "text.parquet", [good, str(outside / "text.parquet")]),
        (FormatError, "id", [good, plain(outside, "type.parquet", pa.table({"id": ["text"]}))]),
    ]
    before = lake.files()
    for error, match, paths in cases:
        with pytest.raises(error, match=match):
            table.add_files(paths, reencrypt=True)
        assert lake.files() == before, match
    assert len(lake.catalog().load_table("db.t").snapshots()) == 1


def test_a_required_column_must_be_there(lake: TestLake, outside: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType(), required=True))
    table = lake.catalog().create_table("db.r", schema, properties=KEYED)
    before = lake.files()
    with pytest.raises(PolicyError, match="lacks required columns: name"):
        table.add_files([plain(outside, "a.parquet", pa.table({"id": [1]}))], reencrypt=True)
    with pytest.raises(FormatError, match="name"):
        table.add_files([plain(outside, "b.parquet", pa.table({"id": [1], "name": pa.array([None], pa.string())}))], reencrypt=True)
    assert lake.files() == before


def test_a_kms_that_is_out_writes_nothing(lake: TestLake, table: Any, outside: Path) -> None:
    path = plain(outside, "a.parquet", people(10, 2))
    before = lake.files()
    lake.calls.deny("unwrap")
    with pytest.raises(KmsError):
        lake.catalog().load_table("db.t").add_files([path], reencrypt=True)
    assert lake.files() == before
    lake.calls.deny("")
    table.add_files([path], reencrypt=True)
    assert ids(table) == [0, 1, 2, 10, 11]


def test_views_of_text_and_lists_are_taken_in(lake: TestLake, outside: Path) -> None:
    schema = pa.schema([("s", pa.string()), ("l", pa.list_(pa.string()))])
    table = lake.catalog().create_table("db.views", schema, properties=KEYED)
    texts = pa.array(["a", None], pa.string_view())
    lists = [["x", None], None]
    for number, kind in enumerate((pa.list_view(pa.string_view()), pa.large_list_view(pa.large_string()))):
        path = plain(outside, f"{number}.parquet", pa.table([texts, pa.array(lists, kind)], ["s", "l"]))
        table.add_files([path], reencrypt=True)
    assert table.scan().to_arrow().to_pydict() == {"s": ["a", None] * 2, "l": lists * 2}


def with_ids(rows: pa.Table, *ids: int | None) -> pa.Table:
    fields = [
        field.with_metadata(None if number is None else {"PARQUET:field_id": str(number)})
        for field, number in zip(rows.schema, ids, strict=True)
    ]
    return rows.cast(pa.schema(fields))


def taken_in(table: Any, path: str) -> list[dict[str, Any]]:
    table.add_files([path], reencrypt=True)
    return [row for row in table.scan().to_arrow().to_pylist() if row["id"] >= 10]


def test_the_ids_of_another_table_are_not_followed(table: Any, outside: Path) -> None:
    """That table has the city before the name: its ids would put cities into names."""
    rows = people(10, 2).select(["id", "city", "name"])
    expected = people(10, 2).to_pylist()
    assert taken_in(table, plain(outside, "swapped.parquet", with_ids(rows, 1, 2, 3))) == expected
    table.delete("id >= 10")
    unknown = with_ids(people(10, 2).rename_columns(["id", "label", "town"]), 1, 2, 3)
    with pytest.raises(PolicyError, match="columns that the table lacks: label, town"):
        table.add_files([plain(outside, "unknown.parquet", unknown)], reencrypt=True)
    assert taken_in(table, plain(outside, "far.parquet", with_ids(rows, 11, 12, 13))) == expected


def test_ids_of_a_column_that_was_renamed_are_followed(table: Any, outside: Path) -> None:
    """A file of this table, from when the column was called so; a rename that gave the name to another column leaves it open."""
    path = plain(outside, "old.parquet", with_ids(people(10, 1), 1, 2, 3))
    with table.update_schema() as update:
        update.rename_column("name", "label")
    assert taken_in(table, path) == [{"id": 10, "label": "canary-00010", "city": "town-1"}]
    with table.update_schema() as update:
        update.add_column("name", StringType())
    with pytest.raises(PolicyError, match="column 'name' with field id 2: that column once had this name"):
        table.add_files([path], reencrypt=True)
    assert ids(table) == [0, 1, 2, 10]


def nested(lake: TestLake, name: str, **fields: pa.DataType) -> Any:
    return lake.catalog().create_table(f"db.{name}", pa.schema(list(fields.items())), properties=KEYED)


def test_ids_within_columns(lake: TestLake, outside: Path) -> None:
    point = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    table = nested(lake, "points", id=pa.int64(), p=point)
    swapped = pa.struct(
        [pa.field("y", pa.int64(), metadata={"PARQUET:field_id": "3"}), pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "4"})]
    )
    rows = pa.table(
        {"id": pa.array([10], pa.int64()), "p": pa.array([{"y": 2, "x": 1}], pa.struct([("y", pa.int64()), ("x", pa.int64())]))}
    )
    kinds = pa.schema(
        [pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}), pa.field("p", swapped, metadata={"PARQUET:field_id": "2"})]
    )
    assert taken_in(table, plain(outside, "points.parquet", rows.cast(kinds))) == [{"id": 10, "p": {"x": 1, "y": 2}}]


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (pa.table({"id": ["x"], "name": ["n"], "city": ["c"]}), FormatError, "'id' .* stored as string"),
        (pa.table({"id": [1], "ID": [2], "name": ["n"]}), PolicyError, "columns that the table lacks: ID"),
        (with_ids(people(0, 1), 1, 2, None), PolicyError, "columns that the table lacks: city"),
        (with_ids(people(0, 1), 2, 2, 3), FormatError, "field id 2 twice"),
        (pa.table({"id": [1], "name": [{"a": 1}], "city": ["c"]}), PolicyError, "lacks: name.a"),
    ],
    ids=["type", "case", "no id", "twice", "struct"],
)
def test_files_that_do_not_fit_are_refused_before_anything_is_written(  # noqa: PLR0913 - three of them fixtures
    lake: TestLake, table: Any, outside: Path, rows: pa.Table, error: type[Exception], message: str
) -> None:
    good, bad = plain(outside, "a.parquet", people(10, 5)), plain(outside, "b.parquet", rows)
    before = lake.files()
    with pytest.raises(error, match=message):
        table.add_files([good, bad], reencrypt=True)
    assert lake.files() == before
    assert ids(table) == [0, 1, 2]


def test_one_file_by_two_spellings_is_given_twice(table: Any, outside: Path) -> None:
    path = plain(outside, "a.parquet", people(10, 5))
    for spelt in (f"file://{path}", f"file:{path}", str(outside / ".." / "outside" / "a.parquet")):
        with pytest.raises(PolicyError, match="given more than once"):
            table.add_files([path, spelt], reencrypt=True)


def test_a_file_without_rows_adds_none(table: Any, outside: Path) -> None:
    table.add_files([plain(outside, "a.parquet", people(0, 0)), plain(outside, "b.parquet", people(10, 1))], reencrypt=True)
    assert ids(table) == [0, 1, 2, 10]


def test_int96_of_far_years(lake: TestLake, outside: Path) -> None:
    """Nanoseconds end in 1677 and 2262; INT96 has no such end, and microseconds reach to the year 294247."""
    table = nested(lake, "times", id=pa.int64(), t=pa.timestamp("us", "UTC"), ts=pa.list_(pa.timestamp("us", "UTC")))
    moments = [datetime(year, 6, 1, 12, 30, 0, 123456, tzinfo=UTC) for year in (1, 1500, 1677, 1969, 2262, 2300, 9999)]
    rows = pa.table(
        {
            "id": range(10, 17),
            "t": pa.array(moments, pa.timestamp("us")),
            "ts": pa.array([[m] for m in moments], pa.list_(pa.timestamp("us"))),
        }
    )
    path = plain(outside, "far.parquet", rows, use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.ParquetFile(path).schema.column(1).physical_type == "INT96"
    found = taken_in(table, path)
    assert [row["t"] for row in found] == moments
    assert [row["ts"] for row in found] == [[moment] for moment in moments]


@pytest.mark.parametrize("column", ["t", "ts"])
def test_int96_that_microseconds_cannot_hold_is_refused(lake: TestLake, outside: Path, column: str) -> None:
    """Day 2**32 - 1 of the Julian calendar, in the file's own bytes: Arrow's microseconds run over without an error."""
    table = nested(lake, "times", id=pa.int64(), t=pa.timestamp("us", "UTC"), ts=pa.list_(pa.timestamp("us", "UTC")))
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    far = pa.scalar(moment, pa.timestamp("us"))
    rows = pa.table({"id": [10], "t": pa.array([far]), "ts": pa.array([[far]], pa.list_(pa.timestamp("us")))})
    path = Path(plain(outside, "far.parquet", rows, use_deprecated_int96_timestamps=True, store_schema=False, compression=None))
    day = (2_460_311).to_bytes(4, "little")  # 2024-01-01, astronomers say
    found = path.read_bytes()
    where = [i for i in range(len(found)) if found[i : i + 12] == bytes(8) + day]
    assert len(where) >= 2
    chosen = where[0] if column == "t" else where[-1]
    path.write_bytes(found[:chosen] + bytes(8) + b"\xff\xff\xff\xff" + found[chosen + 12 :])
    files = lake.files()
    with pytest.raises(FormatError, match="INT96 timestamp"):
        table.add_files([str(path)], reencrypt=True)
    assert lake.files() == files
    assert table.scan().count() == 0


NAIVE, ZONED = datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 12, tzinfo=UTC)  # noqa: DTZ001 - one without a zone
OTHER_TYPES: dict[str, tuple[pa.DataType, pa.Array]] = {
    "a zone made up": (pa.timestamp("us", "UTC"), pa.array([NAIVE], pa.timestamp("us"))),
    "a zone dropped": (pa.timestamp("us"), pa.array([ZONED], pa.timestamp("us", "UTC"))),
    "a date for a time": (pa.timestamp("us"), pa.array([NAIVE.date()], pa.date32())),
    "bytes for text": (pa.string(), pa.array([b"x"], pa.binary())),
    "text for bytes": (pa.binary(), pa.array(["x"], pa.string())),
    "another scale": (pa.decimal128(9, 3), pa.array([1], pa.decimal128(9, 2))),
}


@pytest.mark.parametrize("what", list(OTHER_TYPES))
@pytest.mark.parametrize("inside", [False, True], ids=["column", "list"])
def test_types_that_an_append_refuses_are_refused(lake: TestLake, outside: Path, what: str, inside: bool) -> None:  # noqa: FBT001
    """One rule for rows, however they come."""
    kind, values = OTHER_TYPES[what]
    if inside:
        kind, values = pa.list_(kind), pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), values)
    table = nested(lake, "other", v=kind)
    rows = pa.table({"v": values})
    with pytest.raises(PolicyError, match="does not fit the table"):
        table.append(rows)
    before = lake.files()
    with pytest.raises((PolicyError, FormatError), match=r"does not fit the table: column 'v|cannot be read as"):
        table.add_files([plain(outside, "other.parquet", rows)], reencrypt=True)
    assert lake.files() == before
