"""Mistakes in PySpark and in Spark SQL."""

from __future__ import annotations

from typing import Final

from tools.mistakes.mistake import Mistake

# fmt: off

SPARK: Final = (
    Mistake(title="PySpark is not installed", code="import icelock.spark", without=("pyspark",), says=("PySpark", "pip install '.[spark]'"), why="PySpark is an extra.", remedy="Install it, as the message says."),
    Mistake(title="A session that was not registered", code='icelock.spark.read(spark.newSession(), "lake.shop.orders")', says=("icelock.spark.register(spark, catalogs=...)",), why="`register` was called with another session object.", remedy="Call it with this one."),
    Mistake(title="A session that was stopped", code='icelock.spark.read(stopped, "lake.shop.orders")', says=("the Spark session was stopped", "SparkSession.builder.getOrCreate()", "icelock.spark.register(spark)"), why="`stopped.stop()` was called, in another cell of a notebook for example.", remedy="Make a new session, and register it; DataFrames of the old one are gone with it."),
    Mistake(title="A catalog that the session does not know", code='icelock.spark.read(spark, "laek.shop.orders")', says=("'laek'", "lake"), why="`register` was given no such catalog, and PyIceberg's configuration has none.", remedy="Correct the name, or give it to `register`."),
    Mistake(title="A table with a slip, in Spark", code='icelock.spark.read(spark, "lake.shop.odrers")', says=("lake.shop.odrers", "did you mean table shop.orders?"), why="The catalog has no such table.", remedy="Take the name that it offers."),
    Mistake(title="A table with a slip, by the format", code='spark.read.format("icelock").load("lake.shop.odrers")', says=("lake.shop.odrers", "did you mean table shop.orders?"), why="The same.", remedy="Take the name that it offers."),
    Mistake(title="A table's name without its catalog", code='icelock.spark.read(spark, "shop.orders")', says=("'shop.orders'", "catalog.namespace.table"), why="A session may have several catalogs.", remedy="Name all three: `lake.shop.orders`."),
    Mistake(title="Arguments swapped", code='icelock.spark.read("lake.shop.orders", spark)', says=("spark must be a Spark session", "read(spark, table)"), why="The session comes first.", remedy="Swap them."),
    Mistake(title="Catalogs as a list", code='icelock.spark.register(spark, ["lake"])', says=("catalogs must be a dict", "list"), why="Each catalog has properties.", remedy="Give a dict of dicts."),
    Mistake(title="A column with a slip, in Spark", code='icelock.spark.read(spark, "lake.shop.orders", columns=["ctiy"])', says=("'ctiy'", "city"), why="The table has no such column.", remedy="Take one that it has."),
    Mistake(title="A branch with a slip, in Spark", code='icelock.spark.read(spark, "lake.shop.orders", branch="mian")', says=("'mian'", "did you mean 'main'?"), why="The table has no such branch.", remedy="Take the one that it offers."),
    Mistake(title="A time without a zone, in Spark", code='icelock.spark.read(spark, "lake.shop.orders", as_of_timestamp="2026-01-02 10:00:00")', says=("2026-01-02 10:00:00", "time zone"), why="A moment needs a zone.", remedy="Add one: `2026-01-02T10:00:00Z`."),
    Mistake(title="Two versions at once", code='icelock.spark.read(spark, "lake.shop.orders", branch="main", tag="v1")', says=("branch", "tag", "keep one"), why="They exclude each other.", remedy="Keep one."),
    Mistake(title="An option of a read with a slip", code='spark.read.format("icelock").option("snapshotid", "7").load("lake.shop.orders")', says=("snapshotid", "snapshot-id"), why="There is no such option.", remedy="Take the one that it offers."),
    Mistake(title="An option of a write with a slip", code='icelock.spark.write_to(df, "lake.shop.orders").option("target-file-size", 1 << 20)', says=("target-file-size", "did you mean 'target-file-size-bytes'?"), why="There is no such option.", remedy="Take the one that it offers."),
    Mistake(title="mergeSchema", code='icelock.spark.write_to(df, "lake.shop.orders").option("mergeSchema", True)', says=("mergeschema", "ADD COLUMN"), why="A write does not change the table's columns.", remedy="Add them first, or use `MERGE WITH SCHEMA EVOLUTION`."),
    Mistake(title="Other columns than the table's, in Spark", code='icelock.spark.write_to(df.withColumnRenamed("city", "ctiy"), "lake.shop.orders").append()', says=("lake.shop.orders", "'ctiy'"), why="Rows are matched by the names of columns.", remedy="Rename it, or add it to the table first."),
    Mistake(title="A key twice in an upsert, in Spark", code='icelock.spark.upsert(df.union(df), "lake.shop.orders", ["id"])', says=("key id", "more than once", "nothing was changed"), why="One row cannot become two.", remedy='Keep one row for each key: `df.dropDuplicates(["id"])`.'),
    Mistake(title="A filter with a slip, in Spark", code="icelock.spark.delete(spark, \"lake.shop.orders\", \"ctiy = 'Oslo'\")", says=("'ctiy'", "'city'"), why="The table has no such column.", remedy="Take the one that it offers."),
    Mistake(title="A new table without a key, in Spark", code='icelock.spark.write_to(df, "lake.shop.new").create()', says=("lake.shop.new", "encryption.key-id"), why="The catalog makes encrypted tables.", remedy="Name the key by `tableProperty`."),
    Mistake(title="A DataFrame whose snapshot was expired", code="old.collect()", before="""
old = icelock.spark.read(spark, "lake.passing.orders")
rows_of = catalog.load_table("passing.orders")
rows_of.delete("id >= 0")
rows_of.append(rows)
from datetime import UTC, timedelta
rows_of.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).retain_last(1).commit()
""", says=("read", "again"), most=60, why="A DataFrame stays at the snapshot that was current when it was made, and that one's files are gone.", remedy="Read the table again."),
)

