"""Avro data files written by fastavro in AGS1 streams by the reference encoder: types, evolution, filters, strictness."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.expressions import EqualTo, GreaterThan, IsNull, Or
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.transforms import IdentityTransform

from icelock.arrow.read.task import count_task, read_task
from icelock.errors import FormatError, IcelockError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.metadata.metadata_columns import LAST_UPDATED, POS, ROW_ID
from icelock.plan.task import ScanTask
from tests.unit.arrow.deleting import ags1, avro_bytes, vector
from tests.unit.arrow.support import OTHER_DEK, CountingIO, context, metadata, opt, read, task

BLOCK = (1 << 20) + 28
UTC = dt.UTC
STAMP = dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
NAIVE = STAMP.replace(tzinfo=None)
MICROS = 1_704_164_645_000_006


def record(*fields: tuple[str, int | None, Any], name: str = "table") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": kind} | ({} if i is None else {"field-id": i}) for n, i, kind in fields],
    }


def maybe(kind: Any) -> list[Any]:
    return ["null", kind]


def written(path: Path, schema: dict[str, Any], rows: list[dict[str, Any]], **fields: Any) -> ScanTask:
    """An encrypted Avro file and its task."""
    key = ags1(path, avro_bytes(schema, rows))
    return task(path, key=key, **{"file_format": "AVRO", "record_count": len(rows), **fields})


def values(tmp_path: Path, kind: Any, stored: Any, of: list[Any]) -> list[Any]:
    """What one column of ``kind`` gives when it is stored as the Avro type ``stored``."""
    one = written(tmp_path / "f.avro", record(("v", 1, stored)), [{"v": value} for value in of])
    found: list[Any] = read(context(Schema(opt(1, "v", kind))), one).column("v").to_pylist()
    return found


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
FIXED16 = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
DECIMAL5 = {"type": "fixed", "name": "decimal_10_2", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2}
DECIMALS = [Decimal("0.00"), Decimal("1.27"), Decimal("1.28"), Decimal("-1.29"), Decimal("99999999.99"), None]


@pytest.mark.parametrize(
    ("kind", "stored", "given", "out"),
    [
        (ice.BooleanType(), maybe("boolean"), [True, False, None], None),
        (ice.IntegerType(), maybe("int"), [-(2**31), 0, None], None),
        (ice.LongType(), maybe("long"), [-(2**63), 2**63 - 1, None], None),
        (ice.LongType(), maybe("int"), [-1, None], None),
        (ice.FloatType(), maybe("float"), [0.5, float("-inf"), None], None),
        (ice.DoubleType(), maybe("float"), [0.5, None], None),
        (ice.DoubleType(), maybe("double"), [0.1, None], None),
        (ice.StringType(), maybe("string"), ["", "é𝄞", None], None),
        (ice.BinaryType(), maybe("bytes"), [b"", b"\x00\xff", None], None),
        (ice.FixedType(2), maybe({"type": "fixed", "name": "fixed_2", "size": 2}), [b"ab", None], None),
        (ice.DecimalType(10, 2), maybe(DECIMAL5), DECIMALS, None),
        (ice.DecimalType(10, 2), maybe(logical("bytes", "decimal", precision=10, scale=2)), DECIMALS, None),
        (ice.DecimalType(38, 2), maybe(DECIMAL5), DECIMALS, None),
        (ice.DateType(), maybe(logical("int", "date")), [dt.date(1969, 12, 31), dt.date(9999, 12, 31), None], None),
        (ice.TimeType(), maybe(logical("long", "time-micros")), [dt.time(23, 59, 59, 999999), None], None),
        (ice.TimeType(), maybe(logical("int", "time-millis")), [dt.time(1, 2, 3, 4000), None], None),
        (ice.TimestamptzType(), maybe(logical("long", "timestamp-micros", **{"adjust-to-utc": True})), [STAMP, None], None),
        (ice.TimestamptzType(), maybe(logical("long", "timestamp-micros")), [STAMP, None], None),
        (ice.TimestampType(), maybe(logical("long", "timestamp-micros", **{"adjust-to-utc": False})), [MICROS, None], [NAIVE, None]),
        (ice.TimestampType(), maybe(logical("long", "timestamp-micros")), [MICROS, None], [NAIVE, None]),
        (ice.TimestampType(), maybe(logical("long", "local-timestamp-micros")), [NAIVE, None], None),
        (ice.TimestamptzType(), maybe(logical("long", "timestamp-millis")), [STAMP.replace(microsecond=5000), None], None),
        (ice.TimestampNanoType(), maybe(logical("long", "timestamp-nanos")), [MICROS * 1000, None], [NAIVE, None]),
        (ice.TimestamptzNanoType(), maybe(logical("long", "timestamp-nanos", **{"adjust-to-utc": True})), [MICROS * 1000], [STAMP]),
        (ice.UUIDType(), maybe(FIXED16), [UUID.bytes, None], [UUID, None]),
        (ice.UUIDType(), maybe(logical("string", "uuid")), [UUID, None], None),
        (ice.StringType(), "string", ["required"], None),
        (ice.StringType(), ["string", "null"], ["null comes second", None], None),
        (ice.StringType(), {"type": "string"}, ["spelt out"], None),
        (ice.UnknownType(), "null", [None, None], None),
    ],
)
def test_each_type_comes_out_as_it_went_in(tmp_path: Path, kind: Any, stored: Any, given: list[Any], out: list[Any] | None):
    assert values(tmp_path, kind, stored, given) == (given if out is None else out)


@pytest.mark.parametrize("ticks", [-(2**63), 2**63 - 1, -62_135_596_800_000_001])
def test_timestamps_that_python_has_no_value_for_are_read(tmp_path: Path, ticks: int):
    schema = record(("v", 1, logical("long", "timestamp-micros", **{"adjust-to-utc": False})))
    # fastavro has no such datetime, so the number is written, and the header says timestamp.
    data = avro_bytes(record(("v", 1, "long")), [{"v": ticks}], codec="null")
    key = ags1(tmp_path / "g.avro", _with_schema(data, schema))
    found = read(context(Schema(opt(1, "v", ice.TimestampType()))), task(tmp_path / "g.avro", key=key, file_format="AVRO", record_count=1))
    assert found.column("v").cast(pa.int64()).to_pylist() == [ticks]


def _with_schema(data: bytes, schema: dict[str, Any]) -> bytes:
    """Exchange the schema in an Avro file's header."""
    blocks = list(fastavro.block_reader(io.BytesIO(data)))
    head = json.dumps(schema).encode()

    def long(value: int) -> bytes:
        out, value = b"", value * 2
        while value > 127:
            out += bytes([value & 127 | 128])
            value >>= 7
        return out + bytes([value])

    body = b"".join(long(b.num_records) + long(len(b.bytes_.getvalue())) + b.bytes_.getvalue() + bytes(16) for b in blocks)
    return b"Obj\x01" + long(1) + long(11) + b"avro.schema" + long(len(head)) + head + long(0) + bytes(16) + body


