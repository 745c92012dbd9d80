"""SELECT: versions, filters, aggregates, views and caches; metadata tables."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import DELTA, Case, Suite, table
from tests.interop.sql_cases.reasons import NAN_IS_GREATEST, NO_ROWS_TAKEN, RENAMED

# fmt: off

ROWS: Final = table("id bigint, data string, float float", "(1, 'a', 1.0)", "(2, 'b', 2.0)", "(3, 'c', double('NaN'))")
TWICE: Final = (*ROWS, "insert into {t} values (4, 'd', 4.0), (5, 'e', 5.0)")
TAGGED: Final = (*ROWS, "+tag test_tag", "+branch test_branch", "insert into {t} values (4, 'd', 4.0), (5, 'e', 5.0)")
DAYS: Final = table(
    "id int, salary int, dep string, t timestamp",
    *(f"({i}, {100 * i}, 'd{i % 3}', timestamp_seconds({i * 100000}))" for i in range(6)),
)
TYPES: Final = table(
    "a boolean, b int, c bigint, d float, e double, f decimal(9, 2), g date, h timestamp, j string, k binary",
    "(true, 1, 10, 1.5, 2.5, 3.25, date'2020-01-01', timestamp'2020-01-01 10:00:00', 'x', x'01')",
    "(false, 2, 20, -1.5, -2.5, -3.25, date'1969-12-31', timestamp'1969-12-31 23:59:59.999999', 'ß', x'ff00')",
    "(null, null, null, null, null, null, null, null, null, null)",
)
VIEW: Final = (*table("id int, salary int", "(1, 100)", "(10, 1000)"), "create or replace temporary view tmp as select * from {t} where salary < 999")

SELECT: Final = Suite(
    "TestSelect",
    (
        Case("everything", "testSelect", ROWS),
        Case("NaN equals NaN", "testSelectRewrite", ROWS, (), ("select * from {t} where float = float('NaN')", "select * from {t} where float > 1")),
        Case("LIMIT", "selectWithLimit", ROWS, (), ("select * from {t} order by id limit 2", "select count(*) from (select * from {t} limit 2)")),
        Case("some columns", "testProjection", ROWS, (), "select id from {t} order by id"),
        Case("a condition", "testExpressionPushdown", ROWS, (), "select data from {t} where id = 2"),
        Case("the table of snapshots", "testMetadataTables", ROWS, (), "select parent_id, operation from {t}.snapshots"),
        Case("a snapshot by its name", "testSnapshotInTableName", TWICE, (), "select * from {t}.snapshot_id_{s1}"),
        Case("a time by its name", "testTimestampInTableName", TWICE, (), "select * from {t}.at_timestamp_{ms1}"),
        Case("VERSION AS OF a snapshot", "testVersionAsOf", TWICE, (), ("select * from {t} version as of {s1}", "select * from {t} for system_version as of {s1}")),
        Case("VERSION AS OF a tag", "testTagReference", TAGGED, (), ("select * from {t} version as of 'test_tag'", "select * from {t}.tag_test_tag")),
        Case("a tag whose name is a snapshot's number", "testUseSnapshotIdForTagReferenceAsOf", (*TWICE, "+tag {s1}"), (), ("select * from {t} version as of '{s1}'", "select * from {t} version as of {s1}")),
        Case("VERSION AS OF a branch", "testBranchReference", TAGGED, (), ("select * from {t} version as of 'test_branch'", "select * from {t}.branch_test_branch")),
        Case("a branch has the table's new columns, a snapshot its old ones", "readAndWriteWithBranchAfterSchemaChange", (*ROWS, "+branch b", "alter table {t} drop column float", "alter table {t} add column new_col date", "insert into {t} values (4, 'd', date'2024-04-04')"), "insert into {t}.branch_b values (6, 'f', date'2023-06-06')", ("select * from {t} version as of {s1}", "select * from {t} version as of 'b'", "select * from {t}.branch_b")),
        Case("a name that nothing has", "testUnknownReferenceAsOf", ROWS, ("select * from {t} version as of 'test_unknown'", "select * from {t} version as of 123", "select * from {t}.branch_nowhere", "select * from {t}.tag_nowhere"), ()),
        Case("TIMESTAMP AS OF", "testTimestampAsOf", TWICE, (), ("select * from {t} timestamp as of timestamp_millis({ms1})", "select * from {t} for system_time as of timestamp_millis({ms1})")),
        Case("TIMESTAMP AS OF a time before the first snapshot", "testTimestampAsOf, an error", ROWS, "select * from {t} timestamp as of '1970-01-01'", ()),
        Case("a version by name and by clause at once", "testInvalidTimeTravelAgainstBranchIdentifierWithAsOf", TAGGED, "select * from {t}.branch_test_branch version as of {s1}", ()),
        Case("a version and a time at once", "testSpecifySnapshotAndTimestamp", TWICE, "select * from {t} timestamp as of '2030-01-01' version as of {s1}", ()),
        Case("bytes in a filter", "testBinaryInFilter", table("id bigint, b binary", "(1, x'11')", "(2, x'1111')", "(3, x'12')"), (), ("select id from {t} where b > x'11'", "select id from {t} where b in (x'11', x'12')")),
        Case("arrays, maps and structs in a filter", "testComplexTypeFilter", table("id int, s struct<v1: int, v2: string>, a array<int>, m map<string, int>", "(1, named_struct('v1', 1, 'v2', 'x'), array(1, 2), map('k', 1))", "(2, named_struct('v1', 2, 'v2', 'y'), array(3), map('k', 2))"), (), ("select id from {t} where s = named_struct('v1', 1, 'v2', 'x')", "select id from {t} where a = array(3)", "select id from {t} where m['k'] = 2", "select id from {t} where s.v1 > 1")),
        Case("a required field of a struct that is null", "testRequiredNestedFieldInOptionalStructFilter", ("create table {t} (id int, s struct<x: int not null>)", "insert into {t} select id, if(id = 1, named_struct('x', 5), null) from (select explode(array(1, 2)) as id)"), (), ("select id from {t} where s.x is null", "select id from {t} where s.x is not null", "select id from {t} where s is null")),
        Case("filters of every simple type", "simpleTypesInFilter", TYPES, (), (*(f"select b from {{t}} where {column} = (select max({column}) from {{t}})" for column in "bcdefghjk"), "select b from {t} where a", "select b from {t} where not a", "select b from {t} where f >= 3.25 and g > date'2019-12-31' and h < timestamp'2021-01-01 00:00:00'")),
        Case("a version before a column was renamed, with a filter", "testTimeTravelFilterOnRenamedColumn", (*ROWS, "alter table {t} rename column id to new_id"), (), ("select * from {t} version as of {s1} where id = 2", "select * from {t} where new_id = 2"), differs=RENAMED),
        Case("the same with deletes", "testTimeTravelFilterOnRenamedColumnWithDeleteFiles", (*ROWS, "delete from {t} where id = 1", "alter table {t} rename column id to new_id", "delete from {t} where new_id = 2"), (), ("select * from {t} version as of {s2} where id >= 1", "select * from {t} where new_id >= 1"), modes=(DELTA,)),
        Case("metadata columns", "TestSparkMetadataColumns", (*table("id bigint, dep string", "(1, 'a')", "(2, 'b')", by="dep"), "+field bucket(2, id)", "insert into {t} values (3, 'c')"), (), "select id, _spec_id, _partition, _pos from {t}"),
        Case("rows that are deleted (_deleted)", "TestSparkReaderDeletes", (*ROWS, "delete from {t} where id = 1"), (), "select id, _deleted from {t}", modes=(DELTA,)),
        Case("columns with names that need quotes", "TestSparkSchemaUtil, names", table("`a-b` int, `c d` string, `e.f` int, `ü``x` date", "(1, 'x', 2, date'2020-01-01')", by="`a-b`, bucket(2, `c d`)"), "insert into {t} values (2, 'y', 3, null)", ("select `a-b`, `c d`, `e.f`, `ü``x` from {t} where `a-b` = 2 or `e.f` = 2", "describe {t}")),
        Case("metadata columns of rows", "TestSparkMetadataColumns, lineage", ROWS, (), ("select id, _pos, _row_id, _last_updated_sequence_number, _spec_id from {t}", "select count(distinct _file) from {t}")),
        Case("joins, subqueries, sets, windows", "TestSelect, queries", TWICE, (), ("select a.id, b.data from {t} a join {t} b on a.id = b.id + 1", "select * from {t} where id in (select id + 1 from {t} where data = 'a')", "select id from {t} except select id from {t} where id > 2", "select id, sum(float) over (order by id) from {t} where id > 3", "with c as (select * from {t}) select count(*), count(distinct data), max(float) from c")),
        Case("a table that is not there", "TestSelect, an error", (), "select * from {t}", ()),
        Case("DESCRIBE and SHOW", "TestSelect, definitions", table("id bigint, dep string", "(1, 'a')", by="dep, bucket(4, id)"), (), ("describe {t}", "show columns in {t}", "show tables in {db} like '{name}'", "show tblproperties {t} ('write.delete.mode')")),
    ),
)

PUSH_DOWN: Final = Suite(
    "TestFilterPushDown, TestAggregatePushDown",
    (
        *(
            Case(f"partitions by {by}", f"testFilterPushdownWith{of}", (f"create table {{t}} (id int, salary int, dep string, t timestamp) partitioned by ({by})", "insert into {t} select int(id), int(100 * id), concat('d', id % 3), timestamp_seconds(id * 1000000) from range(0, 6, 1, 1)"), (), filters)
            for by, of, filters in (
                ("dep", "IdentityTransform", ("select id from {t} where dep = 'd1' and id <= 3", "select id from {t} where dep in ('d1', 'd2')", "select id from {t} where dep <> 'd1'", "select id from {t} where dep like '%1'")),
                ("hours(t)", "HoursTransform", ("select id from {t} where t < timestamp'1970-01-12 13:46:40'", "select id from {t} where t >= timestamp'1970-01-12 13:46:40' and id < 4")),
                ("days(t)", "DaysTransform", ("select id from {t} where t < timestamp'1970-01-24 00:00:00'", "select id from {t} where date(t) = date'1970-01-12'")),
                ("months(t)", "MonthsTransform", ("select id from {t} where t < timestamp'1970-02-01 00:00:00'", "select id from {t} where t >= timestamp'1970-02-01 00:00:00'")),
                ("years(t)", "YearsTransform", ("select id from {t} where t < timestamp'1971-01-01 00:00:00'", "select id from {t} where year(t) = 1970")),
                ("bucket(4, id)", "BucketTransform", ("select dep from {t} where id = 2", "select dep from {t} where id in (1, 5) and dep = 'd1'")),
                ("truncate(1, dep)", "TruncateTransform", ("select id from {t} where dep like 'd%'", "select id from {t} where dep = 'd2' and salary > 200")),
            )
        ),
        Case("decimals", "testFilterPushdownWithDecimalValues", table("id int, salary decimal(10, 2), dep string", "(1, 100.01, 'd1')", "(2, 100.05, 'd1')", by="dep"), (), ("select id from {t} where dep = 'd1' and salary > 100.03", "select id from {t} where salary = 100.010")),
        Case("partitions that changed", "testFilterPushdownWithSpecEvolutionAndIdentityTransforms", (*DAYS, "+field dep", "insert into {t} values (9, 900, 'd1', null)", "+field days(t)", "insert into {t} values (10, 1000, 'd1', timestamp'1970-01-02 00:00:00')"), (), ("select id from {t} where dep = 'd1' and id > 3", "select id from {t} where t is null")),
        Case("NaN and infinity as partitions", "testFilterPushdownWithSpecialFloatingPointPartitionValues", table("id int, salary double", "(1, 100.5)", "(2, double('NaN'))", "(3, double('Infinity'))", "(4, double('-Infinity'))", by="salary"), (), ("select id from {t} where salary = 100.5", "select id from {t} where salary = double(double('NaN'))", "select id from {t} where salary <> double(double('NaN'))", "select id from {t} where salary = double('Infinity')", "select id from {t} where salary > 1", "select id from {t} where salary = double('-Infinity')"), differs=NAN_IS_GREATEST),
        Case("counts and bounds of every type", "testDifferentDataTypesAggregatePushDownInNonPartitionedTable", TYPES, (), "select count(*), " + ", ".join(f"max({c}), min({c}), count({c})" for c in "abcdefghjk") + " from {t}"),
        Case("the same after deletes", "testAggregatePushDownInMergeOnReadDelete", (*TYPES, "delete from {t} where b = 2"), (), "select count(*), max(b), min(b), count(j) from {t}", modes=(DELTA,)),
        Case("aggregates of a version", "testAggregatePushDownForTimeTravel", TWICE, (), ("select count(id) from {t} version as of {s1}", "select count(id), max(id) from {t}")),
        Case("only nulls", "testAllNull", table("id int, data int", "(1, null)", "(2, null)", by="id"), (), "select count(*), max(data), min(data), count(data) from {t}"),
        Case("only NaN, and some", "testNaN", table("id int, data float", "(1, double('NaN'))", "(1, 2)", "(2, double('NaN'))", by="id"), (), ("select count(*), max(data), min(data), count(data) from {t}", "select max(data), min(data) from {t} where id = 2")),
        Case("infinity", "testInfinity", table("id int, f float, d double", "(1, double('-Infinity'), double('Infinity'))", "(2, 1, double('-Infinity'))", by="id"), (), "select count(*), max(f), min(f), max(d), min(d) from {t}"),
        Case("aggregates with filters of partitions and rows", "testAggregatePushDownWithPartitionFilter", table("id int, data int", "(1, 11)", "(2, 22)", "(3, 33)", by="id"), (), ("select min(data), count(*) from {t} where id > 1", "select max(data) from {t} where data < 33")),
    ),
)

REFRESH: Final = Suite(
    "TestRefreshTable, TestCachedTableRefresh, TestTempViewRefresh",
    (
        Case("REFRESH TABLE", "testRefreshCommand", ROWS, "refresh table {t}"),
        Case("a cached table sees what the session writes", "testCachedTableWithSessionWrite", (*ROWS, "cache table {t}", "select count(*) from {t}"), "insert into {t} values (9, 'z', 0)"),
        Case("a cached table, and a new column", "testCachedTableWithSessionSchemaChangeAddColumn", (*ROWS, "cache table {t}"), ("alter table {t} add column more int", "insert into {t} values (9, 'z', 0, 1)")),
        Case("a cached table that is let go", "testCachedTableUncacheReflectsExternalChanges", (*ROWS, "cache table {t}"), ("insert into {t} values (9, 'z', 0)", "uncache table {t}")),
        Case("a view sees what the session writes", "testSessionWrite", VIEW, "insert into {t} values (2, 200)", "select * from tmp"),
        Case("a view, and a new column", "testSessionSchemaEvolutionAddColumn", VIEW, ("alter table {t} add column extra int", "insert into {t} values (2, 200, -1)"), "select * from tmp"),
        Case("a view, and a column that is dropped", "testSessionSchemaEvolutionDropColumn", VIEW, "alter table {t} drop column salary", "select * from tmp"),
        Case("a view, and a table that is made again", "testSessionDropAndRecreateTable", VIEW, ("drop table {t}", "create table {t} (id int, salary int)", "insert into {t} values (2, 200)"), "select * from tmp"),
        Case("a view, and a column that is dropped and made again", "testSessionDropAndAddColumnSameNameSameType", VIEW, ("alter table {t} drop column salary", "alter table {t} add column salary int", "insert into {t} values (3, 300)"), ("select * from tmp", "select * from {t}")),
        Case("a view, and a column of the same name and another type", "testSessionDropAndAddColumnSameNameDifferentType", VIEW, ("alter table {t} drop column salary", "alter table {t} add column salary string", "insert into {t} values (3, '300')"), "select * from tmp"),
        Case("a view, and a wider type", "testTypeWidening", VIEW, ("alter table {t} alter column salary type bigint", "insert into {t} values (3, 300)"), "select * from tmp"),
    ),
)

MANY: Final = table("id bigint, data string", "(1, 'a')", "(2, 'b')", "(3, 'a')", by="data", files=3)

METADATA: Final = Suite(
    "TestMetadataTables",
    (
        Case("files and entries", "testUnpartitionedTable", (*ROWS, "delete from {t} where id = 1"), (), ("select content, record_count, spec_id, file_format from {t}.files", "select status, data_file.content, data_file.record_count from {t}.entries", "select count(*) from {t}.data_files", "select content, record_count from {t}.delete_files", "select content, record_count from {t}.all_files"), modes=(DELTA,)),
        Case("with partitions", "testPartitionedTable", MANY, (), ("select content, partition.data, record_count from {t}.files", "select partition.data, spec_id, record_count, file_count from {t}.partitions", "select partition.data, record_count from {t}.files version as of {s1}")),
        Case("manifests", "testAllManifestsTableWithNegatedContentFilters", (*MANY, "delete from {t} where id = 1"), (), ("select content, added_data_files_count, existing_data_files_count, deleted_data_files_count, added_delete_files_count from {t}.manifests", "select content, added_data_files_count from {t}.all_manifests where content <> 0"), modes=(DELTA,)),
        Case("deleted positions", "testPositionDeletesTable", (*ROWS, "delete from {t} where id = 2"), (), "select pos, spec_id from {t}.position_deletes", modes=(DELTA,)),
        Case("files of all snapshots", "testAllFilesPartitioned", (*MANY, "delete from {t} where data = 'a'"), (), ("select content, partition.data, record_count from {t}.all_data_files", "select count(*) from {t}.all_entries where status = 1")),
        Case("the log of metadata", "testMetadataLogEntries", TWICE, (), "select latest_snapshot_id, latest_schema_id, latest_sequence_number from {t}.metadata_log_entries"),
        Case("a version, and columns that came later", "testFilesTableTimeTravelWithSchemaEvolution", (*ROWS, "alter table {t} add column category string", "insert into {t} values (4, 'd', 4, 'x')"), (), ("select record_count from {t}.files version as of {s1}", "select record_count, readable_metrics.category.value_count from {t}.files")),
        Case("refs", "testSnapshotReferencesMetatable", TAGGED, (), ("select name, type, snapshot_id, max_reference_age_in_ms, min_snapshots_to_keep, max_snapshot_age_in_ms from {t}.refs",)),
        Case("history and snapshots", "metadataLogEntriesAfterReplacingTable", (*TWICE, "create or replace table {t} as select 1 as a"), (), ("select snapshot_id, parent_id, is_current_ancestor from {t}.history", "select snapshot_id, parent_id, operation from {t}.snapshots")),
        Case("a metadata table takes no rows", "TestMetadataTables, an error", ROWS, ("insert into {t}.refs select * from {t}.refs", "delete from {t}.snapshots"), differs=NO_ROWS_TAKEN),
        Case("bounds that can be read", "TestMetadataTables, readable_metrics", TYPES, (), "select " + ", ".join(f"readable_metrics.{c}.lower_bound, readable_metrics.{c}.upper_bound, readable_metrics.{c}.null_value_count" for c in "abcdefghjk") + " from {t}.files"),
    ),
)

SUITES: Final = (SELECT, PUSH_DOWN, REFRESH, METADATA)