SQL: Final = (
    Mistake(title="A table with a slip, in SQL", code='spark.sql("select * from lake.shop.odrers")', says=("odrers",), most=9, why="The catalog has no such table.", remedy="List them: `SHOW TABLES IN lake.shop`."),
    Mistake(title="A column with a slip, in SQL", code='spark.sql("select ctiy from lake.shop.orders")', says=("ctiy", "city"), most=9, why="Spark's own message.", remedy="Take one that it offers."),
    Mistake(title="A table without a key, in SQL", code='spark.sql("create table lake.shop.new (id bigint)")', says=("shop.new", "encryption.key-id"), why="The catalog makes encrypted tables.", remedy="Add `TBLPROPERTIES ('encryption.key-id' = 'lake-key')`."),
    Mistake(title="A branch as a new table", code='spark.sql("create table if not exists lake.shop.orders.branch_audit (id bigint)")', says=("shop.orders", "create_branch('shop.orders', 'audit')"), why="The name is that of a branch of the table.", remedy="Create the branch."),
    Mistake(title="A version that is not there, in SQL", code="spark.sql(\"select * from lake.shop.orders version as of 'mian'\")", says=("'mian'", "main"), why="The table has no such branch or tag.", remedy="Take the one that it offers."),
    Mistake(title="Two rows of a MERGE's source for one of the table", code="""df.union(df).createOrReplaceTempView("twice")
spark.sql("merge into lake.shop.orders t using twice s on t.id = s.id when matched then update set city = s.city")""", says=("MERGE",), most=60, why="It is unclear which of the two counts.", remedy="Keep one row for each key."),
    Mistake(title="A null into a required column, in SQL", code='spark.sql("insert into lake.shop.orders values (null, \'Bonn\', null)")', says=("NULL",), most=60, why="Spark's own message.", remedy="Give a value."),
    Mistake(title="A procedure with a slip", code='spark.sql("call lake.system.expire_snapshot(\'shop.orders\')")', says=("expire_snapshot",), most=9, why="There is no such procedure.", remedy="List them: `SHOW PROCEDURES IN lake.system`."),
)
SECTIONS: Final = {"In PySpark": SPARK, "In Spark SQL": SQL}
