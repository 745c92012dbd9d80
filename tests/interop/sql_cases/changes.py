"""UPDATE, DELETE and TRUNCATE, and the row ids that changes keep."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import BOTH, COPY, DELTA, Case, Suite, table, values
from tests.interop.sql_cases.merge import NESTED, STRICT, UPSERT, merge
from tests.interop.sql_cases.reasons import AT_VERSION, FEWER_ROWS, NO_CHANGE, NO_STAGING, WHOLE_FILE, WHOLE_FILE_BY_DELTA, together

# fmt: off

STAFF: Final = ("id int, dep string", "(1, 'hr')", "(2, 'hardware')", "(null, 'hr')")
PEOPLE: Final = table(*STAFF)
BY_DEP: Final = table(*STAFF, by="dep")
THREE_FILES: Final = table(*STAFF, files=3)
THREE_FILES_BY_DEP: Final = table("id int, dep string", "(1, 'hr')", "(2, 'hardware')", "(3, 'hr')", by="dep", files=3)
IDS: Final = values("value", "(0)", "(1)", "(null)")
DEPS: Final = values("value", "('software')", "('hr')")
GRID: Final = table("id int, dep string", *(f"({i}, '{dep}')" for i in range(3) for dep in ("hr", "ops")), by="dep", files=2)


def update(changes: str, where: str = "") -> str:
    """Return an UPDATE statement."""
    return f"update {{t}} t set {changes}{f' where {where}' if where else ''}"


def delete(where: str = "") -> str:
    """Return a DELETE statement."""
    return f"delete from {{t}} t{f' where {where}' if where else ''}"


UPDATE: Final = Suite(
    "TestUpdate",
    (
        Case("an empty table", "testUpdateEmptyTable", table("id int, dep string"), (update("dep = 'x'", "id in (1)"), update("id = -1", "dep = 'hr'")), modes=BOTH, differs=NO_CHANGE),
        Case("a branch that is not there", "testUpdateNonExistingCustomBranch", PEOPLE, "update {t}.branch_nowhere set id = -1"),
        Case("a branch", "testUpdateWithAlias on a branch", (*PEOPLE, "+branch side"), "update {t}.branch_side set id = -1 where dep = 'hardware'", ("select * from {t}", "select * from {t}.branch_side"), modes=BOTH),
        Case("an alias", "testUpdateWithAlias", BY_DEP, update("t.dep = 'invalid'"), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("assignments in another order than the columns", "testUpdateAlignsAssignments", table("id int, c1 int, c2 int", "(1, 11, 111)", "(2, 22, 222)"), update("`c2` = c2 - 2, c1 = `c1` - 1", "id <=> 1"), modes=BOTH),
        Case("a condition that partitions cannot answer", "testUpdateWithUnsupportedPartitionPredicate", BY_DEP, update("`t`.`id` = -1", "t.dep like '%r'")),
        Case("one file of two", "testUpdateWithDynamicFileFiltering", THREE_FILES_BY_DEP, update("id = cast('-1' as int)", "id = 2"), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("no row is found", "testUpdateNonExistingRecords", PEOPLE, update("id = -1", "id > 10"), modes=BOTH, differs=NO_CHANGE),
        Case("every row", "testUpdateWithoutCondition", THREE_FILES_BY_DEP, update("id = -1"), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("nulls in conditions", "testUpdateWithNullConditions", table("id int, dep string", "(0, null)", "(1, 'hr')"), (update("id = -1", "dep = null"), update("id = -1", "dep = 'software'"), update("dep = 'invalid', id = -1", "dep <=> null")), differs=NO_CHANGE),
        Case("IN and NOT IN", "testUpdateWithInAndNotInConditions", PEOPLE, (update("id = -1", "id in (1, null)"), update("id = 100", "id not in (null, 1)"), update("id = 100", "id not in (1, 10)")), modes=BOTH, differs={COPY: NO_CHANGE, DELTA: together(NO_CHANGE, WHOLE_FILE)}),
        Case("fields of structs", "testUpdateNestedStructFields", table("id int, s struct<c1: int, c2: struct<a: array<int>, m: map<string, string>>>", "(1, named_struct('c1', 2, 'c2', named_struct('a', array(1, 2), 'm', map('a', 'b'))))"), (update("s.c1 = -1, s.c2.m = map('k', 'v'), s.c2.a = array(-1)"), update("s.c1 = null, s.c2 = null", "id in (1)")), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("a field of a struct that is null", "testUpdateModifiesNullStruct", table("id int, s struct<n1: int, n2: int>", "(1, null)"), update("s.n1 = -1", "id = 1"), modes=(DELTA,), differs=WHOLE_FILE),
        Case("casts that Spark adds", "testUpdateWithInferredCasts", table("id int, s string", "(1, 'value')"), update("s = -1", "id = 1")),
        Case("what was cached is made again", "testUpdateRefreshesRelationCache", (*THREE_FILES, "create or replace temporary view tmp as select * from {t} where id = 1", "cache table tmp"), update("id = -1", "id = 1"), ("select * from tmp", "select * from {t}")),
        Case("IN a subquery", "testUpdateWithInSubquery", PEOPLE, (update("id = -1", f"id in (select value from {IDS}) and dep in (select value from {DEPS})"), update("id = 5", f"id is null or id in (select value + 1 from {IDS})")), modes=BOTH, differs={COPY: FEWER_ROWS, DELTA: WHOLE_FILE}),
        Case("IN a subquery of the same table", "testUpdateWithSelfSubquery", PEOPLE, (update("dep = 'x'", "id in (select id + 1 from {t})"), update("dep = 'y'", "id = (select max(id) from {t})")), modes=BOTH, differs={COPY: FEWER_ROWS, DELTA: WHOLE_FILE}),
        Case("IN a subquery of several columns", "testUpdateWithMultiColumnInSubquery", PEOPLE, update("dep = 'x', id = -1", "(id, dep) in (select id, dep from " + values("id, dep", "(null, 'hr')", "(1, 'hr')") + ")")),
        Case("NOT IN a subquery with and without nulls", "testUpdateWithNotInSubquery", PEOPLE, (update("id = -1", f"id not in (select value from {IDS})"), update("id = -1", f"id not in (select value from {IDS} where value is not null)")), differs=NO_CHANGE),
        Case("EXISTS", "testUpdateWithExistSubquery", PEOPLE, update("id = -1", f"exists (select 1 from {IDS} d where t.id = d.value) or t.id is null"), modes=(DELTA,)),
        Case("NOT EXISTS", "testUpdateWithNotExistsSubquery", PEOPLE, update("id = -1", f"not exists (select 1 from {IDS} d where t.id = d.value + 2)")),
        Case("a scalar subquery", "testUpdateWithScalarSubquery", PEOPLE, update("id = -1", f"id <= (select min(value) + 1 from {IDS})"), modes=(DELTA,)),
        Case("rows of many files and partitions", "testUpdateThatRequiresGroupingBeforeWrite", GRID, update("id = -1", "id in (select 1)"), modes=BOTH),
        Case("the column that partitions", "testUpdateModifyPartitionSourceField", THREE_FILES_BY_DEP, update("id = -1, dep = 'other'", "id in (1, 3)"), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("a partition by a constant", "testUpdateWithStaticPredicatePushdown", THREE_FILES_BY_DEP, update("id = -1", "dep in ('hr') and id < 3")),
        Case("an element of an array, a map's value", "testUpdateWithInvalidUpdates", table("id int, a array<struct<c1: int>>, m map<string, string>", "(0, array(named_struct('c1', 1)), map('k', 'v'))"), (update("a.c1 = 1"), update("m.key = 'new'"))),
        Case("assignments that conflict", "testUpdateWithConflictingAssignments", NESTED, (update("t.id = 1, t.s.n1 = 2, t.id = 2"), update("t.s.n1 = 1, t.id = 2, t.s.n1 = 2"), update("s.n1 = 1, s = named_struct('n1', 1, 'n2', null)"))),
        Case("assignments of other types, ANSI", "testUpdateWithInvalidAssignmentsAnsi", STRICT, (update("t.id = cast(null as int)"), update("t.s.n1 = null"), update("t.s.n1 = 'str'"), update("t.s.n2 = named_struct('dn3', 1, 'dn1', 2)")), conf={"spark.sql.storeAssignmentPolicy": "ansi"}),
        Case("assignments of other types, strict", "testUpdateWithInvalidAssignmentsStrict", STRICT, (update("t.id = null"), update("t.s.n1 = 'str'")), conf={"spark.sql.storeAssignmentPolicy": "strict"}),
        Case("a condition that is not deterministic", "testUpdateWithNonDeterministicCondition", PEOPLE, update("id = -1", "id = 1 and rand() > 0.5")),
        Case("what is no table of Iceberg's", "testUpdateOnNonIcebergTableNotSupported", (*PEOPLE, "create or replace temporary view testtable as select 1 as c1"), "update testtable set c1 = -1"),
        Case("a branch for audits (spark.wap.branch)", "testUpdateToWAPBranch", (*PEOPLE, "alter table {t} set tblproperties ('write.wap.enabled' = 'true')"), update("dep = 'x'", "id = 1"), conf={"spark.wap.branch": "wap"}, differs=NO_STAGING),
        Case("EXPLAIN changes nothing", "testExplain", PEOPLE, ("explain update {t} set dep = 'x' where id <=> 1",), ("select * from {t}", "select count(*) from {t}.snapshots")),
    ),
)

DELETE: Final = Suite(
    "TestDelete",
    (
        Case("whole partitions", "testDeleteWithoutScanningTable", THREE_FILES_BY_DEP, delete("dep = 'hr'"), modes=BOTH),
        Case("rows, then the whole file", "testDeleteFileThenMetadataDelete", PEOPLE, (delete("t.id is null"), delete("t.id = 1")), modes=BOTH),
        Case("rows of a partition, then the partition", "testDeleteWithPartitionedTable", THREE_FILES_BY_DEP, (delete("id = 1"), delete("dep = 'hr'")), ("select * from {t}", "select partition.dep, record_count from {t}.partitions"), modes=BOTH),
        Case("a condition that is false", "testDeleteWithFalseCondition", PEOPLE, delete("id = 1 and id > 20"), modes=BOTH, differs=NO_CHANGE),
        Case("an empty table", "testDeleteFromEmptyTable", table("id int, dep string"), (delete("id in (1)"), delete("dep = 'hr'")), modes=BOTH, differs=NO_CHANGE),
        Case("a branch that is not there", "testDeleteFromNonExistingCustomBranch", PEOPLE, "delete from {t}.branch_nowhere where id in (1)"),
        Case("a branch", "testDeleteWithAlias on a branch", (*PEOPLE, "+branch side"), "delete from {t}.branch_side where id in (select 1)", ("select * from {t}", "select * from {t}.branch_side"), modes=BOTH),
        Case("EXPLAIN changes nothing", "testExplain", PEOPLE, ("explain delete from {t} where id <=> 1", "explain delete from {t} where true"), ("select * from {t}", "select count(*) from {t}.snapshots")),
        Case("an alias", "testDeleteWithAlias", PEOPLE, delete("t.id is null")),
        Case("one file of three", "testDeleteWithDynamicFileFiltering", THREE_FILES_BY_DEP, delete("id = 2"), modes=BOTH),
        Case("no row is found", "testDeleteNonExistingRecords", PEOPLE, delete("t.id > 10"), modes=BOTH, differs=NO_CHANGE),
        Case("one row of a file", "deleteSingleRecordProducesDeleteOperation", table("id int, dep string", "(1, 'eng')", "(2, 'eng')", "(3, 'eng')"), delete("id = 2"), modes=BOTH),
        Case("every row", "testDeleteWithoutCondition", THREE_FILES_BY_DEP, "delete from {t}", modes=BOTH),
        Case("whole files by a condition of several parts", "testDeleteUsingMetadataWithComplexCondition", table("id int, dep string", "(1, 'dep1')", "(2, 'dep2')", "(null, 'dep3')", by="dep", files=3), delete("dep > 'dep2' or dep = cast(4 as string) or dep = 'dep2'"), modes=BOTH),
        Case("a condition that partitions cannot answer", "testDeleteWithArbitraryPartitionPredicates", THREE_FILES_BY_DEP, delete("id = 10 or dep like '%ware'"), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("a condition that is not deterministic", "testDeleteWithNonDeterministicCondition", PEOPLE, delete("id = 1 and rand() > 0.5")),
        Case("conditions that are known before a row is read", "testDeleteWithFoldableConditions", PEOPLE, (delete("false"), delete("50 <> 50"), delete("1 > null"), delete("21 = 21"))),
        Case("nulls in conditions", "testDeleteWithNullConditions", table("id int, dep string", "(0, null)", "(1, 'hr')", "(null, 'hr')", by="dep"), (delete("dep = null"), delete("dep = 'software'"), delete("dep <=> null")), modes=BOTH, differs=NO_CHANGE),
        Case("IN and NOT IN", "testDeleteWithInAndNotInConditions", PEOPLE, (delete("id in (1, null)"), delete("id not in (null, 1)"), delete("id not in (1, 10)")), modes=BOTH),
        Case("a field of a struct", "testDeleteWithConditionOnNestedColumn", table("id int, complex struct<c1: int, c2: string>", "(1, named_struct('c1', 3, 'c2', 'v1'))", "(2, named_struct('c1', 2, 'c2', 'v2'))", files=2), (delete("complex.c1 = id + 2"), delete("t.complex.c1 = id"))),
        Case("a field of a struct and a constant", "testDeleteWithFilterOnNestedColumn", table("id int, complex struct<c1: int, c2: string>", "(1, named_struct('c1', 3, 'c2', 'v1'))", "(2, named_struct('c1', 2, 'c2', 'v2'))"), (delete("complex.c1 > 3"), delete("complex.c1 = 3")), modes=BOTH, differs=NO_CHANGE),
        Case("IN a subquery", "testDeleteWithInSubquery", PEOPLE, (delete(f"id in (select value from {IDS}) and dep in (select value from {DEPS})"), delete(f"id is null or id in (select value + 2 from {IDS})")), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("IN a subquery of several columns", "testDeleteWithMultiColumnInSubquery", PEOPLE, delete("(id, dep) in (select id, dep from " + values("id, dep", "(null, 'hr')", "(1, 'hr')") + ")")),
        Case("NOT IN a subquery with and without nulls", "testDeleteWithNotInSubquery", PEOPLE, (delete(f"id not in (select value from {IDS})"), delete(f"id not in (select value from {IDS} where value is not null)")), modes=(DELTA,), differs=NO_CHANGE),
        Case("EXISTS", "testDeleteWithExistSubquery", PEOPLE, delete(f"exists (select 1 from {IDS} d where t.id = d.value) and exists (select 1 from {DEPS} e where t.dep = e.value)")),
        Case("NOT EXISTS", "testDeleteWithNotExistsSubquery", PEOPLE, delete(f"not exists (select 1 from {IDS} d where t.id = d.value + 2) or t.id = 1"), modes=(DELTA,)),
        Case("a scalar subquery", "testDeleteWithScalarSubquery", PEOPLE, delete(f"id <= (select min(value) + 1 from {IDS})")),
        Case("rows of many files and partitions", "testDeleteThatRequiresGroupingBeforeWrite", GRID, delete("id in (select 1)"), modes=BOTH),
        Case("what was cached is made again", "testDeleteRefreshesRelationCache", (*THREE_FILES, "create or replace temporary view tmp as select * from {t} where id = 1", "cache table tmp"), delete("id = 1"), ("select * from tmp", "select * from {t}")),
        Case("files of several specs", "testDeleteWithMultipleSpecs", (*PEOPLE, "+field dep", "insert into {t} values (1, 'hr'), (4, 'ops')", "+field bucket(2, id)", "insert into {t} values (1, 'x')"), delete("id = 1"), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("what is no table of Iceberg's", "testDeleteOnNonIcebergTableNotSupported", (*PEOPLE, "create or replace temporary view testtable as select 1 as c1"), "delete from testtable where c1 = -100"),
        Case("a branch for audits (spark.wap.branch)", "testDeleteToWapBranch", (*PEOPLE, "alter table {t} set tblproperties ('write.wap.enabled' = 'true')"), delete("id = 1"), conf={"spark.wap.branch": "wap"}, differs=NO_STAGING),
    ),
)

DELETE_FROM: Final = Suite(
    "TestDeleteFrom",
    (
        Case("ranges, until nothing is left", "testDeleteFromUnpartitionedTable", table("id bigint, data string", "(1, 'a')", "(2, 'b')", "(3, 'c')"), (delete("id < 2"), delete("id < 4"))),
        Case("a snapshot by its name", "testDeleteFromTableAtSnapshot", PEOPLE, "delete from {t}.snapshot_id_{s1} where id < 4", differs=AT_VERSION),
        Case("partitions by truncate", "testDeleteFromPartitionedTable", table("id bigint, data string", "(1, 'a')", "(2, 'b')", "(3, 'c')", by="truncate(2, id)"), (delete("id > 2"), delete("id < 2")), modes=BOTH),
        Case("WHERE false", "testDeleteFromWhereFalse", PEOPLE, "delete from {t} where false"),
        Case("TRUNCATE", "testTruncate", PEOPLE, "truncate table {t}"),
        Case("partitions by bytes", "testDeleteFromTablePartitionedByVarbinary", table("id bigint, data binary", "(1, x'e3bcd1')", "(2, x'bcd1')", by="data"), "delete from {t} where data = x'bcd1'", ("select * from {t}", "select * from {t} where data = x'e3bcd1'")),
        Case("TRUNCATE with deletion vectors", "truncateWithDVs", table("id bigint, data string", "(1, 'a')", "(2, 'b')", "(3, 'c')"), (delete("id = 1"), delete("id = 2"), "truncate table {t}"), modes=(DELTA,)),
    ),
)

# Ids of new rows are the engine's choice.
ROW_IDS: Final = "select id, case when _row_id < 5 then _row_id end as kept, _last_updated_sequence_number from {t}"
NUMBERS: Final = "select count(distinct _row_id) from {t}"
LINEAGE_ROWS: Final = table("id int, data string", *(f"({i}, '{letter}')" for i, letter in enumerate("abcde", 1)))
LINEAGE_PARTS: Final = table("id int, data string", *(f"({i}, '{letter}')" for i, letter in enumerate("abcab", 1)), by="data")
FRESH: Final = values("id, data", "(1, 'up')", "(9, 'new')")

LINEAGE: Final = Suite(
    "TestRowLevelOperationsWithLineage",
    tuple(
        Case(title, of, given, statement, (ROW_IDS, NUMBERS), modes=BOTH)
        for title, of, given, statement in (
            ("update and insert by MERGE", "testMergeIntoWithBothMatchedAndNonMatched", LINEAGE_ROWS, merge(FRESH, UPSERT)),
            ("the same with partitions", "testMergeIntoWithBothMatchedAndNonMatchedPartitioned", LINEAGE_PARTS, merge(FRESH, UPSERT)),
            ("insert alone", "testMergeIntoWithOnlyNonMatched", LINEAGE_ROWS, merge(FRESH, "when not matched then insert *")),
            ("update alone", "testMergeIntoWithOnlyMatched", LINEAGE_ROWS, merge(FRESH, "when matched then update set *")),
            ("MERGE that deletes", "testMergeMatchedDelete", LINEAGE_ROWS, merge(FRESH, "when matched then delete")),
            ("update of what is not in the source", "testMergeWhenNotMatchedBySource", LINEAGE_ROWS, merge(FRESH, "when matched then update set * when not matched by source and t.id = 2 then update set data = 'left'")),
            ("delete of what is not in the source", "testMergeWhenNotMatchedBySourceDelete", LINEAGE_ROWS, merge(FRESH, "when matched then update set * when not matched by source and t.id = 2 then delete")),
            ("UPDATE", "testUpdate", LINEAGE_ROWS, "update {t} set data = 'x' where id = 2"),
            ("DELETE", "testDelete", LINEAGE_ROWS, "delete from {t} where id in (1, 3)"),
        )
    ),
)

SUITES: Final = (UPDATE, DELETE, DELETE_FROM, LINEAGE)
