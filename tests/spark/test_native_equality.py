"""Equality deletes on Spark's own reader: rows worked out by hand, and those that Java and the Arrow engine read."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg import types as ice
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyspark.sql import functions as F  # noqa: N812

import icelock.spark
from icelock.errors import IcelockError, PolicyError
from icelock.metadata.manifest import DataFile
from icelock.spark.native.scan import native_read
from icelock.table.commit.row_delta import Change
from icelock.table.read.scan import DataScan
from tests.golden.relocate import RelocatingFileIO
from tests.golden.rows import rows, sorted_json
from tests.golden.test_java_deletes import FILTERS, HERE, expected, open_table
from tests.lakes.sqlite import KEYED

pytestmark = pytest.mark.spark

TABLE = "test.db.t"
PEOPLE = Schema(
    ice.NestedField(1, "id", ice.LongType(), required=True),
    ice.NestedField(2, "n", ice.IntegerType(), required=False),
    ice.NestedField(3, "s", ice.StringType(), required=False),
)


class Fixed:
    """A change that is the same on each attempt."""

    def __init__(self, change):
        self._change = change

    def resolve(self):
        return self._change

    def obsolete(self):
        return []


def commit(table, *files):
    with table.transaction() as tx:
        tx.staged.prepare_kek()
        with tx.update_snapshot().overwrite() as producer:
            producer.apply(Fixed(Change(deletes=files)))
    return table.refresh()


def keys(**columns):
    """Deleted values; each column is ``(field id, Arrow type, values)``."""
    fields = [pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()}) for name, (number, kind, _) in columns.items()]
    return pa.Table.from_arrays([pa.array(v, k) for _, k, v in columns.values()], schema=pa.schema(fields))


def ids(*values):
    return keys(id=(1, pa.int64(), values))


def entry(table, name, deleted, *, spec_id=0, partition=(), **fields):
    """Write an equality delete file with pyarrow alone and return its entry."""
    location = f"{table.location()}/data/{name}.parquet"
    key = table.io.manager.mint_file_key()
    properties = pe.create_encryption_properties(footer_key=key.dek.reveal(), aad_prefix=key.aad_prefix, store_aad_prefix=False)
    with table.storage.new_output(location).create() as stream:
        pq.write_table(deleted, stream, encryption_properties=properties, store_schema=False)
    size = len(table.storage.new_input(location))
    values = {
        "content": DataFileContent.EQUALITY_DELETES,
        "file_path": location,
        "file_format": FileFormat.PARQUET,
        "partition": Record(*partition),
        "record_count": deleted.num_rows,
        "file_size_in_bytes": size,
        "key_metadata": key.closed(size).encode(),
        "equality_ids": [int(field.metadata[b"PARQUET:field_id"]) for field in deleted.schema],
    }
    file = DataFile.from_args(**{**values, **fields})
    file.spec_id = spec_id
    return file


def people(first, last):
    numbers = range(first, last)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "n": pa.array([None if i % 5 == 4 else i % 3 for i in numbers], pa.int32()),
            "s": pa.array([None if i % 7 == 6 else f"town-{i % 4}" for i in numbers]),
        },
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("s", pa.string())]),
    )


def make(lake, schema=PEOPLE, **more):
    return lake.catalog().create_table("db.t", schema, properties=KEYED, **more)


def read(spark, **options):
    return icelock.spark.read(spark, TABLE, engine="native", **options)


def read_ids(spark, **options):
    return sorted(row.id for row in read(spark, **options).collect())


def same_as_arrow(spark, table):
    """Floats by their text, so that NaN is itself and -0.0 is not 0.0; UUIDs are text in Spark."""
    by_arrow = table.refresh().scan().to_arrow().to_pylist()
    texts = [{name: str(value) if isinstance(value, uuid.UUID) else value for name, value in row.items()} for row in by_arrow]
    assert sorted(map(repr, read(spark).toArrow().to_pylist())) == sorted(map(repr, texts))


def plan(frame):
    """The plan that runs, as text."""
    return frame._sc._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "formatted")


def test_each_delete_file_removes_older_rows_by_its_own_columns(spark, spark_lake):
    """By hand: 16 rows of three files, and a fourth that comes after some of the deletes."""
    table = make(spark_lake)
    for first in (0, 10):
        table.append(people(first, first + 10))
    commit(table, entry(table, "e1", ids(1, 2, 11, 99)))
    table.append(people(1, 3))
    commit(table, entry(table, "e2", keys(s=(3, pa.string(), ["town-3", None]))))
    by_two = keys(n=(2, pa.int32(), [None, 0, 0]), id=(1, pa.int64(), [4, 0, 8]))
    table = commit(table, entry(table, "e3", by_two), entry(table, "e4", ids(18)))
    table.append(people(18, 20))
    # s is town-3 for 3, 7, 11, 15, 19 and null for 6, 13; n is null for 4, 0 for 0, 2 for 8.
    left = [0, 1, 2, 5, 8, 9, 10, 12, 14, 16, 17, 18, 19]
    wanted = sorted(set(left) - {0} | {19})
    assert read_ids(spark) == wanted
    same_as_arrow(spark, table)
    assert read(spark).count() == len(wanted)
    assert read(spark).filter("n is null").count() == sum(1 for i in wanted if i % 5 == 4)


def test_the_compared_columns_need_not_be_read(spark, spark_lake):
    table = make(spark_lake)
    table.append(people(0, 10))
    table = commit(table, entry(table, "e1", ids(1, 2)), entry(table, "e2", keys(s=(3, pa.string(), ["town-3"]))))
    frame = read(spark, columns=["n"])
    assert frame.columns == ["n"]
    left = [i for i in range(10) if i not in (1, 2, 3, 7)]
    wanted = sorted((None if i % 5 == 4 else i % 3 for i in left), key=str)
    assert sorted((row.n for row in frame.collect()), key=str) == wanted
    assert read(spark, columns=["n"], row_filter="s = 'town-0'").count() == 3
    assert frame.count() == 6
    assert read(spark, columns=["_file"]).select(F.count("*")).first()[0] == 6


def test_rows_that_a_delete_is_too_old_for_stay_among_many_deletes(spark, spark_lake, monkeypatch):
    """10 files of two ids, after each a delete of all ids before the second: one row is left, and what is written again."""
    table = make(spark_lake)
    for number in range(10):
        table.append(people(number, number + 2))
        table = commit(table, entry(table, f"e{number}", ids(*range(number + 1))))
    assert read_ids(spark) == [10]
    table.append(people(0, 3))
    assert read_ids(spark) == [0, 1, 2, 10]
    same_as_arrow(spark, table)
    monkeypatch.setattr("icelock.spark.native.equality._BROADCAST_ROWS", 0)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        assert "SortMergeJoin" in plan(read(spark))
        assert read_ids(spark) == [0, 1, 2, 10]
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


ONE = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
STAMP = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - without a zone
ZONED = STAMP.replace(tzinfo=dt.UTC)
NAN_BITS = float.fromhex("0x1p0") * -math.nan
KINDS = {
    "double NaN": (ice.DoubleType(), pa.float64(), [0.0, -0.0, math.nan, None], [NAN_BITS], [2]),
    "double zeros": (ice.DoubleType(), pa.float64(), [0.0, -0.0, math.nan, None], [-0.0], [1]),
    "double null": (ice.DoubleType(), pa.float64(), [0.0, -0.0, math.nan, None], [None, 0.0], [0, 3]),
    "double": (ice.DoubleType(), pa.float64(), [0.1, 5e-324, math.inf, 2e-3], [5e-324, math.inf, math.nextafter(0.1, 1), 0.002], [1, 2, 3]),
    "float": (ice.FloatType(), pa.float32(), [0.1, -0.0, math.nan, 1.5], [0.1, 0.0, math.nan], [0, 2]),
    "boolean": (ice.BooleanType(), pa.bool_(), [True, False, None], [False], [1]),
    "int": (ice.IntegerType(), pa.int32(), [0, -1, None], [-1, 7], [1]),
    "decimal": (ice.DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("1.20"), Decimal("-0.01"), None], [Decimal("1.20"), None], [0, 2]),
    "long decimal": (ice.DecimalType(38, 10), pa.decimal128(38, 10), [Decimal("12345678901234567890.5"), Decimal(1)], [Decimal(1)], [1]),
    "date": (ice.DateType(), pa.date32(), [dt.date(1969, 12, 31), dt.date(1500, 1, 1)], [dt.date(1500, 1, 1)], [1]),
    "timestamp": (ice.TimestampType(), pa.timestamp("us"), [STAMP, None], [STAMP], [0]),
    "timestamptz": (
        ice.TimestamptzType(),
        pa.timestamp("us", "UTC"),
        [STAMP.replace(tzinfo=dt.UTC), None],
        [STAMP.replace(tzinfo=dt.UTC)],
        [0],
    ),
    "string": (ice.StringType(), pa.string(), ["a", "A", "a ", "é𝄞", ""], ["a", "é𝄞", ""], [0, 3, 4]),
    "binary": (ice.BinaryType(), pa.binary(), [b"", b"\x00\xff", None], [b"\x00\xff", b""], [0, 1]),
    "fixed": (ice.FixedType(3), pa.binary(3), [b"abc", b"abd", None], [b"abd"], [1]),
    "uuid": (ice.UUIDType(), pa.binary(16), [ONE.bytes, bytes(16), None], [ONE.bytes], [0]),
}


@pytest.mark.spark43
def test_values_are_compared_as_the_arrow_engine_compares_them(spark, spark_lake):
    """One column a kind; each delete file removes rows of one part of the table, whose other columns are null.

    Each kind has the stored values, the deleted ones, and which of the stored ones are gone.
    """
    fields = [ice.NestedField(2 + i, f"c{i}", kind, required=False) for i, (kind, *_) in enumerate(KINDS.values())]
    table = make(spark_lake, Schema(*PEOPLE.fields[:1], *fields))
    left, values, deletes = [], [], []
    for i, (_, arrow, stored, deleted, gone) in enumerate(KINDS.values()):
        values += [{"id": 100 * i + j, f"c{i}": value} for j, value in enumerate(stored)]
        only = keys(**{f"c{i}": (2 + i, arrow, deleted)}, id=(1, pa.int64(), [0] * len(deleted)))
        # The id is part of what is compared, so that a null of another part is not meant.
        each = [only.set_column(1, only.schema.field(1), pa.array([100 * i + j] * len(deleted), pa.int64())) for j in range(len(stored))]
        deletes.append(entry(table, f"e{i}", pa.concat_tables(each)))
        left += [100 * i + j for j in range(len(stored)) if j not in gone]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(f"c{i}", k[1]) for i, k in enumerate(KINDS.values()))])
    table.append(pa.Table.from_pylist(values, schema))
    table = commit(table, *deletes)
    assert read_ids(spark) == left
    same_as_arrow(spark, table)
    assert read_ids(spark, columns=["id"]) == left


def test_a_delete_in_a_partition_is_of_that_partition_and_one_without_is_of_all(spark, spark_lake):
    by_n = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    table = make(spark_lake, partition_spec=by_n)
    table.append(people(0, 20))
    every = keys(s=(3, pa.string(), ["town-0"]))
    table = commit(table, entry(table, "e1", every, partition=(0,)), entry(table, "e2", ids(4, 5), partition=(None,)))
    # n is 0 for 0, 3, 6, 12, 15, 18 of which 0 and 12 are of town-0; null for 4, 9, 14, 19.
    left = sorted(set(range(20)) - {0, 12, 4})
    assert read_ids(spark) == left
    with table.update_spec() as update:
        update.remove_field("n")
    table = spark_lake.catalog().load_table("db.t")
    table.append(people(0, 2))
    on_constant = keys(n=(2, pa.int32(), [2, None]), id=(1, pa.int64(), [8, 9]))
    table = commit(table, entry(table, "e3", ids(1, 16), spec_id=1), entry(table, "e4", on_constant, spec_id=1))
    left = sorted([*set(left) - {1, 16, 8, 9}, 0])
    assert read_ids(spark) == left
    same_as_arrow(spark, table)
    assert read_ids(spark, columns=["id", "_spec_id"]) == left
    assert read(spark).filter("n = 2").count() == sum(1 for i in left if i % 3 == 2 and i % 5 != 4)


def test_uuid_partitions(spark, spark_lake):
    """The plan has a partition's UUID as text, the delete file as bytes."""
    by_u = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "u"))
    table = make(spark_lake, Schema(PEOPLE.fields[0], ice.NestedField(2, "u", ice.UUIDType(), required=False)), partition_spec=by_u)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("u", pa.binary(16))])
    table.append(pa.table({"id": [1, 2, 3, 4], "u": [ONE.bytes, ONE.bytes, None, bytes(16)]}, schema=schema))
    deleted = keys(id=(1, pa.int64(), [1, 3]), u=(2, pa.binary(16), [ONE.bytes, ONE.bytes]))
    partition = next(t.partition for t in table.scan().scan_tasks() if t.partition != (None,) and t.record_count == 2)
    table = commit(table, entry(table, "e1", deleted, partition=partition))
    assert read_ids(spark) == [2, 3, 4]
    same_as_arrow(spark, table)