NESTED = record(
    ("id", 1, "long"),
    ("st", 2, maybe(record(("x", 3, maybe("int")), ("in", 4, maybe(record(("w", 5, maybe("double")), name="r4"))), name="r2"))),
    ("li", 6, maybe({"type": "array", "element-id": 7, "items": maybe(record(("p", 8, maybe("long")), name="r7"))})),
    ("m", 9, maybe({"type": "map", "key-id": 10, "value-id": 11, "values": maybe("long")})),
    (
        "im",
        12,
        maybe({"type": "array", "logicalType": "map", "items": record(("key", 13, "int"), ("value", 14, maybe("string")), name="k13_v14")}),
    ),
)
NESTED_SCHEMA = Schema(
    ice.NestedField(1, "id", ice.LongType(), required=True),
    opt(2, "st", ice.StructType(opt(3, "x", ice.IntegerType()), opt(4, "in", ice.StructType(opt(5, "w", ice.DoubleType()))))),
    opt(6, "li", ice.ListType(7, ice.StructType(opt(8, "p", ice.LongType())), element_required=False)),
    opt(9, "m", ice.MapType(10, ice.StringType(), 11, ice.LongType(), value_required=False)),
    opt(12, "im", ice.MapType(13, ice.IntegerType(), 14, ice.StringType(), value_required=False)),
)
NESTED_ROWS = [
    {"id": 0, "st": None, "li": None, "m": None, "im": None},
    {"id": 1, "st": {"x": None, "in": None}, "li": [], "m": {}, "im": []},
    {
        "id": 2,
        "st": {"x": 7, "in": {"w": 0.5}},
        "li": [None, {"p": None}, {"p": 3}],
        "m": {"a": 1, "b": None},
        "im": [{"key": 5, "value": "five"}, {"key": 6, "value": None}],
    },
    {"id": 3, "st": {"x": 1, "in": {"w": None}}, "li": [{"p": 4}], "m": {"é": 2}, "im": [{"key": -1, "value": ""}]},
]


