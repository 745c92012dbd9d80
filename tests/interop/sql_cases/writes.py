"""INSERT, overwrites, writeTo, defaults of columns, and times with and without a zone."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import SCHEMA, Case, Frame, Suite, table
from tests.interop.sql_cases.reasons import AT_VERSION, HAS_DEFAULTS, REWRITTEN

# fmt: off

PLAIN: Final = ("create table {t} (id bigint, data string)", "insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
PARTS: Final = ("create table {t} (id bigint, data string) partitioned by (truncate(3, id))", "insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
BY_DATA: Final = table("id bigint, data string", "(1, 'a')", "(2, 'b')", "(3, 'c')", by="data")
MORE: Final = "select * from values (4L, 'd'), (5L, 'e') as v(id, data)"
OTHER: Final = "select * from values (2L, 'B'), (9L, 'z') as v(id, data)"
SOURCE: Final = "values (1L, 'a'), (2L, 'b'), (3L, 'c') as v(id, data)"
DYNAMIC: Final = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}

UNPARTITIONED: Final = Suite(
    "TestUnpartitionedWrites, TestUnpartitionedWritesToBranch",
    (
        Case("INSERT INTO", "testInsertAppend", PLAIN, f"insert into {{t}} {MORE}"),
        Case("INSERT INTO by name, with a list of columns", "testInsertAppend, columns", PLAIN, ("insert into {t} by name select 'd' as data, 4L as id", "insert into {t} (data, id) values ('e', 5)", "insert into {t} (id) values (6)")),
        Case("INSERT OVERWRITE", "testInsertOverwrite", PLAIN, f"insert overwrite {{t}} {MORE}"),
        Case("INSERT OVERWRITE, dynamic", "testInsertOverwrite, dynamic", PLAIN, f"insert overwrite {{t}} {MORE}", conf=DYNAMIC),
        Case("INSERT into a snapshot", "testInsertAppendAtSnapshot", PLAIN, "insert into {t}.snapshot_id_{s1} values (4, 'd')", differs=AT_VERSION),
        Case("INSERT OVERWRITE of a snapshot", "testInsertOverwriteAtSnapshot", PLAIN, "insert overwrite {t}.snapshot_id_{s1} values (4, 'd')", differs=AT_VERSION),
        Case("writeTo().append()", "testDataFrameV2Append", PLAIN, Frame(query=MORE, method="append")),
        Case("writeTo().overwritePartitions()", "testDataFrameV2DynamicOverwrite", PLAIN, Frame(query=MORE, method="overwritePartitions")),
        Case("writeTo().overwrite(condition)", "testDataFrameV2Overwrite", PLAIN, Frame(query=MORE, method="overwrite", condition="id <= 3")),
        Case("writeTo().overwrite(condition) of a part of a file", "testDataFrameV2Overwrite, an error", PLAIN, Frame(query=MORE, method="overwrite", condition="id <= 2"), differs=REWRITTEN),
        Case("INSERT into a branch", "testInsertAppend on a branch", (*PLAIN, "+branch side"), f"insert into {{t}}.branch_side {MORE}", ("select * from {t}", "select * from {t}.branch_side")),
        Case("INSERT OVERWRITE of a branch", "testInsertOverwrite on a branch", (*PLAIN, "+branch side"), f"insert overwrite {{t}}.branch_side {MORE}", ("select * from {t}", "select * from {t}.branch_side")),
        Case("a branch that is not there", "testInsertIntoNonExistingBranchFails", PLAIN, "insert into {t}.branch_nowhere values (4, 'd')"),
        Case("another number of columns", "testInsertAppend, an error of Spark's", PLAIN, ("insert into {t} values (4)", "insert into {t} values (4, 'd', 1)", "insert into {t} (id, id) values (4, 5)", "insert into {t} (nothing) values (4)")),
        Case("values of another type", "testInsertAppend, an error of types", PLAIN, ("insert into {t} values ('x', 'd')", "insert into {t} select date'2020-01-01', 'd'")),
        Case("null in a required column", "testInsertAppend, a required column", ("create table {t} (id bigint not null, data string)",), ("insert into {t} values (null, 'd')", "insert into {t} (data) values ('d')")),
        Case("INSERT from the table itself", "testInsertAppend, from itself", PLAIN, ("insert into {t} select id + 10, data from {t}", "insert overwrite {t} select * from {t} where id > 10")),
        Case("INSERT of no row", "testInsertAppend, no rows", PLAIN, "insert into {t} select * from {t} where id > 10"),
        Case("REPLACE WHERE", "testDataFrameV2Overwrite as a statement", PLAIN, "insert into {t} replace where id <= 3 select id + 10, data from {t}"),
    ),
)

PARTITIONED: Final = Suite(
    "TestPartitionedWrites, TestPartitionedWritesToBranch, TestPartitionedWritesAsSelect",
    (
        Case("INSERT INTO", "testInsertAppend", PARTS, f"insert into {{t}} {MORE}"),
        Case("INSERT OVERWRITE, dynamic", "testInsertOverwrite", PARTS, f"insert overwrite {{t}} {MORE}", conf=DYNAMIC),
        Case("INSERT OVERWRITE, static", "testInsertOverwrite, static", PARTS, f"insert overwrite {{t}} {MORE}"),
        Case("INSERT OVERWRITE of a named partition", "testInsertOverwrite, PARTITION", BY_DATA, "insert overwrite {t} partition (data = 'b') select 20L"),
        Case("INSERT into a named partition", "testInsertAppend, PARTITION", BY_DATA, "insert into {t} partition (data = 'b') select 20L"),
        Case("writeTo().append()", "testDataFrameV2Append", PARTS, Frame(query=MORE, method="append")),
        Case("writeTo().overwritePartitions()", "testDataFrameV2DynamicOverwrite", PARTS, Frame(query=MORE, method="overwritePartitions")),
        Case("writeTo().overwritePartitions() of columns", "testDataFrameV2DynamicOverwrite, identity", BY_DATA, Frame(query="select 20L as id, 'b' as data union all select 40L, 'd'", method="overwritePartitions")),
        Case("writeTo().overwrite(condition)", "testDataFrameV2Overwrite", PARTS, Frame(query=MORE, method="overwrite", condition="id < 3")),
        Case("a view sees the newest rows", "testViewsReturnRecentResults", (*PARTS, "create or replace temporary view tmp as select id from {t} where id = 1"), "insert into {t} values (1, 'b')", "select * from tmp"),
        Case("rows for an older spec (output-spec-id)", "testWriteWithOutputSpec", (*PARTS, "+field data"), (Frame(query="select 10L as id, 'a' as data", method="append"), Frame(query="select 11L as id, 'b' as data", method="append", options={"output-spec-id": "0"})), "select id, data, _spec_id from {t}"),
        Case("a branch", "testInsertOverwrite on a branch", (*PARTS, "+branch side"), f"insert overwrite {{t}}.branch_side {MORE}", ("select * from {t}", "select * from {t}.branch_side"), conf=DYNAMIC),
        Case("AS SELECT in any order", "testInsertAsSelectAppend", table("id bigint, data string", by="data"), "insert into {t} select id, if(id % 2 = 0, 'even', 'odd') from range(0, 9, 1, 1)"),
        Case("AS SELECT into buckets", "testInsertAsSelectWithBucket", table("id bigint, data string", by="bucket(8, data)"), f"insert into {{t}} select * from {SOURCE}"),
        Case("AS SELECT into truncated values", "testInsertAsSelectWithTruncate", table("id bigint, data string", by="truncate(4, data)"), "insert into {t} select id, concat('town-', id) from range(0, 5, 1, 1)"),
        Case("partitions of every time transform", "testInsertAppend, times", table("id bigint, ts timestamp, d date, n timestamp_ntz", by="hours(ts), months(d), years(n)"), "insert into {t} select id, timestamp_seconds(id * 5000), date_from_unix_date(cast(id * 20 as int)), timestamp_ntz'1969-06-01 00:00:00' + make_dt_interval(cast(id * 200 as int)) from range(0, 4, 1, 1)", ("select * from {t}", "select partition.*, record_count from {t}.partitions")),
        Case("null and NaN as partitions", "testInsertAppend, nulls", table("id bigint, data string, x double", by="data, x"), "insert into {t} values (1, null, double('NaN')), (2, '', null), (3, 'a/b=c', 0.0)", ("select * from {t}", "select partition.*, record_count from {t}.partitions", "select id from {t} where data is null", "select id from {t} where data = 'a/b=c'")),
    ),
)

# Java asks for both; icelock's writes are serializable where they look back.
SINCE: Final = {"validate-from-snapshot-id": "{s1}", "isolation-level": "serializable"}
LOOK_BACK: Final = {"validate-from-snapshot-id": "{s1}"}
THEN_MORE: Final = (*BY_DATA, "insert into {t} values (1, 'a')")

CONFLICTS: Final = Suite(
    "TestConflictValidation",
    (
        Case("an overwrite by condition, rows came since", "testOverwriteFilterSerializableIsolation", THEN_MORE, Frame(query="select 1L as id, 'a' as data", method="overwrite", condition="data = 'a'", options=SINCE), instead=(Frame(query="select 1L as id, 'a' as data", method="overwrite", condition="data = 'a'", options=LOOK_BACK),)),
        Case("the same, rows came elsewhere", "testOverwriteFilterSerializableIsolation3", THEN_MORE, Frame(query="select 2L as id, 'b' as data", method="overwrite", condition="data = 'b'", options=SINCE), instead=(Frame(query="select 2L as id, 'b' as data", method="overwrite", condition="data = 'b'", options=LOOK_BACK),)),
        Case("an overwrite by condition that does not look back", "testOverwriteFilterNoSnapshotIdValidation", THEN_MORE, Frame(query="select 1L as id, 'a' as data", method="overwrite", condition="data = 'a'")),
        Case("an overwrite of partitions, rows came since", "testOverwritePartitionSerializableIsolation", THEN_MORE, Frame(query="select 1L as id, 'a' as data", method="overwritePartitions", options=SINCE), instead=(Frame(query="select 1L as id, 'a' as data", method="overwritePartitions", options=LOOK_BACK),)),
    ),
)

DEFAULTS: Final = Suite(
    "TestSparkDefaultValues",
    (
        Case("CREATE TABLE with defaults", "testCreateTableWithDefaultsUnsupported", (), "create table {t} (id int, data string default 'default-value')", SCHEMA, differs=HAS_DEFAULTS),
        Case("ADD COLUMN with a default", "testAlterTableAddColumnWithDefaultUnsupported", ("create table {t} (id int)", "insert into {t} values (1)"), "alter table {t} add column data string default 'default-value'", (SCHEMA, "select * from {t}"), differs=HAS_DEFAULTS),
        Case("INSERT of DEFAULT where there is none", "testWriteDefaultWithSparkDefaultKeyword, no default", PLAIN, "insert into {t} values (4, default)"),
    ),
)

TIMES: Final = Suite(
    "TestTimestampWithoutZone",
    (
        Case("columns without a zone", "testAppendTimestampWithoutZone", ("create table {t} (id bigint, ts timestamp_ntz, tsz timestamp)",), "insert into {t} values (1, timestamp_ntz'2021-01-01 00:00:00', timestamp'2021-01-01 00:00:00')", (SCHEMA, "select * from {t}")),
        Case("AS SELECT", "testCreateAsSelectWithTimestampWithoutZone", (), "create table {t} as select 1L as id, timestamp_ntz'2021-02-01 00:00:00' as ts, timestamp'2021-02-01 00:00:00' as tsz", (SCHEMA, "select * from {t}")),
        Case("TIMESTAMP means one without a zone by a setting", "testCreateNewTableShouldHaveTimestampWithoutZoneIcebergType", (), ("create table {t} (id bigint, ts timestamp)", "insert into {t} values (1, timestamp'2021-01-01 00:00:00')"), (SCHEMA, "select * from {t}"), conf={"spark.sql.timestampType": "TIMESTAMP_NTZ"}),
        Case("in another zone", "testAppendTimestampWithZone", ("create table {t} (id bigint, ts timestamp_ntz, tsz timestamp) partitioned by (days(tsz))",), "insert into {t} values (1, timestamp_ntz'2021-01-01 23:00:00', timestamp'2021-01-01 23:00:00')", ("select * from {t}", "select partition.* from {t}.partitions", "select id from {t} where tsz > timestamp'2021-01-01 22:59:00'"), conf={"spark.sql.session.timeZone": "America/New_York"}),
    ),
)

SUITES: Final = (UNPARTITIONED, PARTITIONED, CONFLICTS, DEFAULTS, TIMES)