def test_renamed_promoted_and_dropped_columns(spark, spark_lake):
    table = make(spark_lake)
    table.append(people(0, 10))
    old = keys(n=(2, pa.int32(), [2]), s=(3, pa.string(), ["town-0"]))
    table = commit(table, entry(table, "e1", old))
    with table.update_schema() as update:
        update.update_column("n", ice.LongType())
        update.rename_column("n", "number")
        update.delete_column("s")
    with table.update_schema() as update:
        update.add_column("m", ice.StringType())
    table = commit(table, entry(table, "e2", keys(number=(2, pa.int64(), [None]), id=(1, pa.int64(), [4]))))
    # n is 2 and s town-0 for 8.
    assert read_ids(spark) == [0, 1, 2, 3, 5, 6, 7, 9]
    same_as_arrow(spark, table)


def test_a_default_of_rows_that_are_older_than_the_column_is_compared(spark, spark_lake):
    table = make(spark_lake)
    table.append(people(0, 4))
    with table.update_schema() as update:
        update.add_column("kind", ice.StringType(), default_value="x'y")
    table = spark_lake.catalog().load_table("db.t")
    table.append(people(4, 6).append_column("kind", pa.array(["x'y", None])))
    table = commit(table, entry(table, "e1", keys(kind=(4, pa.string(), ["x'y"]), id=(1, pa.int64(), [2]))))
    assert read_ids(spark) == [0, 1, 3, 4, 5]
    assert read_ids(spark, columns=["id"]) == [0, 1, 3, 4, 5]
    table = commit(table, entry(table, "e2", keys(kind=(4, pa.string(), ["x'y"]))))
    assert read_ids(spark) == [5]
    same_as_arrow(spark, table)