def _as_arrow(row: dict[str, Any]) -> dict[str, Any]:
    pairs = None if row["im"] is None else [(pair["key"], pair["value"]) for pair in row["im"]]
    return {**row, "m": None if row["m"] is None else list(row["m"].items()), "im": pairs}


def test_nested_values_of_every_kind_are_read(tmp_path: Path):
    found = read(context(NESTED_SCHEMA), written(tmp_path / "f.avro", NESTED, NESTED_ROWS))
    assert found.to_pylist() == [_as_arrow(row) for row in NESTED_ROWS]


def test_a_file_is_read_in_bounded_batches_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("icelock.arrow.read.stored_file.BATCH_ROWS", 100)
    monkeypatch.setattr("icelock.arrow.read.stored_file.BATCH_ROWS", 100)
    rows = [{"id": i, "s": f"s{i}"} for i in range(1001)]
    one = written(tmp_path / "f.avro", record(("id", 1, "long"), ("s", 2, "string")), rows)
    storage = CountingIO()
    scan = context(Schema(opt(1, "id", ice.LongType()), opt(2, "s", ice.StringType())), io=storage)
    batches = list(read_task(scan, one))
    assert max(batch.num_rows for batch in batches) <= 100
    assert pa.Table.from_batches(batches).to_pylist() == rows
    assert storage.seen.opened == [one.path]
    assert storage.seen.open_now == 0


def test_projection_filter_positions_and_lineage_are_those_of_parquet(tmp_path: Path):
    rows = [{"id": i, "s": None if i % 5 == 0 else f"s{i % 3}", "x": i / 2} for i in range(300)]
    schema = Schema(opt(1, "id", ice.LongType()), opt(2, "s", ice.StringType()), opt(3, "x", ice.DoubleType()))
    one = written(
        tmp_path / "f.avro",
        record(("id", 1, "long"), ("s", 2, maybe("string")), ("x", 3, "double")),
        rows,
        first_row_id=1000,
        sequence_number=4,
        deletes=(),
    )
    wanted = Schema(schema.fields[0], POS, ROW_ID, LAST_UPDATED)
    found = read(context(wanted, Or(EqualTo("s", "s1"), IsNull("s")), table_schema=schema), one).to_pylist()
    keep = [row["id"] for row in rows if row["s"] in ("s1", None)]
    assert found == [{"id": i, "_pos": i, "_row_id": 1000 + i, "_last_updated_sequence_number": 4} for i in keep]
    assert count_task(context(schema, GreaterThan("x", 100.0)), one) == 99
    assert read(context(Schema(), table_schema=schema), one).num_rows == 300


