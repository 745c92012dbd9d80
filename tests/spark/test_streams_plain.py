"""Streams out of plain tables of versions 1 and 2: as of encrypted ones. Every expected row was written by the test."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from icelock.errors import PolicyError
from tests.lakes.sqlite import KEY
from tests.spark.test_plain_tables import plain
from tests.spark.test_streams_out import ids, stream  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark


@pytest.mark.spark43
@pytest.mark.parametrize("version", [1, 2])
def test_each_appended_row_comes_once(sql, stream, spark_lake, tmp_path, version):  # noqa: F811
    sql(f"create table test.db.p (id bigint, city string) partitioned by (city) {plain(version)}")
    sql("insert into test.db.p values (1, 'a'), (2, 'b')")
    assert stream("test.db.p", change=ids) == [[1, 2]]
    sql("insert into test.db.p values (3, 'c')")
    # By PyIceberg's writers: two files in one snapshot, one of which is in the batch of the file before.
    table = spark_lake.catalog(**{"icelock.plain-tables": "db.p"}).load_table("db.p")
    table.append(pa.table({"id": pa.array([4, 5], pa.int64()), "city": ["d", "e"]}))
    assert stream("test.db.p", change=ids, max_files_per_micro_batch=2) in ([[3, 4], [5]], [[3, 5], [4]])
    assert stream("test.db.p", change=ids) == []
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda found: int(found.name))
    offset = json.loads(newest.read_text().splitlines()[-1])
    last = table.current_snapshot().snapshot_id
    assert offset == {"version": 1, "snapshot_id": last, "position": 2, "scan_all_files": False}, "Java's form"
    second = table.snapshots()[1].snapshot_id
    assert stream("test.db.p", change=ids, checkpoint="after", start_snapshot_id=second) == [[4, 5]]
    assert stream("test.db.p", change=ids, checkpoint="now", stream_from_timestamp="now") == []
    assert stream("test.db.p", change=lambda rows: rows.filter("city = 'd'").select("id"), checkpoint="some") == [[4]]
    sql("delete from test.db.p where id = 1")  # its file as a whole
    sql("insert into test.db.p values (6, 'a')")
    with pytest.raises(PolicyError, match=r"is of operation delete.*streaming-skip-delete-snapshots=true"):
        stream("test.db.p", change=ids)
    assert stream("test.db.p", change=ids, streaming_skip_delete_snapshots=True) == [[6]]


def test_a_plain_stream_is_joined_with_an_encrypted_table_and_goes_into_it(sql, spark, tmp_path, spark_lake):
    sql(f"create table test.db.t (id bigint, name string) {KEY}")
    sql(f"create table test.db.into (id bigint, name string) {KEY}")
    sql(f"create table test.db.p (id bigint, city string) {plain()}")
    sql("insert into test.db.t values (1, 'told-to-nobody'), (2, 'x')")
    sql("insert into test.db.p values (1, 'a'), (3, 'b')")
    opened = {"table": spark.readStream.table("test.db.p"), "format": spark.readStream.format("icelock").load("test.db.p")}
    for checkpoint, stream_of_p in opened.items():
        rows = stream_of_p.join(spark.table("test.db.t"), "id").select("id", "name")
        writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / checkpoint))
        query = writer.toTable("test.db.into")
        query.awaitTermination()
    assert sql("select id, name, count(*) from test.db.into group by 1, 2") == [(1, "told-to-nobody", 2)]
    files = spark_lake.files()
    assert any(name.startswith("db/into/") for name in files)
    assert not [name for name, content in files.items() if b"told-to-nobody" in content]