def test_positions_and_metadata_columns(spark, spark_lake):
    table = make(spark_lake)
    table.append(people(0, 10))
    with table.transaction() as tx:
        tx.set_properties({"write.delete.mode": "merge-on-read"})
    table.delete("id in (0, 5)")
    table = commit(table, entry(table, "e1", ids(3, 4, 5)))
    found = read(spark, columns=["id", "_pos", "_row_id", "_last_updated_sequence_number", "_file", "_spec_id"]).collect()
    assert sorted((row.id, row._pos, row._row_id, row._last_updated_sequence_number) for row in found) == [
        (i, i, i, 1) for i in (1, 2, 6, 7, 8, 9)
    ]
    assert {(row._file, row._spec_id) for row in found} == {(table.scan().scan_tasks()[0].path, 0)}


def test_filters_prune_files_and_go_into_them_through_the_join(spark, spark_lake):
    table = make(spark_lake)
    for first in (0, 100, 200):
        table.append(people(first, first + 100))
    table = commit(table, entry(table, "e1", ids(1, 150, 250)))
    frame = read(spark).filter("id >= 140 and id < 160")
    assert sorted(row.id for row in frame.collect()) == [i for i in range(140, 160) if i != 150]
    text = plan(frame)
    assert re.search(r"PushedFilters: \[[^\]]*GreaterThanOrEqual\(id,140\)[^\]]*LessThan\(id,160\)", text)
    assert "BroadcastHashJoin" in text
    assert "LeftAnti" in text
    tasks = {task.path: task for task in table.scan().scan_tasks()}
    middle = [path for path, task in tasks.items() if task.first_row_id == 100]
    others = [path for path in tasks if path not in middle]
    for path in others:
        Path(path.removeprefix("file://")).rename(path.removeprefix("file://") + ".away")
    assert frame.count() == 19
    assert read(spark).filter("id = 150").count() == 0