def test_stored_row_ids_go_before_inherited_ones(tmp_path: Path):
    fields = (("id", 1, "long"), ("_row_id", ROW_ID.field_id, maybe("long")), ("_last", LAST_UPDATED.field_id, maybe("long")))
    rows = [{"id": 0, "_row_id": 5, "_last": None}, {"id": 1, "_row_id": None, "_last": 2}]
    one = written(tmp_path / "f.avro", record(*fields), rows, first_row_id=100, sequence_number=7)
    found = read(context(Schema(opt(1, "id", ice.LongType()), ROW_ID, LAST_UPDATED)), one)
    assert [tuple(row.values()) for row in found.to_pylist()] == [(0, 5, 7), (1, 101, 2)]


def test_deletion_vectors_apply_to_avro_files(tmp_path: Path):
    one = written(tmp_path / "f.avro", record(("id", 1, "long")), [{"id": i} for i in range(10)])
    delete = vector(tmp_path / "dv.puffin", tmp_path / "f.avro", [0, 9])
    scan = context(Schema(opt(1, "id", ice.LongType())))
    found = read(scan, task(Path(one.path), key=metadata(Path(one.path)), file_format="AVRO", record_count=10, deletes=(delete,)))
    assert found.column("id").to_pylist() == list(range(1, 9))


def test_columns_are_matched_by_id_through_evolution(tmp_path: Path):
    """Renamed, promoted, reordered, dropped, added with and without default, and from the partition."""
    stored = record(("a", 1, "int"), ("gone", 2, "string"), ("st", 3, record(("x", 4, "int"), ("y", 5, "int"), name="r3")))
    one = written(tmp_path / "f.avro", stored, [{"a": 7, "gone": "g", "st": {"x": 1, "y": 2}}], spec_id=1, partition=("eu",))
    now = Schema(
        opt(3, "struct", ice.StructType(opt(5, "yy", ice.LongType()), opt(6, "new", ice.StringType()))),
        opt(1, "b", ice.LongType()),
        opt(7, "added", ice.IntegerType()).model_copy(update={"initial_default": 42}),
        opt(8, "region", ice.StringType()),
        opt(9, "gone", ice.StringType()),
    )
    spec = PartitionSpec(PartitionField(source_id=8, field_id=1000, transform=IdentityTransform(), name="region"), spec_id=1)
    assert read(context(now, specs={1: spec}), one).to_pylist() == [
        {"struct": {"yy": 2, "new": None}, "b": 7, "added": 42, "region": "eu", "gone": None}
    ]


def test_a_file_without_ids_goes_by_name_mapping_or_by_the_schemas_names(tmp_path: Path):
    """As Java: ProjectionDatumReader makes a mapping from the schema when there is none."""
    stored = record(("a", None, "long"), ("l", None, {"type": "array", "items": record(("p", None, "int"), name="inner")}))
    one = written(tmp_path / "f.avro", stored, [{"a": 1, "l": [{"p": 2}]}])
    schema = Schema(
        opt(1, "a", ice.LongType()), opt(2, "l", ice.ListType(3, ice.StructType(opt(4, "p", ice.IntegerType())), element_required=False))
    )
    assert read(context(schema), one).to_pylist() == [{"a": 1, "l": [{"p": 2}]}]
    mapping = NameMapping([MappedField(field_id=9, names=["a"], fields=[])])
    assert read(context(Schema(opt(9, "z", ice.LongType())), name_mapping=mapping), one).to_pylist() == [{"z": 1}]


