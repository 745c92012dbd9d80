"""Metadata tables in Spark SQL. Columns are those of Java Iceberg 1.12's sources and documentation, rows are worked out by hand."""

from __future__ import annotations

import itertools
import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimeType
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from icelock.errors import IntegrityError, PolicyError
from icelock.keys.entropy import SystemEntropy
from icelock.spark.sealed.splits import sealed_rows
from icelock.spark.statements import metadata_tables
from icelock.spark.task.list_files import ListPlan, manifest_split
from icelock.spark.task.list_parts import PartitionsPlan, list_deletes, merge_partitions, sum_partitions
from tests.lakes.sqlite import KEY, KEYED

pytestmark = pytest.mark.spark
# DataFile.getType, with the partition where the table has one
FILE = (
    "content:int,file_path:string,file_format:string,spec_id:int,{}record_count:bigint,file_size_in_bytes:bigint,"
    "column_sizes:map<int,bigint>,value_counts:map<int,bigint>,null_value_counts:map<int,bigint>,nan_value_counts:map<int,bigint>,"
    "lower_bounds:map<int,binary>,upper_bounds:map<int,binary>,key_metadata:binary,split_offsets:array<bigint>,equality_ids:array<int>,"
    "sort_order_id:int,first_row_id:bigint,referenced_data_file:string,content_offset:bigint,content_size_in_bytes:bigint"
)
METRICS = "column_size:bigint,value_count:bigint,null_value_count:bigint,nan_value_count:bigint,lower_bound:{0},upper_bound:{0}"
READABLE = f"readable_metrics:struct<city:struct<{METRICS.format('string')}>,id:struct<{METRICS.format('bigint')}>>"
MANIFEST = (
    "content:int,path:string,length:bigint,partition_spec_id:int,added_snapshot_id:bigint,added_data_files_count:int,"
    "existing_data_files_count:int,deleted_data_files_count:int,added_delete_files_count:int,existing_delete_files_count:int,"
    "deleted_delete_files_count:int,"
    "partition_summaries:array<struct<contains_null:boolean,contains_nan:boolean,lower_bound:string,upper_bound:string>>"
)
PARTITION_COUNTS = (
    "record_count:bigint,file_count:int,total_data_file_size_in_bytes:bigint,position_delete_record_count:bigint,"
    "position_delete_file_count:int,equality_delete_record_count:bigint,equality_delete_file_count:int,"
    "last_updated_at:timestamp,last_updated_snapshot_id:bigint"
)


def columns(partition: str = "") -> dict[str, str]:
    file = FILE.format(partition)
    files = dict.fromkeys(("files", "data_files", "delete_files", "all_files", "all_data_files", "all_delete_files"), f"{file},{READABLE}")
    entry = f"status:int,snapshot_id:bigint,sequence_number:bigint,file_sequence_number:bigint,data_file:struct<{file}>,{READABLE}"
    return {
        **files,
        "entries": entry,
        "all_entries": entry,
        "snapshots": "committed_at:timestamp,snapshot_id:bigint,parent_id:bigint,operation:string,manifest_list:string,"
        "summary:map<string,string>",
        "history": "made_current_at:timestamp,snapshot_id:bigint,parent_id:bigint,is_current_ancestor:boolean",
        "refs": "name:string,type:string,snapshot_id:bigint,max_reference_age_in_ms:bigint,min_snapshots_to_keep:int,"
        "max_snapshot_age_in_ms:bigint",
        "metadata_log_entries": "timestamp:timestamp,file:string,latest_snapshot_id:bigint,latest_schema_id:int,"
        "latest_sequence_number:bigint",
        "manifests": MANIFEST,
        "all_manifests": f"{MANIFEST},reference_snapshot_id:bigint,key_metadata:binary",
        "partitions": f"{partition}spec_id:int,{PARTITION_COUNTS}" if partition else PARTITION_COUNTS,
        "position_deletes": "file_path:string,pos:bigint,row:struct<id:bigint,city:string>,"
        f"{partition}spec_id:int,delete_file_path:string,content_offset:bigint,content_size_in_bytes:bigint",
    }


@pytest.fixture
def town(sql):
    """Table ``t``: ids 0 to 9 in one file, of which 3 and 7 are deleted by a vector; returns ``sql``."""
    sql(f"create table test.db.t (id bigint, city string) {KEY}")
    sql("alter table test.db.t set tblproperties ('write.delete.mode' = 'merge-on-read')")
    sql("insert into test.db.t select id, concat('town-', id) from range(0, 10, 1, 1)")
    sql("delete from test.db.t where id in (select explode(array(3l, 7l)))")
    return sql


