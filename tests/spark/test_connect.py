"""The same over Spark Connect, in a process of its own: a session is classic or Connect, not both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.connect_script import found_by
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED, people
from tests.servers.running import free_ports

pytest.importorskip("grpc")
pytestmark = [pytest.mark.spark, pytest.mark.newest, pytest.mark.slow]

CREDENTIAL = "catalog-password-4711"
SCRIPT = """
import json, sys
from pyiceberg.exceptions import NoSuchTableError
from pyspark.errors import AnalysisException
from pyspark.sql.connect.client import DefaultChannelBuilder
import icelock.errors
import icelock.spark
from tests.helpers.spark import session

properties, event_log, port = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
DefaultChannelBuilder.default_port = staticmethod(lambda: int(port))  # Spark's own is one for the machine
conf = {
    "spark.remote": "local[2]",
    "spark.connect.grpc.binding.port": port,
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.dir": event_log,
}
spark = session(conf, log_level=None)
icelock.spark.register(spark, {"test": properties})
df = spark.range(0, 1000, 1, 2).selectExpr("id", "concat('n', id) name", "'x' city")
df.write.format("icelock").mode("append").save("test.db.t")
df.write.format("icelock").mode("append").save("test.db.t")
back = spark.read.format("icelock").option("columns", "id").load("test.db.t")
found = {
    "filtered": back.filter("id < 10").count(),
    "all": back.count(),
    "joined": back.filter("id < 5").join(back.filter("id > 2"), "id").count(),
    "sum": back.selectExpr("sum(id) s").collect()[0].s,
    "read": sorted(r.id for r in icelock.spark.read(spark, "test.db.t", columns=["id"], row_filter="id < 3").filter("id > 0").collect()),
}
df.limit(3).write.format("icelock").mode("overwrite").save("test.db.t")
found["overwritten"] = spark.read.format("icelock").load("test.db.t").count()
try:
    icelock.spark.read(spark, "test.db.t", engine="native")
except icelock.errors.PolicyError as e:
    found["native"] = "needs a classic session" in str(e)
spark.sql("create temporary view people using icelock options (path 'test.db.t')")
spark.sql("insert into people values (5000, 'by-statement', 'x')")
spark.sql("create or replace temporary view people using icelock options (path 'test.db.t')")
found["view"] = [tuple(row) for row in spark.sql("select count(*), max_by(name, id) from people").collect()]
found["statements"] = []
for statement in (
    "select * from test.db.t",
    "create table test.db.n (a int)",
    "call test.system.ancestors_of('db.t')",
    "select * from test.db.t.changes",
    "call test.system.create_changelog_view('db.t')",
    "show tables in test.db",
    "show namespaces in test",
    "create table people using icelock options (path 'test.db.t')",
    "select * from nowhere",
    "show tables in other",
):
    try:
        spark.sql(statement).collect()
    except AnalysisException as e:
        instead = "load('catalog.namespace.table.changes')" if "change" in statement else "USING icelock OPTIONS (path"
        found["statements"].append(instead in str(e))
# What the error says to do.
changed = spark.read.format("icelock").option("net-changes", "true").load("test.db.t.changes").filter("id in (2, 5000)")
found["changed"] = sorted(tuple(row) for row in changed.select("id", "name", "_change_type").collect())
try:
    icelock.spark.write_to(changed.select("id", "name", "city"), "test.db.t").overwrite("id = 2")
except icelock.errors.PolicyError as e:
    found["from changes"] = "whose snapshot only the server knows" in str(e)
for name, use in (("read", icelock.spark.read), ("load", lambda spark, table: spark.read.format("icelock").load(table))):
    try:
        use(spark, "test.db.tt").count()
    except NoSuchTableError as e:
        found[name + " missing"] = str(e)
try:
    spark.read.format("icelock").option("snapshotid", "1").load("test.db.t").count()
except Exception as e:
    found["error"] = "did you mean 'snapshot-id'" in str(e)
made = "test.db.made"
done = [
    icelock.spark.write_to(df, made).tableProperty("encryption.key-id", "keyA").partitionedBy("bucket(2, id)").create(),
    icelock.spark.delete(spark, made, "name = 'filter-value-4711' or id = 5 or id >= 900"),
    icelock.spark.upsert(df.filter("id >= 890").selectExpr("id", "'new' name", "city"), made, ["id"]),
    icelock.spark.write_to(df.limit(2).selectExpr("id", "'other' name", "city"), made).overwrite("id < 100"),
    icelock.spark.delete(spark, made, "id = 5000"),
]
found["done"] = [[one.rows_inserted, one.rows_updated, one.rows_deleted] for one in done]
found["snapshots"] = [one.snapshot_id for one in done]
back = spark.read.format("icelock").load(made)
found["made"] = [back.count(), back.filter("name = 'new'").count(), back.filter("name = 'other'").count(), back.filter("id = 5").count()]
try:
    icelock.spark.upsert(df.unionByName(df), made, ["id"])
except icelock.errors.PolicyError as e:
    found["twice"] = "occurs more than once" in str(e)
print("FOUND " + json.dumps(found))
spark.stop()
"""


def test_register_read_and_write_over_connect(lake, tmp_path):
    import json  # noqa: PLC0415

    lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    log = tmp_path / "event-log"
    log.mkdir()
    properties = json.dumps(lake.properties(credential=CREDENTIAL))
    found = found_by(SCRIPT, properties, log.as_uri(), str(free_ports()), folder=tmp_path)
    snapshots = lake.catalog().load_table("db.made").snapshots()
    assert found.pop("snapshots") == [*(snapshot.snapshot_id for snapshot in snapshots), None]
    assert found == {
        "filtered": 20, "all": 2000, "joined": 8, "sum": 999_000, "overwritten": 3, "error": True, "read": [1, 1, 2, 2], "native": True,
        "view": [[4, "by-statement"]], "statements": [True, True, True, True, True, True, True, True, False, False],
        "changed": [[2, "n2", "INSERT"], [5000, "by-statement", "INSERT"]], "from changes": True,
        **dict.fromkeys(("read missing", "load missing"), "there is no table test.db.tt; did you mean table db.t?"),
        "made": [902, 110, 2, 0], "twice": True, "done": [[1000, 0, 0], [0, 0, 101], [100, 10, 0], [2, 0, 99], [0, 0, 0]],
    }  # fmt: skip
    logged = b"".join(path.read_bytes() for path in Path(log).rglob("*") if path.is_file())
    assert b"icelock" in logged
    for key in KEYS.values():
        assert key not in logged
        assert key.hex().encode() not in logged
    for setting in (b"encryption.kms-impl", b"kms.counting", CREDENTIAL.encode(), b"filter-value-4711"):
        assert setting not in logged