def test_a_type_that_is_named_once_and_referred_to_is_resolved(tmp_path: Path):
    stored = record(("a", 1, maybe(DECIMAL5)), ("b", 2, maybe("decimal_10_2")))
    one = written(tmp_path / "f.avro", stored, [{"a": Decimal("1.00"), "b": Decimal("2.00")}])
    schema = Schema(opt(1, "a", ice.DecimalType(10, 2)), opt(2, "b", ice.DecimalType(10, 2)))
    assert read(context(schema), one).to_pylist() == [{"a": Decimal("1.00"), "b": Decimal("2.00")}]
    assert read(context(Schema(schema.fields[1])), one).to_pylist() == [{"b": Decimal("2.00")}]


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (record(("v", 1, ["null", "int", "string"])), "a union that is not of null and one type"),
        (record(("v", 1, {"type": "enum", "name": "e", "symbols": ["A"]})), "an unknown type 'enum'"),
        (record(("v", 1, maybe({"type": "array", "logicalType": "map", "items": "int"}))), "a map whose records"),
        (record(("v", 1, "int"), ("w", 1, "int")), "field id 1 twice"),
        ({"type": "array", "items": "int"}, "it is not a record"),
        (record(("v", 1, logical("bytes", "decimal", precision=39, scale=0))), "a decimal of 39 digits"),
        ({"type": "record", "name": "t", "fields": [{"name": "v", "type": maybe("t"), "field-id": 1}]}, "a type holds itself"),
    ],
)
def test_a_schema_that_iceberg_does_not_write_is_refused(tmp_path: Path, stored: Any, says: str):
    data = _with_schema(avro_bytes(record(("v", 1, "int")), []), stored)
    one = task(tmp_path / "f.avro", key=ags1(tmp_path / "f.avro", data), file_format="AVRO")
    with pytest.raises(FormatError, match=rf"f\.avro.*{says}"):
        read(context(Schema(opt(1, "v", ice.IntegerType()))), one)


def test_a_column_of_another_type_is_refused(tmp_path: Path):
    one = written(tmp_path / "f.avro", record(("v", 1, "string")), [{"v": "x"}])
    with pytest.raises(FormatError, match=r"f\.avro: field 'v' \(id 1\) is stored as string, which cannot be read as int"):
        read(context(Schema(opt(1, "v", ice.IntegerType()))), one)


def test_a_decimal_that_is_too_large_for_its_type_is_refused(tmp_path: Path):
    stored = record(("v", 1, "bytes"))
    data = _with_schema(
        avro_bytes(stored, [{"v": b"\x7f" * 17}], codec="null"), record(("v", 1, logical("bytes", "decimal", precision=5, scale=0)))
    )
    one = task(tmp_path / "f.avro", key=ags1(tmp_path / "f.avro", data), file_format="AVRO", record_count=1)
    with pytest.raises(FormatError, match=r"f\.avro: column 'v' has a value that is not a decimal128"):
        read(context(Schema(opt(1, "v", ice.DecimalType(5, 0)))), one)


# Strictness

BIG = record(("id", 1, "long"), ("s", 2, "string"))
BIG_SCHEMA = Schema(opt(1, "id", ice.LongType()), opt(2, "s", ice.StringType()))


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ScanTask, bytes]:
    """550 rows in three AGS1 blocks, as in J-01."""
    path = tmp_path_factory.mktemp("big") / "big.avro"
    plain = avro_bytes(BIG, [{"id": i, "s": f"{i:05}" * 1000} for i in range(550)], codec="null", interval=200_000)
    key = ags1(path, plain)
    assert 8 + 2 * BLOCK < path.stat().st_size < 8 + 3 * BLOCK
    return path, task(path, key=key, file_format="AVRO", record_count=550), path.read_bytes()


@pytest.mark.parametrize("cut", [8, 8 + BLOCK, 8 + 2 * BLOCK, 8 + BLOCK - 100, 8 + 2 * BLOCK - 100, -100, -1, 0])
def test_a_cut_stream_gives_no_row_at_all(big: tuple[Path, ScanTask, bytes], tmp_path: Path, cut: int):
    """J-01: Java returned 510 of 550 rows of a file that was cut in its last block."""
    _, one, sound = big
    path = tmp_path / "cut.avro"
    path.write_bytes(sound[:cut])
    damaged = task(path, key=metadata(length=len(sound)), file_format="AVRO", record_count=550)
    with pytest.raises((IntegrityError, FormatError), match=r"cut\.avro"):
        next(read_task(context(BIG_SCHEMA), damaged))
    assert read(context(BIG_SCHEMA), one).num_rows == 550


