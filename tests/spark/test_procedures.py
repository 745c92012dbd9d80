"""``CALL catalog.system.…``. Names, arguments and result columns are those of Java Iceberg 1.12's documentation and sources."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from icelock.errors import PolicyError
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark
PARAMETERS = {
    "rollback_to_snapshot": ["table", "snapshot_id"],
    "rollback_to_timestamp": ["table", "timestamp"],
    "set_current_snapshot": ["table", "snapshot_id", "ref"],
    "cherrypick_snapshot": ["table", "snapshot_id"],
    "fast_forward": ["table", "branch", "to"],
    "ancestors_of": ["table", "snapshot_id"],
    "expire_snapshots": [
        "table", "older_than", "retain_last", "max_concurrent_deletes", "stream_results", "snapshot_ids", "clean_expired_metadata",
    ],
    "remove_orphan_files": [
        "table", "older_than", "location", "dry_run", "max_concurrent_deletes", "file_list_view", "equal_schemes", "equal_authorities",
        "prefix_mismatch_mode", "prefix_listing", "stream_results",
    ],
    "add_files": ["table", "source_table", "partition_filter", "check_duplicate_files", "parallelism"],
}  # fmt: skip


@pytest.fixture
def town(sql):
    """Table ``t`` with three snapshots, of one row each; returns ``sql``."""
    sql(f"create table test.db.t (id bigint, city string) {KEY}")
    for number in range(3):
        sql(f"insert into test.db.t values ({number}, 'town-{number}')")
    return sql


@pytest.fixture
def ids(town):
    """The ids of the three snapshots."""
    return [row[0] for row in town("select snapshot_id from test.db.t.snapshots order by committed_at")]


def millis(lake, number: int) -> int:
    return lake.catalog().load_table("db.t").snapshots()[number].timestamp_ms


@pytest.mark.spark43
def test_procedures_have_javas_names_and_arguments(spark, town):
    shown = [row[-1] for row in town("show procedures in test")]
    assert {*PARAMETERS, "create_branch", "drop_branch", "create_tag", "drop_tag"} < {*shown}
    catalog = spark._jsparkSession.sessionState().catalogManager().catalog("test")
    for name, expected in PARAMETERS.items():
        namespace = spark._sc._gateway.new_array(spark._jvm.String, 1)
        namespace[0] = "system"
        procedure = catalog.loadProcedure(spark._jvm.org.apache.spark.sql.connector.catalog.Identifier.of(namespace, name))
        assert [parameter.name() for parameter in procedure.bind(None).parameters()] == expected
    with pytest.raises(PolicyError, match=r"no procedure test\.system\.rewrite_everything; test\.system has add_files"):
        spark.sql("call test.system.rewrite_everything('db.t')")
    with pytest.raises(AnalysisException, match="REQUIRED_PARAMETER_NOT_FOUND"):
        spark.sql("call test.system.rollback_to_snapshot('db.t')")


@pytest.mark.spark43(daily=True)
def test_moving_the_main_branch(spark, town, ids, spark_lake):
    first, second, third = ids
    moved = spark.sql(f"call test.system.rollback_to_snapshot('db.t', {second})")
    assert moved.columns == ["previous_snapshot_id", "current_snapshot_id"]
    assert [tuple(row) for row in moved.collect()] == [(third, second)]
    assert town("select count(*) from test.db.t") == [(2,)]
    with pytest.raises(PolicyError, match="not an ancestor"):
        town(f"call test.system.rollback_to_snapshot('db.t', {third})")
    assert town(f"call test.system.set_current_snapshot(table => 'test.db.t', snapshot_id => {third})") == [(second, third)]
    town(f"call test.system.create_tag('db.t', 'first', {first})")
    assert town("call test.system.set_current_snapshot(ref => 'first', table => 'db.t')") == [(third, first)]
    with pytest.raises(PolicyError, match="either snapshot_id or ref"):
        town("call test.system.set_current_snapshot('db.t')")
    town(f"call test.system.set_current_snapshot('db.t', {third})")
    before_third = f"timestamp_millis({millis(spark_lake, 2)})"
    assert town(f"call test.system.rollback_to_timestamp('db.t', {before_third})") == [(third, second)]
    with pytest.raises(PolicyError, match="no snapshot before 0 ms"):
        town("call test.system.rollback_to_timestamp('db.t', timestamp_millis(0))")
    with pytest.raises(PolicyError, match="cannot be cherry-picked"):
        town(f"call test.system.cherrypick_snapshot('db.t', {third})")
    town("use test.db")
    try:
        ancestors = [(second, millis(spark_lake, 1)), (first, millis(spark_lake, 0))]
        assert town("call test.system.ancestors_of('t')") == ancestors
        assert town(f"call test.system.ancestors_of('`db`.`t`', {first})") == ancestors[1:]
    finally:
        town("use spark_catalog.default")


def test_a_cached_table_is_read_again_after_a_rollback(spark, town, ids):
    town("cache table test.db.t")
    try:
        assert town("select count(*) from test.db.t") == [(3,)]
        town(f"call test.system.rollback_to_snapshot('db.t', {ids[0]})")
        assert town("select * from test.db.t") == [(0, "town-0")]
        assert town("select count(*) from test.db.t.files") == [(1,)]
    finally:
        spark.catalog.clearCache()


def test_branches_and_tags(town, ids):
    first, _, third = ids
    assert town("call test.system.create_branch('db.t', 'side')") == [("side", third)]
    created = f"call test.system.create_branch(table => 'db.t', branch => 'old', snapshot_id => {first}, min_snapshots_to_keep => 2)"
    assert town(created) == [("old", first)]
    assert town(f"call test.system.create_tag('db.t', 'v1', {first}, 1000)") == [("v1", first)]
    assert town("select name, type, snapshot_id, max_reference_age_in_ms, min_snapshots_to_keep from test.db.t.refs order by name") == [
        ("main", "BRANCH", third, None, None),
        ("old", "BRANCH", first, None, 2),
        ("side", "BRANCH", third, None, None),
        ("v1", "TAG", first, 1000, None),
    ]
    town("insert into test.db.t.branch_side values (10, 'far')")
    (head,) = town("select snapshot_id from test.db.t.refs where name = 'side'")[0]
    assert town("call test.system.fast_forward('db.t', 'main', 'side')") == [("main", third, head)]
    assert town("call test.system.fast_forward('db.t', 'new', 'side')") == [("new", None, head)]
    with pytest.raises(PolicyError, match="not an ancestor"):
        town("call test.system.fast_forward('db.t', 'main', 'old')")
    assert town("call test.system.drop_branch('db.t', 'side')") == [("side", head)]
    assert town("call test.system.drop_tag('db.t', 'v1')") == [("v1", first)]
    with pytest.raises(PolicyError, match="main is a branch"):
        town("call test.system.drop_tag('db.t', 'main')")
    with pytest.raises(PolicyError, match="main branch cannot be removed"):
        town("call test.system.drop_branch('db.t', 'main')")
    with pytest.raises(PolicyError, match="ancestors_of: table is an empty name"):
        town("call test.system.ancestors_of('')")


def test_expire_snapshots(spark, town, ids, spark_lake):
    first, _, third = ids
    expired = spark.sql(f"call test.system.expire_snapshots(table => 'db.t', snapshot_ids => array({first}L))")
    assert expired.columns == [
        "deleted_data_files_count",
        "deleted_position_delete_files_count",
        "deleted_equality_delete_files_count",
        "deleted_manifest_files_count",
        "deleted_manifest_lists_count",
        "deleted_statistics_files_count",
    ]
    # the rows of the first snapshot are in the others too: only its list goes
    assert [tuple(row) for row in expired.collect()] == [(0, 0, None, 0, 1, 0)]
    town("insert overwrite test.db.t values (9, 'nine')")
    later = "timestamp'2100-01-01 00:00:00'"
    assert town(f"call test.system.expire_snapshots('db.t', {later}, 2)")[0][4] == 1
    assert town("select snapshot_id from test.db.t.snapshots order by committed_at")[0] == (third,)
    # one is left: three data files and their manifests are gone with the third snapshot
    data, *_, lists, _ = town(f"call test.system.expire_snapshots('db.t', {later})")[0]
    assert (data, lists) == (3, 1)
    assert len(spark_lake.catalog().load_table("db.t").snapshots()) == 1
    assert town("select * from test.db.t") == [(9, "nine")]
    with pytest.raises(PolicyError, match="max_concurrent_deletes is not supported"):
        town("call test.system.expire_snapshots(table => 'db.t', max_concurrent_deletes => 4)")


def test_remove_orphan_files(spark, town, spark_lake):
    location = spark_lake.catalog().load_table("db.t").location().removeprefix("file://")
    assert town("call test.system.audit('db.t', 'bytes, foreign')") == []
    stray, young = Path(location, "data", "stray.parquet"), Path(location, "data", "young.parquet")
    for file in (stray, young):
        file.write_bytes(b"PAR1")
    old = (datetime.now(UTC) - timedelta(days=4)).timestamp()
    os.utime(stray, (old, old))
    findings = spark.sql("call test.system.audit(table => 'test.db.t', depth => 'foreign')")
    assert findings.columns == ["severity", "code", "what", "sentence", "remedy", "findings_of_code"]
    assert {(*row[:2], row[2].rpartition("/")[2], row[5]) for row in findings.collect()} == {
        ("warning", "plain-object", name, 2) for name in ("stray.parquet", "young.parquet")
    }
    found = spark.sql("call test.system.remove_orphan_files(table => 'db.t', dry_run => true)")
    assert found.columns == ["orphan_file_location"]
    assert [row[0].rpartition("/")[2] for row in found.collect()] == ["stray.parquet"]
    assert stray.exists()
    assert [row[0].rpartition("/")[2] for row in town("call test.system.remove_orphan_files('db.t')")] == ["stray.parquet"]
    assert (stray.exists(), young.exists()) == (False, True)
    with pytest.raises(PolicyError, match="24 hours"):
        town("call test.system.remove_orphan_files('db.t', current_timestamp())")
    # As Java: what is only listed may be young, so that what a killed job left is seen at once.
    listed = town("call test.system.remove_orphan_files(table => 'db.t', older_than => current_timestamp(), dry_run => true)")
    assert [row[0].rpartition("/")[2] for row in listed] == ["young.parquet"]
    assert young.exists()
    with pytest.raises(PolicyError, match="location is not supported"):
        town(f"call test.system.remove_orphan_files(table => 'db.t', location => '{location}')")
    assert town("select count(*) from test.db.t") == [(3,)]


def test_add_files_encrypts(spark, town, tmp_path):
    spark.createDataFrame([(7, "plain-text-town")], "id bigint, city string").coalesce(1).write.parquet(f"{tmp_path}/plain")
    added = spark.sql(f"call test.system.add_files('db.t', 'parquet.`{tmp_path}/plain`')")
    assert added.columns == ["added_files_count", "changed_partition_count"]
    assert [tuple(row) for row in added.collect()] == [(1, 1)]
    assert town("select * from test.db.t where id = 7") == [(7, "plain-text-town")]
    for (path,) in town("select file_path from test.db.t.files"):
        assert b"plain-text-town" not in Path(path.removeprefix("file://")).read_bytes()
    with pytest.raises(PolicyError, match="INSERT"):
        town("call test.system.add_files('db.t', 'db.other')")
    with pytest.raises(PolicyError, match="check_duplicate_files is not supported"):
        town(f"call test.system.add_files(table => 'db.t', source_table => 'parquet.`{tmp_path}/plain`', check_duplicate_files => true)")


def test_partitioning_and_write_order(town, spark_lake):
    def layout():
        table = spark_lake.catalog().load_table("db.t")
        return [(field.name, str(field.transform)) for field in table.spec().fields], str(table.sort_order())

    assert town("call test.system.add_partition_field('db.t', 'bucket(16, id)')") == [(1, "id_bucket_16")]
    assert town("call test.system.add_partition_field('db.t', 'city', 'place')") == [(2, "place")]
    assert layout()[0] == [("id_bucket_16", "bucket[16]"), ("place", "identity")]
    town("insert into test.db.t values (50, 'x')")
    assert town("select partition.place from test.db.t.partitions where spec_id = 2") == [("x",)]
    town("call test.system.drop_partition_field('db.t', 'bucket(16, id)')")
    assert town("call test.system.drop_partition_field('db.t', 'place')")[0][1] == "place"
    assert layout()[0] == []
    with pytest.raises(PolicyError, match="no partition field"):
        town("call test.system.drop_partition_field('db.t', 'place')")
    with pytest.raises(PolicyError, match="no column"):
        town("call test.system.add_partition_field('db.t', 'days(nothing)')")
    assert town("call test.system.set_write_order('db.t', 'city desc, bucket(4, id) nulls last')") == [(1,)]
    first, second = spark_lake.catalog().load_table("db.t").sort_order().fields
    assert (first.source_id, str(first.transform), str(first.direction), str(first.null_order)) == (
        2, "identity", "DESC", "NULLS LAST",
    )  # fmt: skip
    assert (second.source_id, str(second.transform)) == (1, "bucket[4]")
    with pytest.raises(PolicyError, match=r"cannot be sorted by 'town': it has no column 'town'"):
        town("call test.system.set_write_order('db.t', 'town')")
    assert town("call test.system.set_write_order('db.t')") == [(0,)]


@pytest.mark.spark43
def test_identifier_fields(sql, spark_lake):
    """The rows of Java's testSetIdentifierFields, testDropIdentifierFields, and what they refuse."""
    sql(f"create table test.db.t (id bigint not null, place struct<no: int not null> not null, name string, x double not null) {KEY}")

    def identifiers():
        return spark_lake.catalog().load_table("db.t").schema().identifier_field_names()

    assert sql("call test.system.set_identifier_fields('db.t', array('id'))") == [("id",)]
    assert identifiers() == {"id"}
    assert sql("call test.system.set_identifier_fields('db.t', array('place.no', 'ID'))") == [("id, place.no",)]
    assert identifiers() == {"id", "place.no"}
    assert sql("call test.system.drop_identifier_fields('db.t', array('id'))") == [("place.no",)]
    for fields, message in (
        ("'nothing'", "column 'nothing' does not exist"),
        ("'name'", "cannot be identified by name: an identifier field is NOT NULL"),
        ("'x'", "cannot be identified by x: .*neither a float nor a double"),
        ("'place'", "cannot be identified by place: .*has a single value"),
    ):
        with pytest.raises(PolicyError, match=message):
            sql(f"call test.system.set_identifier_fields('db.t', array({fields}))")
    with pytest.raises(PolicyError, match=r"'id' is not an identifier field of table test\.db\.t; it has place\.no"):
        sql("call test.system.drop_identifier_fields('db.t', array('id'))")
    assert identifiers() == {"place.no"}
    assert sql("call test.system.drop_identifier_fields('db.t', array('place.no'))") == [("none",)]
    assert identifiers() == set()
