"""Schema evolution: fields are matched by id at every level, and what a file lacks is made up as the spec says."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.expressions import EqualTo, IsNull, NotEqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import BucketTransform, IdentityTransform

from icelock.arrow.read.file_schema import file_fields
from icelock.arrow.read.project import FileColumns, Projection
from icelock.arrow.types import output_schema
from icelock.errors import FormatError
from icelock.io.parquet import ParquetInput
from icelock.metadata.metadata_columns import LAST_UPDATED, ROW_ID
from tests.unit.arrow.support import context, metadata, opt, read, rows_table, task, write

OLD = Schema(
    ice.NestedField(1, "id", ice.IntegerType(), required=True),
    opt(2, "old", ice.StringType()),
    ice.NestedField(
        3,
        "st",
        ice.StructType(opt(4, "a", ice.IntegerType()), opt(5, "b", ice.StringType())),
        required=False,
    ),
    ice.NestedField(
        6,
        "li",
        ice.ListType(7, ice.StructType(opt(8, "x", ice.IntegerType()), opt(9, "y", ice.StringType())), element_required=False),
        required=False,
    ),
    ice.NestedField(
        10,
        "m",
        ice.MapType(11, ice.StringType(), 12, ice.StructType(opt(13, "v", ice.IntegerType())), value_required=False),
        required=False,
    ),
)
OLD_ROWS = [
    {"id": 1, "old": "o", "st": {"a": 1, "b": "b"}, "li": [{"x": 1, "y": "y"}, None], "m": [("k", {"v": 1}), ("n", None)]},
    {"id": 2, "old": None, "st": None, "li": None, "m": None},
    {"id": 3, "old": "p", "st": {"a": None, "b": None}, "li": [], "m": []},
]


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    return write(tmp_path / "old.parquet", rows_table(OLD, OLD_ROWS))


def test_renamed_reordered_dropped_promoted_and_added_fields_at_every_level(old_file: Path):
    new = Schema(
        ice.NestedField(
            6,
            "list",
            ice.ListType(7, ice.StructType(opt(9, "x", ice.StringType()), opt(20, "n", ice.LongType())), element_required=False),
            required=False,
        ),
        ice.NestedField(1, "key", ice.LongType(), required=True),
        ice.NestedField(
            3,
            "st",
            ice.StructType(opt(5, "a", ice.StringType()), opt(4, "b", ice.LongType()), opt(21, "c", ice.DateType())),
            required=False,
        ),
        ice.NestedField(
            10,
            "m",
            ice.MapType(11, ice.StringType(), 12, ice.StructType(opt(13, "w", ice.LongType())), value_required=False),
            required=False,
        ),
        opt(22, "id", ice.StringType()),
    )
    assert read(context(new), task(old_file, key=metadata(old_file))).to_pylist() == [
        {
            "list": [{"x": "y", "n": None}, None],
            "key": 1,
            "st": {"a": "b", "b": 1, "c": None},
            "m": [("k", {"w": 1}), ("n", None)],
            "id": None,
        },
        {"list": None, "key": 2, "st": None, "m": None, "id": None},
        {"list": [], "key": 3, "st": {"a": None, "b": None, "c": None}, "m": [], "id": None},
    ]


REBUILT = Schema(
    opt(2, "new", ice.StringType()),
    ice.NestedField(3, "st", ice.StructType(opt(5, "b2", ice.StringType()), opt(4, "a2", ice.LongType())), required=False),
    ice.NestedField(
        6,
        "li",
        ice.ListType(7, ice.StructType(opt(9, "y2", ice.StringType()), opt(8, "x2", ice.LongType())), element_required=False),
        required=False,
    ),
    ice.NestedField(
        10, "m", ice.MapType(11, ice.StringType(), 12, ice.StructType(opt(13, "v2", ice.LongType())), value_required=False), required=False
    ),
)


@pytest.mark.parametrize("batch_rows", [1, 2, 3])
@pytest.mark.parametrize("row_filter", [None, NotEqualTo("old", "o"), IsNull("old")])
def test_small_batches_of_rebuilt_nested_columns_join_to_the_whole(old_file: Path, monkeypatch: pytest.MonkeyPatch, batch_rows, row_filter):
    scan = context(REBUILT, row_filter, table_schema=OLD)
    one = task(old_file, key=metadata(old_file))
    whole = read(scan, one).to_pylist()
    monkeypatch.setattr("icelock.arrow.read.stored_file.BATCH_ROWS", batch_rows)
    assert read(scan, one).to_pylist() == whole
    assert len(whole) == {None: 3, "NotEqualTo": 1, "IsNull": 1}[row_filter and type(row_filter).__name__]


def test_slices_are_projected_like_the_whole(old_file: Path):
    """Arrow hands out arrays with offsets; the rebuilt ones must mean the same rows."""
    with ParquetInput(context(OLD).io.new_input(str(old_file)), metadata(old_file)) as source:
        columns = FileColumns(location="f", fields=file_fields(source.schema, None, location="f"), constants={})
        batch = next(source.batches(0, source.leaf_paths(range(source.metadata.num_columns)), 100))
        projection = Projection(REBUILT, output_schema(REBUILT), columns)
        whole = projection.apply(batch).to_pylist()
        for start in range(3):
            for length in range(4 - start):
                part = projection.apply(batch.slice(start, length))
                part.validate(full=True)
                assert part.to_pylist() == whole[start : start + length]


def test_two_columns_that_swapped_names_keep_their_values(tmp_path: Path):
    old = Schema(ice.NestedField(1, "s", ice.StructType(opt(2, "a", ice.IntegerType()), opt(3, "b", ice.IntegerType())), required=False))
    new = Schema(ice.NestedField(1, "s", ice.StructType(opt(3, "a", ice.IntegerType()), opt(2, "b", ice.IntegerType())), required=False))
    path = write(tmp_path / "f.parquet", rows_table(old, [{"s": {"a": 1, "b": 2}}]))
    assert read(context(new), task(path, key=metadata(path))).to_pylist() == [{"s": {"a": 2, "b": 1}}]


def test_a_struct_of_added_fields_only_keeps_its_nulls(old_file: Path):
    new = Schema(
        ice.NestedField(3, "st", ice.StructType(opt(30, "new", ice.LongType())), required=False),
        ice.NestedField(6, "li", ice.ListType(7, ice.StructType(opt(31, "new", ice.LongType())), element_required=False), required=False),
        ice.NestedField(
            10,
            "m",
            ice.MapType(11, ice.StringType(), 12, ice.StructType(opt(32, "new", ice.LongType())), value_required=False),
            required=False,
        ),
    )
    assert read(context(new), task(old_file, key=metadata(old_file))).to_pylist() == [
        {"st": {"new": None}, "li": [{"new": None}, None], "m": [("k", {"new": None}), ("n", None)]},
        {"st": None, "li": None, "m": None},
        {"st": {"new": None}, "li": [], "m": []},
    ]


def test_added_nested_columns_are_null(old_file: Path):
    new = Schema(
        ice.NestedField(1, "id", ice.IntegerType(), required=True),
        ice.NestedField(40, "l", ice.ListType(41, ice.StringType(), element_required=True), required=False),
        ice.NestedField(42, "m", ice.MapType(43, ice.StringType(), 44, ice.UUIDType(), value_required=True), required=False),
        ice.NestedField(45, "s", ice.StructType(ice.NestedField(46, "u", ice.UUIDType(), required=True)), required=False),
    )
    assert read(context(new), task(old_file, key=metadata(old_file))).to_pylist()[0] == {"id": 1, "l": None, "m": None, "s": None}


def test_initial_defaults_fill_what_a_file_lacks_at_every_level(old_file: Path):
    """Forms of JSON defaults as in format.md: decimal and timestamp text, binary hex."""
    fields = [
        {"id": 50, "name": "l", "type": "long", "required": True, "initial-default": 9},
        {"id": 51, "name": "b", "type": "boolean", "required": False, "initial-default": False},
        {"id": 52, "name": "s", "type": "string", "required": False, "initial-default": ""},
        {"id": 53, "name": "dec", "type": "decimal(9, 2)", "required": False, "initial-default": "1.27"},
        {"id": 54, "name": "ts", "type": "timestamptz", "required": False, "initial-default": "2024-01-02T03:04:05+00:00"},
        {"id": 55, "name": "bin", "type": "binary", "required": False, "initial-default": "00FF"},
        {"id": 56, "name": "d", "type": "date", "required": False, "initial-default": "2024-01-02"},
        {"id": 57, "name": "u", "type": "uuid", "required": False, "initial-default": "f79c3e09-677c-4bbd-a479-3f349cb785e7"},
        {
            "id": 3,
            "name": "st",
            "required": False,
            "type": {"type": "struct", "fields": [{"id": 58, "name": "in", "type": "int", "required": True, "initial-default": 5}]},
        },
    ]
    new = Schema.model_validate({"type": "struct", "schema-id": 1, "fields": fields})
    first, second, _ = read(context(new), task(old_file, key=metadata(old_file))).to_pylist()
    assert first == {
        "l": 9,
        "b": False,
        "s": "",
        "dec": Decimal("1.27"),
        "ts": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "bin": b"\x00\xff",
        "d": dt.date(2024, 1, 2),
        "u": uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        "st": {"in": 5},
    }
    assert second["st"] is None


def test_a_required_field_without_default_is_an_error_that_names_it(old_file: Path):
    new = Schema(ice.NestedField(60, "must", ice.LongType(), required=True))
    with pytest.raises(FormatError, match=r"old\.parquet lacks required field 'must' \(id 60\)"):
        read(context(new), task(old_file, key=metadata(old_file)))
    nested = Schema(ice.NestedField(3, "st", ice.StructType(ice.NestedField(61, "must", ice.LongType(), required=True)), required=False))
    with pytest.raises(FormatError, match=r"lacks required field 'st\.must' \(id 61\)"):
        read(context(nested), task(old_file, key=metadata(old_file)))


def test_a_null_in_a_required_column_is_an_error(old_file: Path):
    new = Schema(ice.NestedField(2, "old", ice.StringType(), required=True))
    with pytest.raises(FormatError, match=r"required field 'old' \(id 2\) has 1 nulls"):
        read(context(new), task(old_file, key=metadata(old_file)))


def test_identity_partition_values_fill_missing_columns_and_meet_the_filter(old_file: Path):
    new = Schema(
        ice.NestedField(1, "id", ice.IntegerType(), required=True),
        ice.NestedField(70, "day", ice.DateType(), required=True),
        opt(71, "at", ice.TimestamptzType()),
        opt(72, "amount", ice.DecimalType(9, 2)),
        opt(73, "u", ice.UUIDType()),
        opt(74, "flag", ice.BooleanType()),
        opt(75, "raw", ice.BinaryType()),
        opt(76, "none", ice.StringType()),
        opt(77, "bucketed", ice.LongType()),
    )
    value = uuid.UUID(int=3)
    spec = PartitionSpec(
        *(PartitionField(70 + i, 1000 + i, IdentityTransform(), f"p{i}") for i in range(7)),
        PartitionField(77, 1007, BucketTransform(4), "bucket"),
        spec_id=2,
    )
    one = task(
        old_file,
        key=metadata(old_file),
        spec_id=2,
        partition=(19723, 1, Decimal("-1.29"), value, False, b"\x01", None, 3),
    )
    expected = {
        "day": dt.date(2024, 1, 1),
        "at": dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
        "amount": Decimal("-1.29"),
        "u": value,
        "flag": False,
        "raw": b"\x01",
        "none": None,
        "bucketed": None,
    }
    rows = read(context(new, specs={2: spec}), one).to_pylist()
    assert rows == [{"id": i, **expected} for i in (1, 2, 3)]
    assert read(context(new, EqualTo("day", dt.date(2024, 1, 1)), specs={2: spec}), one).num_rows == 3
    assert read(context(new, NotEqualTo("amount", Decimal("-1.29")), specs={2: spec}), one).num_rows == 0
    assert read(context(new, IsNull("bucketed"), specs={2: spec}), one).num_rows == 3


def test_a_stored_column_wins_over_the_partition_value(old_file: Path):
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=2)
    one = task(old_file, key=metadata(old_file), spec_id=2, partition=("other",))
    rows = read(context(Schema(opt(2, "old", ice.StringType())), specs={2: spec}), one)
    assert rows.column("old").to_pylist() == ["o", None, "p"]


def test_partition_values_of_a_spec_that_the_table_lacks_are_refused(old_file: Path):
    with pytest.raises(FormatError, match=r"old\.parquet has 1 partition values, which do not fit partition spec 9"):
        read(context(OLD), task(old_file, key=metadata(old_file), spec_id=9, partition=("x",)))


def _without_ids(rows: list[dict[str, object]]) -> pa.Table:
    table = rows_table(OLD, rows)
    return pa.Table.from_pylist(rows, pa.schema([pa.field(field.name, _bare(field.type)) for field in table.schema]))


def _bare(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, _bare(field.type)) for field in arrow])
    if pa.types.is_large_list(arrow):
        return pa.list_(_bare(arrow.value_type))
    if pa.types.is_map(arrow):
        return pa.map_(_bare(arrow.key_type), _bare(arrow.item_type))
    return arrow


def test_a_file_without_ids_is_read_through_the_name_mapping(tmp_path: Path):
    path = write(tmp_path / "f.parquet", _without_ids(OLD_ROWS))
    mapping = create_mapping_from_schema(OLD)
    assert read(context(OLD, name_mapping=mapping), task(path, key=metadata(path))).to_pylist() == OLD_ROWS


def test_a_file_without_ids_is_refused_without_a_mapping(tmp_path: Path):
    path = write(tmp_path / "f.parquet", _without_ids(OLD_ROWS))
    with pytest.raises(FormatError, match=r"f\.parquet has no field ids, and its table has no name mapping"):
        read(context(OLD), task(path, key=metadata(path)))


def test_an_element_without_id_is_an_error_and_not_null(tmp_path: Path):
    """Java gives null for nested columns without ids, without an error."""
    arrow = pa.schema([pa.field("li", pa.list_(pa.int32()), metadata={"PARQUET:field_id": "6"})])
    path = write(tmp_path / "f.parquet", pa.table([pa.array([[1]], pa.list_(pa.int32()))], arrow))
    schema = Schema(ice.NestedField(6, "li", ice.ListType(7, ice.IntegerType(), element_required=False), required=False))
    with pytest.raises(FormatError, match=r"f\.parquet: 'li\.element' has id 7, but in the file \[None\]"):
        read(context(schema), task(path, key=metadata(path)))


def test_two_fields_with_one_id_are_refused(tmp_path: Path):
    ids = {"PARQUET:field_id": "1"}
    path = write(
        tmp_path / "f.parquet",
        pa.table([[1], [2]], pa.schema([pa.field("a", pa.int32(), metadata=ids), pa.field("b", pa.int32(), metadata=ids)])),
    )
    with pytest.raises(FormatError, match=r"f\.parquet has field id 1 twice \('a', 'b'\)"):
        read(context(Schema(opt(1, "a", ice.IntegerType()))), task(path, key=metadata(path)))


LINEAGE = Schema(ice.NestedField(1, "id", ice.IntegerType(), required=True), ROW_ID, LAST_UPDATED)


def test_row_lineage_is_inherited_by_position_and_kept_where_it_is_stored(tmp_path: Path):
    schema = Schema(ice.NestedField(1, "id", ice.IntegerType(), required=True))
    path = write(tmp_path / "f.parquet", rows_table(schema, [{"id": i} for i in range(10)]), row_group_size=3)
    one = task(path, key=metadata(path), first_row_id=100, sequence_number=7)
    table = read(context(LINEAGE, EqualTo("id", 8), table_schema=schema), one)
    assert table.to_pylist() == [{"id": 8, "_row_id": 108, "_last_updated_sequence_number": 7}]
    stored = [
        {"id": 0, "_row_id": 5, "_last_updated_sequence_number": None},
        {"id": 1, "_row_id": None, "_last_updated_sequence_number": 2},
    ]
    path = write(tmp_path / "g.parquet", rows_table(LINEAGE, stored))
    one = task(path, key=metadata(path), first_row_id=100, sequence_number=7)
    assert read(context(LINEAGE), one).to_pylist() == [
        {"id": 0, "_row_id": 5, "_last_updated_sequence_number": 7},
        {"id": 1, "_row_id": 101, "_last_updated_sequence_number": 2},
    ]


def test_row_lineage_of_a_file_from_before_row_ids_is_null(old_file: Path):
    table = read(context(LINEAGE), task(old_file, key=metadata(old_file), sequence_number=7))
    assert table.column("_row_id").null_count == table.column("_last_updated_sequence_number").null_count == 3


def test_row_lineage_is_null_without_first_row_id_even_where_it_is_stored(tmp_path: Path):
    """Java's ParquetValueReaders.rowIds and lastUpdated read nulls then."""
    path = write(tmp_path / "f.parquet", rows_table(LINEAGE, [{"id": 0, "_row_id": 5, "_last_updated_sequence_number": 3}]))
    found = read(context(LINEAGE), task(path, key=metadata(path), sequence_number=7))
    assert found.to_pylist() == [{"id": 0, "_row_id": None, "_last_updated_sequence_number": None}]
