"""CREATE, ALTER and DROP of tables, namespaces, and Iceberg's own DDL."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import LOCATION, ORDER, PROPERTIES, REFS, SCHEMA, SPEC, Case, Frame, Suite, table
from tests.interop.sql_cases.reasons import (
    AT_VERSION,
    CHECKED_AT_ONCE,
    HAS_DEFAULTS,
    NO_EMPTY_BRANCH,
    NO_OWNER,
    SPARKS_ERROR,
    VERSION_3,
)

# fmt: off

EMPTY: Final = ("create table {t} (id bigint not null, data string)",)
FULL: Final = (*EMPTY, "insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
SOURCE: Final = "(values (1L, 'a'), (2L, 'b'), (3L, 'c') as v(id, data))"

CREATE: Final = Suite(
    "TestCreateTable",
    (
        Case("columns, one of them required", "testCreateTable", (), EMPTY, (SCHEMA, SPEC, "select * from {t}")),
        Case("transforms in other letters, IF NOT EXISTS", "testTransformIgnoreCase", (), ("create table if not exists {t} (id bigint not null, ts timestamp) using iceberg partitioned by (HOURS(ts))", "create table if not exists {t} (id bigint not null, ts timestamp) using iceberg partitioned by (hours(ts))"), SPEC),
        Case("transforms in the singular", "testTransformSingularForm", (), "create table {t} (id bigint, ts timestamp) partitioned by (hour(ts))", SPEC),
        Case("a table that is there", "testCreateTable twice", EMPTY, ("create table {t} (id bigint)", "create table if not exists {t} (id bigint)"), SCHEMA),
        Case("USING parquet", "testCreateTableUsingParquet", (), "create table {t} (id bigint not null, data string) using parquet", SCHEMA),
        Case("USING what is no format", "testCreateTableUsingParquet, an error", (), "create table {t} (id bigint) using crocodile", SCHEMA),
        Case("partitions by column, bucket and days", "testCreateTablePartitionedBy", (), "create table {t} (id bigint not null, created_at timestamp, category string) using iceberg partitioned by (category, bucket(8, id), days(created_at))", (SCHEMA, SPEC)),
        Case("partitions by truncate, months, years", "testTransformPluralForm", (), "create table {t} (a string, b timestamp, c date) partitioned by (truncate(4, a), months(b), years(c))", SPEC),
        Case("comments of columns", "testCreateTableColumnComments", (), "create table {t} (id bigint not null comment 'the id', data string comment 'its value')", SCHEMA),
        Case("comments of fields", "testCreateTableColumnComments, nested", (), "create table {t} (s struct<x: int comment 'an x', y: array<struct<z: int comment 'a z'>>>)", SCHEMA),
        Case("a comment of the table", "testCreateTableComment", (), "create table {t} (id bigint) comment 'Table doc'", (SCHEMA, PROPERTIES)),
        Case("LOCATION", "testCreateTableLocation", (), "create table {t} (id bigint) location '{place}/elsewhere'", (SCHEMA, LOCATION)),
        Case("properties", "testCreateTableProperties", (), "create table {t} (id bigint) tblproperties (p1 = 2, p2 = 'x')", PROPERTIES),
        Case("properties of commits that are no numbers", "testCreateTableCommitProperties", (), "create table {t} (id bigint) tblproperties ('commit.retry.num-retries' = 'x', p2 = 'x')", PROPERTIES),
        Case("properties of commits", "testCreateTableCommitProperties", (), "create table {t} (id bigint) tblproperties ('commit.retry.num-retries' = '1', 'commit.retry.max-wait-ms' = '3000')", PROPERTIES),
        Case("properties of commits that are no numbers, later", "testCreateTableCommitProperties, ALTER", EMPTY, ("alter table {t} set tblproperties ('commit.retry.num-retries' = 'x')", "insert into {t} values (1, 'a')", "alter table {t} unset tblproperties ('commit.retry.num-retries')", "insert into {t} values (2, 'b')"), differs=CHECKED_AT_ONCE),
        Case("format version 2", "testCreateTableWithFormatV2ThroughTableProperty", (), "create table {t} (id bigint) tblproperties ('format-version' = '2')", SCHEMA, differs=VERSION_3),
        Case("a format version that is lower than the table's", "testDowngradeTableToFormatV1ThroughTablePropertyFails", EMPTY, "alter table {t} set tblproperties ('format-version' = '1')", PROPERTIES),
        Case("a table without a namespace", "testCreateTableInRootNamespace", (), "create table {cat}.{name} (id bigint)", ()),
        Case("all types", "TestCreateTable, other types", (), "create table {t} (a boolean, b int, c bigint, d float, e double, f decimal(9, 2), g date, h timestamp, i timestamp_ntz, j string, k binary, l struct<x: int not null, y: array<string>>, m map<string, struct<z: int>>)", (SCHEMA, "select * from {t}")),
        Case("a column twice", "TestCreateTable, an error of Spark's", (), "create table {t} (id bigint, ID string)", SCHEMA),
        Case("a partition by a column that is not there", "TestCreateTable, an error", (), "create table {t} (id bigint) partitioned by (data)", SPEC),
    ),
)

CTAS: Final = Suite(
    "TestCreateTableAsSelect",
    (
        Case("AS SELECT", "testUnpartitionedCTAS", (), f"create table {{t}} using iceberg as select * from {SOURCE}", (SCHEMA, SPEC, "select * from {t}")),
        Case("AS SELECT with partitions", "testPartitionedCTAS", (), f"create table {{t}} partitioned by (id) as select * from {SOURCE} order by id", (SCHEMA, SPEC, "select * from {t}")),
        Case("REPLACE AS SELECT", "testRTAS", FULL, f"replace table {{t}} using iceberg partitioned by (part) tblproperties ('prop1' = 'val1') as select id, data, id % 2 as part from {SOURCE}", (SCHEMA, SPEC, PROPERTIES, "select * from {t}", "select count(*) from {t}.snapshots")),
        Case("REPLACE of what is not there", "testRTAS, an error", (), f"replace table {{t}} as select * from {SOURCE}", SCHEMA),
        Case("CREATE OR REPLACE AS SELECT, twice", "testCreateRTAS", (), (f"create or replace table {{t}} partitioned by (part) as select id, data, id % 2 as part from {SOURCE}", f"create or replace table {{t}} partitioned by (part) as select 2 * id as id, data, id % 2 as part from {SOURCE}"), (SCHEMA, SPEC, "select * from {t}")),
        Case("CREATE OR REPLACE with other partitions", "testCreateRTASWithPartitionSpecChanging", FULL, (f"create or replace table {{t}} partitioned by (data) as select * from {SOURCE}", f"create or replace table {{t}} partitioned by (bucket(2, id)) as select * from {SOURCE}"), (SCHEMA, SPEC, "select * from {t}")),
        Case("CREATE OR REPLACE keeps properties", "testRTAS, properties", ("create table {t} (id bigint) tblproperties ('prop1' = 'val1', 'prop2' = 'val2')",), f"create or replace table {{t}} tblproperties ('prop1' = 'newval1', 'prop3' = 'val3') as select * from {SOURCE}", PROPERTIES),
        Case("writeTo().create()", "testDataFrameV2Create", (), Frame(query=f"select * from {SOURCE}", method="create"), (SCHEMA, "select * from {t}")),
        Case("writeTo().replace()", "testDataFrameV2Replace", FULL, Frame(query=f"select 2 * id as id, data from {SOURCE}", method="replace", by="data"), (SCHEMA, SPEC, "select * from {t}")),
        Case("writeTo().createOrReplace()", "testDataFrameV2CreateOrReplace", FULL, Frame(query=f"select 2 * id as id from {SOURCE}", method="createOrReplace"), (SCHEMA, SPEC, "select * from {t}")),
        Case("AS SELECT into a table that is there", "testUnpartitionedCTAS twice", FULL, (f"create table {{t}} as select 5L as id from {SOURCE}", f"create table if not exists {{t}} as select 5L as id from {SOURCE}")),
        Case("AS SELECT of a query that fails", "TestCreateTableAsSelect, an error", (), f"create table {{t}} as select raise_error('no') as a from {SOURCE}", SCHEMA),
    ),
)

ALTER: Final = Suite(
    "TestAlterTable",
    (
        Case("a new column that is required", "testAddColumnNotNull", EMPTY, "alter table {t} add column c3 int not null", SCHEMA),
        Case("new columns, with comments and places", "testAddColumn", FULL, ("alter table {t} add column point struct<x: double not null, y: double not null>", "alter table {t} add column point.z double comment 'May be null' first", "alter table {t} add columns (a int after id, b string comment 'b')"), (SCHEMA, "select * from {t}")),
        Case("a new array, and a field of its elements", "testAddColumnWithArray", EMPTY, ("alter table {t} add column data2 array<struct<a: int>>", "alter table {t} add column data2.element.b int"), SCHEMA),
        Case("a new map, a field of its values, of its keys", "testAddColumnWithMap", EMPTY, ("alter table {t} add column data2 map<struct<x: int>, struct<a: int>>", "alter table {t} add column data2.value.b int", "alter table {t} add column data2.key.y int"), SCHEMA),
        Case("a new column with a default", "testAddColumnWithDefaultValuesUnsupported", FULL, "alter table {t} add column col_with_default int default 123", (SCHEMA, "select * from {t}"), differs=HAS_DEFAULTS),
        Case("DROP COLUMN", "testDropColumn", FULL, "alter table {t} drop column data", (SCHEMA, "select * from {t}")),
        Case("DROP of what is not there", "testDropColumn, an error", EMPTY, "alter table {t} drop column nothing", SCHEMA),
        Case("RENAME COLUMN", "testRenameColumn", FULL, "alter table {t} rename column id to row_id", (SCHEMA, "select * from {t}")),
        Case("RENAME to a name that is taken", "testRenameColumn, an error", EMPTY, "alter table {t} rename column id to data", SCHEMA),
        Case("a comment", "testAlterColumnComment", EMPTY, "alter table {t} alter column id comment 'Record id'", SCHEMA),
        Case("a wider type", "testAlterColumnType", (*FULL, "alter table {t} add column count int"), "alter table {t} alter column count type bigint", (SCHEMA, "select * from {t}")),
        Case("a narrower type", "testAlterColumnType, an error", EMPTY, ("alter table {t} alter column id type int", "alter table {t} alter column data type int"), SCHEMA),
        Case("DROP NOT NULL", "testAlterColumnDropNotNull", EMPTY, ("alter table {t} alter column id drop not null", "insert into {t} values (null, 'x')"), (SCHEMA, "select * from {t}")),
        Case("SET NOT NULL", "testAlterColumnSetNotNull", FULL, ("alter table {t} alter column data set not null",), SCHEMA),
        Case("AFTER and FIRST", "testAlterColumnPositionAfter", (*FULL, "alter table {t} add column count int"), ("alter table {t} alter column count after id", "alter table {t} alter column data first"), (SCHEMA, "select * from {t}")),
        Case("RENAME TABLE", "testTableRename", FULL, "alter table {t} rename to {db}.{name}_b", ("select * from {t}_b", "select * from {t}")),
        Case("RENAME to a table that is there", "testTableRename, an error", (*FULL, "create table {t}_b (id bigint)"), "alter table {t} rename to {db}.{name}_b"),
        Case("SET and UNSET TBLPROPERTIES", "testSetTableProperties", EMPTY, ("alter table {t} set tblproperties ('prop' = 'value', 'other' = 'x')", "alter table {t} unset tblproperties ('prop')"), PROPERTIES),
        Case("UNSET of a property that is not there", "testSetTableProperties, an error", EMPTY, ("alter table {t} unset tblproperties ('nothing')", "alter table {t} unset tblproperties if exists ('nothing')"), PROPERTIES),
        Case("properties that are Iceberg's own words", "testSetTableProperties, reserved", EMPTY, ("alter table {t} set tblproperties ('sort-order' = 'value')", "alter table {t} set tblproperties ('identifier-fields' = 'value')"), PROPERTIES),
        Case("the column that partitions is dropped", "TestAlterTable, an error", table("id int, dep string", "(1, 'a')", by="dep"), "alter table {t} drop column dep", (SCHEMA, SPEC, "select * from {t}")),
    ),
)

DROP: Final = Suite(
    "TestDropTable",
    (
        Case("DROP TABLE", "testDropTable", FULL, "drop table {t}", ("select * from {t}", "show tables in {db} like '{name}'")),
        Case("DROP of what is not there", "testDropTable, an error", (), ("drop table {t}", "drop table if exists {t}"), ()),
        Case("DROP where files may not be deleted", "testDropTableGCDisabled", (*FULL, "alter table {t} set tblproperties ('gc.enabled' = 'false')"), "drop table {t}", "select * from {t}"),
        Case("DROP PURGE", "testPurgeTable", FULL, "drop table {t} purge", ("select * from {t}",)),
        Case("DROP PURGE where files may not be deleted", "testPurgeTableGCDisabled", (*FULL, "alter table {t} set tblproperties ('gc.enabled' = 'false')"), "drop table {t} purge", "select * from {t}"),
    ),
)

NAMESPACES: Final = Suite(
    "TestNamespaceSQL",
    (
        Case("CREATE NAMESPACE", "testCreateNamespace", (), "create namespace {ns}", ("show namespaces in {cat} like '{only}'", "describe namespace {ns}"), differs=NO_OWNER),
        Case("CREATE NAMESPACE twice", "testCreateNamespace, an error", (), ("create namespace {ns}", "create namespace {ns}", "create namespace if not exists {ns}"), ()),
        Case("DROP of an empty one", "testDropEmptyNamespace", ("create namespace {ns}",), "drop namespace {ns}", "show namespaces in {cat} like '{only}'"),
        Case("DROP of one with tables", "testDropNonEmptyNamespace", ("create namespace {ns}", "create table {ns}.t (id bigint)"), ("drop namespace {ns}", "drop table {ns}.t", "drop namespace {ns}"), "show namespaces in {cat} like '{only}'", differs=SPARKS_ERROR),
        Case("SHOW TABLES", "testListTables", ("create namespace {ns}", "create table {ns}.t (id bigint)"), (), ("show tables in {ns}",)),
        Case("SHOW NAMESPACES", "testListNamespace", ("create namespace {ns}",), (), ("show namespaces in {cat} like '{only}'", "show namespaces in {ns}")),
        Case("properties", "testCreateNamespaceWithMetadata", (), "create namespace {ns} with properties ('prop' = 'value')", "describe namespace extended {ns}", differs=NO_OWNER),
        Case("a comment", "testCreateNamespaceWithComment", (), "create namespace {ns} comment 'namespace doc'", "describe namespace extended {ns}", differs=NO_OWNER),
        Case("LOCATION", "testCreateNamespaceWithLocation", (), "create namespace {ns} location '{place}/ns'", "describe namespace extended {ns}", differs=NO_OWNER),
        Case("SET PROPERTIES", "testSetProperties", ("create namespace {ns} with properties ('a' = 'b')",), "alter namespace {ns} set properties ('a' = 'c', 'prop' = 'value')", "describe namespace extended {ns}", differs=NO_OWNER),
        Case("DROP of what is not there", "testDropEmptyNamespace, an error", (), ("drop namespace {ns}", "drop namespace if exists {ns}"), ()),
    ),
)

OWN: Final = Suite(
    "TestBranchDDL, TestTagDDL, TestAlterTablePartitionFields, TestSetWriteDistributionAndOrdering",
    (
        Case("CREATE BRANCH", "testCreateBranch", FULL, "alter table {t} create branch b", REFS, ("call {cat}.system.create_branch('{id}', 'b')",)),
        Case("CREATE BRANCH, with what it keeps", "testCreateBranchUseCustomMinSnapshotsToKeepAndMaxSnapshotAge", FULL, "alter table {t} create branch b as of version {s1} retain 10 days with snapshot retention 5 snapshots 7 days", REFS, ("call {cat}.system.create_branch('{id}', 'b', {s1}, 864000000, 604800000, 5)",)),
        Case("CREATE BRANCH in an empty table", "testCreateBranchOnEmptyTable", EMPTY, "alter table {t} create branch b", (REFS, "select * from {t}.branch_b"), ("call {cat}.system.create_branch('{id}', 'b')",), differs=NO_EMPTY_BRANCH),
        Case("DROP BRANCH", "testDropBranch", (*FULL, "+branch b"), "alter table {t} drop branch b", REFS, ("call {cat}.system.drop_branch('{id}', 'b')",)),
        Case("DROP BRANCH main", "testDropMainBranchFails", FULL, "alter table {t} drop branch main", REFS, ("call {cat}.system.drop_branch('{id}', 'main')",)),
        Case("DROP BRANCH of a tag, of nothing", "testDropBranchFailsForTag", (*FULL, "+tag b"), ("alter table {t} drop branch b", "alter table {t} drop branch nothing"), REFS, ("call {cat}.system.drop_branch('{id}', 'b')", "call {cat}.system.drop_branch('{id}', 'nothing')")),
        Case("CREATE TAG", "testCreateTagWithRetain", FULL, "alter table {t} create tag b as of version {s1} retain 10 days", REFS, ("call {cat}.system.create_tag('{id}', 'b', {s1}, 864000000)",)),
        Case("CREATE TAG in an empty table", "testCreateTagOnEmptyTable", EMPTY, "alter table {t} create tag b", REFS, ("call {cat}.system.create_tag('{id}', 'b')",)),
        Case("a tag takes no rows", "testCreateTagWithRetain, an insert", (*FULL, "+tag b"), "insert into {t}.tag_b values (9, 'x')", differs=AT_VERSION),
        Case("DROP TAG", "testDropTag", (*FULL, "+tag b"), "alter table {t} drop tag b", REFS, ("call {cat}.system.drop_tag('{id}', 'b')",)),
        Case("ADD PARTITION FIELD", "testAddBucketPartition", FULL, ("alter table {t} add partition field bucket(16, id) as shard", "insert into {t} values (4, 'd')"), (SPEC, "select * from {t}"), ("call {cat}.system.add_partition_field('{id}', 'bucket(16, id)', 'shard')", "insert into {t} values (4, 'd')")),
        Case("DROP PARTITION FIELD", "testDropPartitionByName", table("id int, dep string", "(1, 'a')", by="dep, bucket(16, id)"), ("alter table {t} drop partition field bucket(16, id)", "insert into {t} values (2, 'b')"), (SPEC, "select * from {t}"), ("call {cat}.system.drop_partition_field('{id}', 'bucket(16, id)')", "insert into {t} values (2, 'b')")),
        Case("ADD PARTITION FIELD of what is not there", "testAddPartition, an error", FULL, "alter table {t} add partition field nothing", SPEC, ("call {cat}.system.add_partition_field('{id}', 'nothing')",)),
        Case("WRITE ORDERED BY", "testSetWriteOrderByColumn", FULL, "alter table {t} write ordered by data desc nulls last, bucket(4, id)", ORDER, ("call {cat}.system.set_write_order('{id}', 'data desc nulls last, bucket(4, id)')",)),
    ),
)

SUITES: Final = (CREATE, CTAS, ALTER, DROP, NAMESPACES, OWN)