@pytest.mark.spark43
def test_columns_are_javas_and_a_table_without_snapshots_has_no_rows(sql, spark):
    sql(f"create table test.db.t (id bigint, city string) {KEY}")
    sql(f"create table test.db.p (id bigint, city string) partitioned by (city) {KEY}")
    for table, partition in (("t", ""), ("p", "partition:struct<city:string>,")):
        for kind, expected in columns(partition).items():
            found = spark.table(f"test.db.{table}.{kind}")
            assert found.schema.simpleString() == f"struct<{expected}>", kind
            # the log begins with the file that the table was made by
            assert found.count() == (1 if kind == "metadata_log_entries" else 0), kind


def test_files_and_entries(town):
    data, vector = town("select content, file_format, record_count, first_row_id, content_offset from test.db.t.files order by content")
    assert data == (0, "PARQUET", 10, 0, None)
    assert vector[:4] == (1, "PUFFIN", 2, None)
    assert vector[4] == 4  # a Puffin file begins with four bytes of magic
    assert town("select value_counts[1], hex(lower_bounds[1]), hex(upper_bounds[2]) from test.db.t.data_files") == [
        (10, "0000000000000000", "746F776E2D39")  # the spec's form of bounds: 8 bytes, little-endian; UTF-8
    ]
    metrics = "readable_metrics.id.lower_bound, readable_metrics.id.upper_bound, readable_metrics.city.upper_bound"
    assert town(f"select {metrics} from test.db.t.files where content = 0") == [(0, 9, "town-9")]
    assert town(
        "select count(*) from test.db.t.delete_files where referenced_data_file in (select file_path from test.db.t.data_files)"
    ) == [(1,)]
    assert town("select status, sequence_number, file_sequence_number, data_file.content from test.db.t.entries order by 2") == [
        (1, 1, 1, 0),
        (1, 2, 2, 1),
    ]
    town("truncate table test.db.t")
    assert town("select count(*) from test.db.t.Files") == [(0,)]
    assert town("select status, count(*) from test.db.t.entries group by 1") == [(2, 2)]  # the deletion of two files
    assert town("select content, count(*) from test.db.t.all_files group by 1 order by 1") == [(0, 1), (1, 1)]
    assert town("select count(*) from test.db.t.all_entries where status = 1") == [(2,)]