def test_queries_on_one_frame_and_a_join_with_itself(spark, spark_lake):
    table = make(spark_lake)
    table.append(people(0, 10))
    table.append(people(10, 20))
    commit(table, entry(table, "e1", ids(1, 11)))
    frame = read(spark)
    assert frame.count() == 18
    assert frame.filter("id < 5").count() == 4
    joined = frame.alias("a").join(frame.filter("id > 8").alias("b"), F.col("a.id") == F.col("b.id") - 1)
    assert sorted(row[0] for row in joined.select("a.id").collect()) == [8, 9, *range(12, 19)]
    assert frame.count() == 18


def test_files_without_equality_deletes_are_read_without_a_join(spark, spark_lake):
    by_n = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    table = make(spark_lake, partition_spec=by_n)
    table.append(people(0, 20))
    assert "Join" not in plan(read(spark))
    commit(table, entry(table, "e1", ids(0), partition=(0,)))
    text = plan(read(spark))
    assert text.split("\n\n")[0].count("Join") == 1
    assert "Union" in text


def test_no_key_is_to_be_seen(spark, spark_lake):
    table = make(spark_lake)
    table.append(people(0, 10))
    deleted = entry(table, "e1", ids(1))
    commit(table, deleted)
    frame = read(spark)
    frame.collect()
    execution = frame._jdf.queryExecution()
    texts = [plan(frame), execution.toString(), execution.optimizedPlan().toJSON(), execution.executedPlan().toJSON()]
    dek = deleted.key_metadata[2:18]
    assert len(deleted.key_metadata) > 34
    for form in (dek.hex(), str(list(dek)), str([b - 256 if b > 127 else b for b in dek])):
        assert not any(form[1:-1].lower() in text.lower() for text in texts)