@pytest.mark.parametrize("fault", ["appended", "block repeated", "blocks swapped", "bit", "plain", "other key", "other file's block"])
def test_a_changed_stream_is_refused(big: tuple[Path, ScanTask, bytes], tmp_path: Path, fault: str):
    _, _, sound = big
    first, second = sound[8 : 8 + BLOCK], sound[8 + BLOCK : 8 + 2 * BLOCK]
    rest = sound[8 + 2 * BLOCK :]
    damaged = {
        "appended": sound + b"\0",
        "block repeated": sound[:8] + first + first + rest,
        "blocks swapped": sound[:8] + second + first + rest,
        "bit": sound[:-1] + bytes([sound[-1] ^ 1]),
        "plain": avro_bytes(BIG, [{"id": 1, "s": "x"}]),
        "other key": sound,
        "other file's block": b"",
    }[fault]
    path = tmp_path / "bad.avro"
    path.write_bytes(damaged)
    key = metadata(length=len(sound), dek=OTHER_DEK) if fault == "other key" else metadata(length=len(sound))
    if fault == "other file's block":
        # The same key and length, another prefix: what a swap within a table would be.
        ags1(path, avro_bytes(BIG, []), aad=b"another-prefix-1")
        other = path.read_bytes()
        path.write_bytes(sound[:8] + first + second + (other[8:] + bytes(len(rest)))[: len(rest)])
    with pytest.raises(IcelockError, match=r"bad\.avro"):
        read(context(BIG_SCHEMA), task(path, key=key, file_format="AVRO", record_count=550))


@pytest.mark.parametrize("says", [549, 551, 0])
def test_another_number_of_rows_than_the_manifest_says_is_refused(tmp_path: Path, says: int):
    one = written(tmp_path / "f.avro", record(("id", 1, "long")), [{"id": i} for i in range(550)], record_count=says)
    with pytest.raises(IntegrityError, match=rf"f\.avro has .* rows, its manifest entry says {says}"):
        next(read_task(context(Schema(opt(1, "id", ice.LongType()))), one))


def test_keys_that_are_missing_or_not_allowed_to_be_are_told(tmp_path: Path):
    """J-07 and the policy for plain files."""
    plain = tmp_path / "plain.avro"
    plain.write_bytes(avro_bytes(BIG, [{"id": 1, "s": "x"}]))
    as_plain = task(plain, key=None, file_format="AVRO", record_count=1)
    with pytest.raises(PolicyError, match=r"plain\.avro has no key metadata"):
        read_task(context(BIG_SCHEMA), as_plain)
    assert read(context(BIG_SCHEMA, allow_plaintext=True), as_plain).to_pylist() == [{"id": 1, "s": "x"}]
    encrypted = written(tmp_path / "e.avro", BIG, [{"id": 1, "s": "x"}])
    with pytest.raises(KeyUnavailableError, match=r"e\.avro is an encrypted stream"):
        read(context(BIG_SCHEMA, allow_plaintext=True), task(Path(encrypted.path), key=None, file_format="AVRO", record_count=1))
    short = task(Path(encrypted.path), key=None, file_format="AVRO", record_count=1)
    no_length = metadata(Path(encrypted.path))
    with pytest.raises(FormatError, match=r"e\.avro.*no file length"):
        read(
            context(BIG_SCHEMA),
            task(
                Path(short.path),
                key=type(no_length)(dek=no_length.dek, aad_prefix=no_length.aad_prefix, encrypted_length=None),
                file_format="AVRO",
                record_count=1,
            ),
        )


def test_files_are_closed_behind_a_scan_that_is_dropped(tmp_path: Path):
    one = written(tmp_path / "f.avro", record(("id", 1, "long")), [{"id": i} for i in range(10)])
    storage = CountingIO()
    batches = read_task(context(Schema(opt(1, "id", ice.LongType())), io=storage), one)
    assert next(batches).num_rows == 10
    batches.close()  # type: ignore[attr-defined]
    assert storage.seen.open_now == 0