@pytest.mark.spark43
def test_those_of_many_files_are_made_by_tasks(town, spark, spark_lake, monkeypatch):
    """Rows are the same, keys of manifests are neither in the plan nor in what tasks are sent, and a changed manifest is noticed."""
    town("insert into test.db.t values (11, 'town-11'), (12, 'town-12')")
    town("delete from test.db.t where id in (select explode(array(11l)))")
    kinds = ("files", "data_files", "delete_files", "entries", "all_files", "all_entries", "partitions", "position_deletes")

    def rows(kind):
        return sorted(row[0] for row in spark.table(f"test.db.t.{kind}").selectExpr("to_json(struct(*))").collect())

    expected = {kind: rows(kind) for kind in kinds}
    monkeypatch.setattr(metadata_tables, "MANY", 0)
    table = spark_lake.catalog().load_table("db.t")
    manifests = table.current_snapshot().manifests(table.io)
    for kind in kinds:
        assert rows(kind) == expected[kind], kind
        plan = spark.table(f"test.db.t.{kind}")._jdf.queryExecution().toString()
        assert "MapInArrow" in plan
        assert not any(manifest.manifest_path in plan or manifest.key_metadata.hex() in plan.lower() for manifest in manifests)
    assert town("select count(*), count(distinct delete_file_path) from test.db.t.position_deletes") == [(3, 2)]
    assert town("select file_path from test.db.t.files where readable_metrics.id.upper_bound = 12")
    sent = ListPlan.of("files", table.metadata, StructType().json(), {})
    assert not {"encryption-keys", "snapshots"} & {name for name, value in json.loads(sent.metadata).items() if value}
    damaged = Path(manifests[0].manifest_path.removeprefix("file://"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for kind in ("files", "partitions"):
        with pytest.raises(IntegrityError):
            rows(kind)


def test_what_goes_from_task_to_task_is_sealed(sql, spark_lake):
    """Sums have partition values, and what is told of delete files has their keys; both steps run here, on manifests as tasks get them."""
    sql(f"create table test.db.p (id bigint, city string) partitioned by (city) {KEY}")
    sql("alter table test.db.p set tblproperties ('write.delete.mode' = 'merge-on-read')")
    sql("insert into test.db.p select id, 'secret-town' from range(0, 4, 1, 1)")
    sql("delete from test.db.p where id in (select explode(array(1l, 2l)))")
    table = spark_lake.catalog().load_table("db.p")
    manifests = table.current_snapshot().manifests(table.io)
    (vector,) = [entry.data_file for entry in manifests[1].fetch_manifest_entry(table.io)]
    schema = StructType().add("partition", StructType().add("city", "string")).add("record_count", "long")
    plan, key = ListPlan.of("partitions", table.metadata, schema.json(), {}), bytes(32)
    sums = PartitionsPlan(listed=plan, times={})

    def given(some):
        return iter(sealed_rows(key, map(manifest_split, some), SystemEntropy()).to_batches())

    sealed = [*sum_partitions(sums, key, given(manifests))], [*list_deletes(plan, key, given(manifests[1:]))]
    for batch in itertools.chain(*sealed):
        text = repr(batch.to_pylist()).encode() + b"".join(batch.column(0).to_pylist())
        assert b"secret-town" not in text
        assert vector.key_metadata not in text
    (merged,) = merge_partitions(sums, key, iter(sealed[0]))
    assert merged.to_pylist() == [{"partition": {"city": "secret-town"}, "record_count": 4}]
    changed = pa.record_batch([pa.array([value[:-1] + bytes([value[-1] ^ 1]) for value in sealed[0][0].column(0).to_pylist()])], ["split"])
    with pytest.raises(IntegrityError):
        [*merge_partitions(sums, key, iter([changed]))]


@pytest.mark.spark43
def test_position_deletes(town, spark):
    (path,) = town("select file_path from test.db.t.data_files")[0]
    (vector, offset, size) = town("select file_path, content_offset, content_size_in_bytes from test.db.t.delete_files")[0]
    expected = [(path, position, None, 0, vector, offset, size) for position in (3, 7)]
    assert town("select * from test.db.t.position_deletes order by pos") == expected
    assert town("select pos from test.db.t.position_deletes where pos > 3") == [(7,)]
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "1")  # as if there were many
    try:
        assert town("select * from test.db.t.position_deletes order by pos") == expected
        assert town("select a.pos from test.db.t.position_deletes a join test.db.t.position_deletes b on a.pos = b.pos + 4") == [(7,)]
    finally:
        spark.conf.unset("spark.sql.execution.arrow.localRelationThreshold")


def test_snapshots_history_refs_and_the_log(town, spark_lake):
    table = spark_lake.catalog().load_table("db.t")
    first, second = table.snapshots()
    table.manage_snapshots().create_tag(first.snapshot_id, "a", max_ref_age_ms=9).create_branch(
        first.snapshot_id, "b", min_snapshots_to_keep=2, max_snapshot_age_ms=8
    ).commit()
    assert town(
        "select snapshot_id, parent_id, operation, summary['added-records'], unix_millis(committed_at) from test.db.t.snapshots"
    ) == [
        (first.snapshot_id, None, "append", "10", first.timestamp_ms),
        (second.snapshot_id, first.snapshot_id, "delete", None, second.timestamp_ms),
    ]
    assert town("select * from test.db.t.refs order by name") == [
        ("a", "TAG", first.snapshot_id, 9, None, None),
        ("b", "BRANCH", first.snapshot_id, None, 2, 8),
        ("main", "BRANCH", second.snapshot_id, None, None, None),
    ]
    table.manage_snapshots().set_current_snapshot(first.snapshot_id).commit()
    assert town("select snapshot_id, parent_id, is_current_ancestor from test.db.t.history order by made_current_at") == [
        (first.snapshot_id, None, True),
        (second.snapshot_id, first.snapshot_id, False),
        (first.snapshot_id, None, True),
    ]
    log = town("select file, latest_snapshot_id, latest_schema_id, latest_sequence_number from test.db.t.metadata_log_entries")
    assert [row[1:] for row in log] == [
        (None, None, None),  # made
        (None, None, None),  # a property
        (first.snapshot_id, 0, 1),
        (second.snapshot_id, 0, 2),
        (second.snapshot_id, 0, 2),  # refs
        (first.snapshot_id, 0, 1),
    ]
    assert log[-1][0] == spark_lake.catalog().load_table("db.t").metadata_location


def test_manifests(town):
    counts = "added_data_files_count, existing_data_files_count, deleted_data_files_count, added_delete_files_count"
    assert town(f"select content, partition_spec_id, {counts}, partition_summaries from test.db.t.manifests order by content") == [
        (0, 0, 1, 0, 0, 0, []),
        (1, 0, 0, 0, 0, 1, []),
    ]
    assert town("select content, count(*), count(distinct reference_snapshot_id) from test.db.t.all_manifests group by 1 order by 1") == [
        (0, 2, 2),
        (1, 1, 1),
    ]


def test_partitions_of_specs_that_changed(sql, spark_lake, monkeypatch):
    sql(f"create table test.db.p (id bigint, at timestamp) partitioned by (days(at)) {KEY}")
    sql("insert into test.db.p values (1, timestamp'2026-01-31 12:00:00'), (2, timestamp'2026-01-31 13:00:00'), (3, null)")
    spark_lake.catalog().load_table("db.p").update_spec().add_identity("id").commit()
    sql("insert into test.db.p values (4, timestamp'2026-01-31 12:00:00')")
    first, second = (row[0] for row in sql("select snapshot_id from test.db.p.snapshots order by committed_at"))
    for limit in (metadata_tables.MANY, 0):  # by tasks too
        monkeypatch.setattr(metadata_tables, "MANY", limit)
        rows = sql(
            "select partition.*, spec_id, record_count, file_count, last_updated_snapshot_id from test.db.p.partitions order by 2, 1"
        )
        assert rows == [
            (None, None, 0, 1, 1, first),
            (date(2026, 1, 31), None, 0, 2, 1, first),
            (date(2026, 1, 31), 4, 1, 1, 1, second),
        ]
    summaries = sql(
        "select partition_summaries.lower_bound, partition_summaries.contains_null from test.db.p.manifests order by partition_spec_id"
    )
    assert summaries == [(["2026-01-31"], [True]), (["2026-01-31", "4"], [False, False])]
    assert sql("select spec_id, count(*) from test.db.p.files where partition.id is null group by 1") == [(0, 2)]


def test_versions(town, spark, spark_lake):
    first, _ = spark_lake.catalog().load_table("db.t").snapshots()
    assert town(f"select count(*) from test.db.t.files version as of {first.snapshot_id}") == [(1,)]
    assert town(f"select count(*) from test.db.t.files timestamp as of timestamp_millis({first.timestamp_ms})") == [(1,)]
    assert spark.read.option("snapshot-id", first.snapshot_id).table("test.db.t.entries").count() == 1
    assert town(f"select count(*) from test.db.t.partitions version as of {first.snapshot_id} where position_delete_record_count > 0") == [
        (0,)
    ]
    with pytest.raises(PolicyError, match="shows all snapshots"):
        town(f"select * from test.db.t.all_files version as of {first.snapshot_id}")
    with pytest.raises(AnalysisException, match="does not support append"):
        town("insert into test.db.t.refs select * from test.db.t.refs")


def test_no_key_is_shown(town, spark, spark_lake):
    table = spark_lake.catalog().load_table("db.t")
    manifests = table.current_snapshot().manifests(table.io)
    files = [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    keys = [found.key_metadata for found in (*manifests, *files)]
    assert len(keys) == 4
    assert all(keys)
    for kind in columns():
        shown = repr(spark.table(f"test.db.t.{kind}").collect())
        # a Row shows bytes as bytearray(b'...'), as Python does here
        assert not any(repr(bytearray(key))[10:-1] in shown for key in keys), kind
    for kind in ("files", "all_files", "entries", "all_entries", "all_manifests"):
        column = "data_file.key_metadata" if "entries" in kind else "key_metadata"
        assert town(f"select count(*), count({column}) from test.db.t.{kind}")[0][1] == 0


def test_what_spark_has_no_type_for_is_left_out(sql, spark_lake):
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "at", TimeType(), required=False))
    spark_lake.catalog().create_table("db.times", schema, properties=KEYED)
    assert [row[0] for row in sql("select * from (select readable_metrics.at.* from test.db.times.files) limit 0")] == []
    row = [name for name, *_ in sql("describe test.db.times.position_deletes")]
    assert row == ["file_path", "pos", "row", "spec_id", "delete_file_path", "content_offset", "content_size_in_bytes"]