@pytest.mark.parametrize("kind", ["nested", "avro"])
def test_other_deletes_are_left_to_the_data_source(spark, spark_lake, kind):
    nested = ice.NestedField(2, "p", ice.StructType(ice.NestedField(3, "x", ice.IntegerType(), required=False)), required=False)
    table = make(spark_lake, Schema(PEOPLE.fields[0], nested))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("p", pa.struct([("x", pa.int32())]))])
    table.append(pa.table({"id": [1, 2, 3], "p": [{"x": 1}, {"x": None}, None]}, schema=schema))
    later = pa.table({"id": [4], "p": [{"x": 1}]}, schema=schema)
    if kind == "nested":
        x = pa.field("x", pa.int32(), metadata={b"PARQUET:field_id": b"3"})
        p = pa.field("p", pa.struct([x]), metadata={b"PARQUET:field_id": b"2"})
        deleted = pa.Table.from_arrays([pa.array([{"x": 1}], p.type)], schema=pa.schema([p]))
        table = commit(table, entry(table, "e1", deleted, equality_ids=[3]))
        table.append(later)
        assert sorted(row.id for row in icelock.spark.read(spark, TABLE).collect()) == [2, 3, 4]
    else:
        table = commit(table, entry(table, "e1", ids(1), file_format=FileFormat.AVRO))
    with pytest.raises(PolicyError, match="cannot be read by Spark's own reader alone"):
        read(spark)


DAMAGE = {
    "missing": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a bit": lambda path: path.write_bytes(_flipped(path.read_bytes(), 40)),
    "another file": lambda path: path.write_bytes((path.parent / "other.parquet").read_bytes()),
}


def _flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.turns(3)
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("when", ["before", "after a query"])
def test_a_damaged_delete_file_lets_no_row_through(spark, spark_lake, damage, when):
    table = make(spark_lake)
    table.append(people(0, 10))
    table = commit(table, entry(table, "e1", ids(1, 2)))
    entry(table, "other", ids(8, 9))
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = read(spark)
        if when != "before":
            assert frame.count() == 8
        (path,) = spark_lake.warehouse.rglob("e1.parquet")
        DAMAGE[damage](path)
        with pytest.raises((IcelockError, FileNotFoundError)):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.parametrize(
    ("deleted", "fields", "message"),
    [
        (ids(1, 2), {"record_count": 3}, "has 2 deletes, its manifest entry says 3"),
        (ids(1, 2), {"equality_ids": [3]}, r"lacks column 's' \(id 3\)"),
        (keys(id=(1, pa.string(), ["1"])), {}, "is stored as string, which cannot be read as long"),
    ],
)
def test_a_delete_file_that_is_not_what_its_entry_says_is_refused(spark, spark_lake, deleted, fields, message):
    """Spark would read nulls for a column that is not there, and let all rows through."""
    table = make(spark_lake)
    table.append(people(0, 10))
    commit(table, entry(table, "e1", deleted, **fields))
    with pytest.raises(IcelockError, match=message):
        read(spark).collect()


@pytest.fixture
def java(monkeypatch):
    """The golden table as it lies in the repository, for a JVM that knows no relocating FileIO."""
    relocating = RelocatingFileIO({"golden.root": str(HERE)})
    planned = DataScan.scan_tasks

    def moved(file, **more):
        return replace(file, path=str(relocating.local_path(file.path)), **more)

    def delete(file):
        return moved(file, referenced_data_file=file.referenced_data_file and str(relocating.local_path(file.referenced_data_file)))

    def scan_tasks(scan):
        return [moved(task, deletes=tuple(map(delete, task.deletes))) for task in planned(scan)]

    monkeypatch.setattr(DataScan, "scan_tasks", scan_tasks)
    return open_table("eq_parquet")


def test_rows_that_java_deleted(spark, java):
    """Partitions, NaN, -0.0 and null, two columns, a dropped, a renamed and a promoted column, global deletes, deletion vectors."""
    wanted = expected("eq_parquet")
    found = native_read(spark, java.scan(), "t", require_native=True)
    assert not found.rest
    assert rows(found.rows.toArrow()) == sorted_json(wanted["rows"])
    columns = ("id", "_row_id", "_last_updated_sequence_number")
    lineage = native_read(spark, java.scan(selected_fields=columns), "t", require_native=True).rows.collect()
    assert sorted(list(row) for row in lineage) == sorted(wanted["row_lineage"])
    for row_filter, matches in FILTERS:
        found = native_read(spark, java.scan(row_filter=row_filter), "t", require_native=True)
        assert rows(found.rows.toArrow()) == sorted_json([row for row in wanted["rows"] if matches(row)])
