"""MERGE INTO."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import BOTH, DELTA, Case, Suite, table, values
from tests.interop.sql_cases.reasons import NO_CHANGE, NO_STAGING, WHOLE_FILE, WHOLE_FILE_BY_DELTA

# fmt: off

TWO: Final = table("id int, dep string", "(1, 'one')", "(6, 'six')")
DEPS: Final = values("id, dep", "(1, 'new 1')", "(2, 'new 2')", "(6, 'new 6')")
V: Final = table("id int, v string", "(null, 'v1')", "(2, 'v2')")
PAIR: Final = table("id int, v string", "(1, 'v1')", "(2, 'v2')")
NESTED: Final = table(
    "id int, s struct<n1: int, n2: struct<dn1: int, dn2: int>>",
    "(1, named_struct('n1', 2, 'n2', named_struct('dn1', 3, 'dn2', 4)))",
)
STRICT: Final = (
    "create table {t} (id int not null, s struct<n1: int not null, n2: struct<dn1: int, dn2: int>> not null)",
    "insert into {t} values (1, named_struct('n1', 2, 'n2', named_struct('dn1', 3, 'dn2', 4)))",
)
C1: Final = "merge into {t} t using (select 1 as c1, 'x' as c3, named_struct('dn3', 1, 'dn1', 2) as c4) s on t.id = s.c1 when matched then update set "


def merge(source: str, clauses: str, on: str = "t.id = s.id") -> str:
    """Return a MERGE statement."""
    return f"merge into {{t}} as t using {source} as s on {on} {clauses}"


UPSERT: Final = "when matched then update set * when not matched then insert *"

MERGE: Final = Suite(
    "TestMerge",
    (
        Case("every clause at once", "testMergeWithAllClauses", table("id int, dep string", "(1, 'one')", "(2, 'two')", "(3, 'three')", "(4, 'four')", "(5, 'five')"), merge(values("id, dep", "(1, 'x')", "(2, 'y')", "(7, 'z')"), "when matched and t.id = 1 then update set * when matched and t.id = 2 then delete when not matched then insert * when not matched by source and t.id = 3 then update set dep = 'left' when not matched by source and t.id = 4 then delete"), modes=BOTH),
        Case("one clause NOT MATCHED BY SOURCE", "testMergeWithOneNotMatchedBySourceClause", table("id int, dep string", "(1, 'one')", "(2, 'two')", "(3, 'three')"), merge("(select 1 as id union all select 4)", "when not matched by source then delete"), modes=BOTH),
        Case("NOT MATCHED BY SOURCE in a partitioned table", "testMergeNotMatchedBySourceClausesPartitionedTable", table("id int, dep string", "(1, 'hr')", "(2, 'hr')", "(3, 'it')", by="dep"), merge("(select 1 as id)", "when not matched by source and dep = 'it' then update set dep = 'out' when not matched by source then delete"), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("insert of all into an empty table", "testMergeIntoEmptyTargetInsertAllNonMatchingRows", table("id int, dep string"), merge(DEPS, "when not matched then insert *"), modes=BOTH),
        Case("insert of some into an empty table", "testMergeIntoEmptyTargetInsertOnlyMatchingRows", table("id int, dep string"), merge(DEPS, "when not matched and s.id >= 2 then insert *")),
        Case("only an update", "testMergeWithOnlyUpdateClause", TWO, merge(DEPS, "when matched and t.id = 1 then update set *"), modes=BOTH),
        Case("only an update, rows without match have null", "testMergeWithOnlyUpdateNullUnmatchedValues", table("id int, dep string", "(1, null)", "(6, 'six')"), merge(DEPS, "when matched and t.id = 6 then update set dep = s.dep")),
        Case("only an update, source rows of nulls", "testMergeWithOnlyUpdateClauseAndNullValues", table("id int, dep string", "(null, 'none')", "(1, 'one')"), merge(values("id, dep", "(1, 'x')", "(null, 'y')"), "when matched then update set dep = s.dep"), modes=(DELTA,)),
        Case("only a delete, rows without match have null", "testMergeWithOnlyDeleteNullUnmatchedValues", table("id int, dep string", "(null, 'none')", "(6, 'six')"), merge(DEPS, "when matched then delete"), modes=(DELTA,)),
        Case("only a delete", "testMergeWithOnlyDeleteClause", TWO, merge(DEPS, "when matched and t.id = 6 then delete"), modes=BOTH),
        Case("update or insert", "testMergeWithMatchedAndNotMatchedClauses", TWO, merge(DEPS, UPSERT), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("columns named in every clause", "testMergeWithAllCausesWithExplicitColumnSpecification", TWO, merge(DEPS, "when matched and t.id = 1 then update set t.id = s.id, t.dep = s.dep when matched and t.id = 6 then delete when not matched and s.id = 2 then insert (t.id, t.dep) values (s.id, s.dep)" )),
        Case("the source is a common table expression", "testMergeWithSourceCTE", table("id int, dep string", "(2, 'two')", "(6, 'six')"), "with c as (select id + 1 as id, dep from " + DEPS + ") " + merge("c", "when matched then update set * when not matched then insert *")),
        Case("the source is a union", "testMergeWithSourceFromSetOps", TWO, merge("(select 1 as id, 'a' as dep union all select 2, 'b')", UPSERT), modes=(DELTA,)),
        Case("two source rows for a row of the table, of which a condition leaves one", "testMergeWithOneMatchingBranchButMultipleSourceRowsForTargetRow", TWO, merge(values("id, dep, state", "(1, 'x', 'on')", "(1, 'y', 'off')", "(6, 'z', 'on')"), "when matched and s.state = 'on' then update set dep = s.dep")),
        Case("two source rows change one row of the table", "testMergeWithMultipleUpdatesForTargetRow", TWO, merge(values("id, dep", "(1, 'x')", "(1, 'y')"), UPSERT), modes=BOTH),
        Case("the same with no equality to join by", "testMergeWithMultipleUpdatesForTargetRowSmallTargetLargeSourceNoEqualityCondition", TWO, merge("(select id from range(3))", "when matched then update set dep = 'x'", "t.id > s.id")),
        Case("an unconditional delete takes several source rows for one row", "testMergeWithUnconditionalDelete", TWO, merge(values("id, dep", "(1, 'x')", "(1, 'y')"), "when matched then delete when not matched then insert *"), modes=BOTH),
        Case("a conditional delete does not", "testMergeWithSingleConditionalDelete", TWO, merge(values("id, dep", "(1, 'x')", "(1, 'y')"), "when matched and t.id = 1 then delete when not matched then insert *")),
        *(
            Case(
                f"partitioned by {by}",
                f"testMergeWith{kind}Transform",
                table("id int, ts timestamp, dep string", "(1, timestamp'2001-01-01 00:00:00', 'a')", "(2, timestamp'2001-01-02 00:00:00', 'b')", by=by),
                merge(
                    values("id, ts, dep", "(1, timestamp'2001-01-03 00:00:00', 'x')", "(3, timestamp'2001-01-02 01:00:00', 'y')"), UPSERT
                ),
                modes=modes,
                differs=WHOLE_FILE_BY_DELTA,
            )
            for kind, by, modes in (
                ("Identity", "dep", BOTH),
                ("Days", "days(ts)", (DELTA,)),
                ("Bucket", "bucket(2, id)", ()),
                ("Truncate", "truncate(1, dep)", (DELTA,)),
            )
        ),
        Case("the table is its own source", "testSelfMerge", PAIR, merge("{t}", "when matched and t.id = 1 then update set v = 'x' when not matched then insert (v, id) values ('y', -1)"), modes=BOTH),
        Case("the source selects from the table", "testMergeWithSourceAsSelfSubquery", PAIR, merge("(select id + 1 as id, v from {t})", "when matched then update set v = 'x' when not matched then insert *")),
        Case("columns of the source that nobody asks for", "testMergeWithExtraColumnsInSource", PAIR, merge(values("id, extra, v", "(1, -1, 'v1_1')", "(3, -1, 'v3')"), "when matched then update set v = s.v when not matched then insert (v, id) values (s.v, s.id)" )),
        Case("nulls do not match", "testMergeWithNullsInTargetAndSource", V, merge(values("id, v", "(null, 'v1_1')", "(4, 'v4')"), "when matched then update set v = s.v when not matched then insert (v, id) values (s.v, s.id)")),
        Case("null-safe equality matches nulls", "testMergeWithNullSafeEquals", V, merge(values("id, v", "(null, 'v1_1')", "(4, 'v4')"), UPSERT, "t.id <=> s.id"), modes=BOTH),
        Case("a condition that is null matches nothing", "testMergeWithNullCondition", V, merge(values("id, v", "(null, 'v1_1')", "(2, 'v2_2')"), UPSERT, "t.id = s.id and null")),
        Case("conditions of clauses that are null", "testMergeWithNullActionConditions", PAIR, merge(values("id, v", "(1, 'v1_1')", "(2, 'v2_2')", "(3, 'v3_3')"), "when matched and s.id = 1 and null then update set v = s.v when matched and s.v = 'v1_1' and null then delete when not matched and s.id = 3 and null then insert *"), differs=NO_CHANGE),
        Case("the first clause that applies is the one", "testMergeWithMultipleMatchingActions", PAIR, merge(values("id, v", "(1, 'v1_1')", "(2, 'v2_2')"), "when matched and s.id = 1 then update set v = s.v when matched and s.v = 'v1_1' then delete when not matched then insert *"), modes=(DELTA,)),
        Case("insert alone takes source rows that are there twice", "testMergeInsertOnly", table("id string, v string", "('a', 'v1')", "('b', 'v2')"), merge(values("id, v", "('a', 'v1_1')", "('a', 'v1_2')", "('c', 'v3')", "('d', 'v4_1')", "('d', 'v4_2')"), "when not matched then insert *"), modes=BOTH),
        Case("insert alone with a condition", "testMergeInsertOnlyWithCondition", table("id int, v int", "(1, 1)"), merge(values("id, v, is_new", "(1, 11, true)", "(2, 21, true)", "(2, 22, false)"), "when not matched and is_new = true then insert (v, id) values (s.v + 100, s.id)" )),
        Case("assignments in another order than the columns, in other letters", "testMergeMixedCaseAlignsUpdateAndInsertActions", table("id int, a int, b string", "(1, 2, 'str')"), merge(values("id, c1, c2", "(1, -2, 'new_1')", "(2, -20, 'new_2')"), "when matched then update set B = c2, A = c1, t.Id = s.ID when not matched then insert (b, A, iD) values (c2, c1, id)", "t.iD = s.Id"), modes=BOTH, differs=WHOLE_FILE_BY_DELTA),
        Case("fields of a struct", "testMergeUpdatesNestedStructFields", table("id int, s struct<c1: int, c2: struct<a: array<int>, m: map<string, string>>>", "(1, named_struct('c1', 2, 'c2', named_struct('a', array(1, 2), 'm', map('a', 'b'))))"), (merge("(select 1 as id, -2 as c1)", "when matched then update set t.s.c1 = s.c1, t.s.c2.a = array(-1, -2), t.s.c2.m = map('k', 'v')"), merge("(select 1 as id)", "when matched then update set t.s.c1 = null, t.s.c2 = null") )),
        Case("casts that Spark adds", "testMergeWithInferredCasts", table("id int, s string", "(1, 'value')"), merge("(select 1 as id, -2 as c1)", "when matched then update set t.s = s.c1"), modes=(DELTA,), differs=WHOLE_FILE),
        Case("a field of a struct that is null", "testMergeModifiesNullStruct", table("id int, s struct<n1: int, n2: int>", "(1, null)"), merge("(select 1 as id, -10 as n1)", "when matched then update set t.s.n1 = s.n1")),
        Case("what was cached is made again", "testMergeRefreshesRelationCache", (*PAIR, "create or replace temporary view tmp as select v from {t}", "cache table tmp"), (merge("(select 1 as id)", "when matched then update set v = 'n2'"),), ("select * from tmp",)),
        Case("several inserts with conditions", "testMergeWithMultipleConditionalNotMatchedActions", table("id int, dep string", "(0, 'emp-0')"), merge(values("id, dep", "(1, 'emp-1')", "(2, 'emp-2')", "(3, 'emp-3')"), "when not matched and s.id = 1 then insert (dep, id) values (s.dep, -1) when not matched and s.id = 2 then insert *" )),
        Case("the star goes by names, not places", "testMergeResolvesColumnsByName", table("id int, badge int, dep string", "(1, 1000, 'one')", "(6, 6000, 'six')"), merge(values("badge, id, dep", "(1001, 1, 'emp-1')", "(7007, 7, 'emp-7')"), UPSERT)),
        Case("a condition without columns", "testMergeShouldResolveWhenThereAreNoUnresolvedExpressionsOrColumns", table("id int, dep string", "(9, 'nine')"), merge(DEPS, UPSERT, "1 <> 1")),
        Case("required columns", "testMergeWithTableWithNonNullableColumn", table("id int not null, dep string", "(1, 'one')", "(6, 'six')"), merge(DEPS, UPSERT), modes=(DELTA,), differs=WHOLE_FILE),
        Case("columns that are not there", "testMergeWithNonExistingColumns", NESTED, (merge("(select 1 as c1, 2 as c2)", "when matched then update set t.invalid_col = s.c2", "t.id = s.c1"), merge("(select 1 as c1, 2 as c2)", "when matched then update set t.s.invalid = s.c2", "t.id = s.c1"), merge("(select 1 as c1, 2 as c2)", "when matched then update set t.s.n2.dn1 = s.c2 when not matched then insert (id, invalid) values (s.c1, null)", "t.id = s.c1") )),
        Case("an insert of fields, of a column twice", "testMergeWithInvalidColumnsInInsert", NESTED, (merge("(select 1 as c1)", "when not matched then insert (id, s.n2) values (s.c1, null)", "t.id = s.c1"), merge("(select 1 as c1)", "when not matched then insert (id, id) values (s.c1, null)", "t.id = s.c1"), merge("(select 5 as c1)", "when not matched then insert (id) values (s.c1)", "t.id = s.c1") )),
        Case("an update of an element, of a map's value", "testMergeWithInvalidUpdates", table("id int, a array<struct<c1: int>>, m map<string, string>", "(1, array(named_struct('c1', 1)), map('k', 'v'))"), (merge("(select 1 as c1)", "when matched then update set t.a.c1 = s.c1", "t.id = s.c1"), merge("(select 1 as c1)", "when matched then update set t.m.key = 'new'", "t.id = s.c1") )),
        Case("assignments that conflict", "testMergeWithConflictingUpdates", NESTED, (merge("(select 1 as c1)", "when matched then update set t.id = 1, t.s.n1 = 2, t.id = 2", "t.id = s.c1"), merge("(select 1 as c1)", "when matched then update set t.s.n1 = 1, t.id = 2, t.s.n1 = 2", "t.id = s.c1"), merge("(select 1 as c1)", "when matched then update set s.n1 = 1, s = named_struct('n1', 1, 'n2', null)", "t.id = s.c1") )),
        Case("assignments of other types, ANSI", "testMergeWithInvalidAssignmentsAnsi", STRICT, (C1 + "t.id = cast(null as int)", C1 + "t.s.n1 = null", C1 + "t.s.n1 = s.c3", C1 + "t.s.n2 = s.c4"), conf={"spark.sql.storeAssignmentPolicy": "ansi"}),
        Case("assignments of other types, strict", "testMergeWithInvalidAssignmentsStrict", STRICT, (C1 + "t.id = null", C1 + "t.s.n1 = null", C1 + "t.s.n1 = s.c3", C1 + "t.s.n2 = s.c4"), conf={"spark.sql.storeAssignmentPolicy": "strict"}),
        Case("conditions that are not deterministic", "testMergeWithNonDeterministicConditions", PAIR, (merge("(select 1 as c1)", "when matched then update set v = 'x'", "t.id = s.c1 and rand() > t.id"), merge("(select 1 as c1)", "when matched and rand() > t.id then delete", "t.id = s.c1"), merge("(select 1 as c1)", "when not matched and rand() > c1 then insert (id) values (1)", "t.id = s.c1") )),
        Case("conditions with aggregates", "testMergeWithAggregateExpressions", PAIR, (merge("(select 1 as c1)", "when matched then update set v = 'x'", "t.id = s.c1 and max(t.id) = 1"), merge("(select 1 as c1)", "when matched and sum(t.id) < 1 then delete", "t.id = s.c1") )),
        Case("conditions with subqueries", "testMergeWithSubqueriesInConditions", PAIR, (merge("(select 1 as c1)", "when matched then update set v = 'x'", "t.id = s.c1 and t.id < (select max(id) from range(5))"), merge("(select 1 as c1)", "when matched and t.id not in (select id from range(5)) then delete", "t.id = s.c1") )),
        Case("an insert's condition cannot see the table", "testMergeWithTargetColumnsInInsertConditions", table("id int, c2 int", "(1, 2)"), merge("(select 1 as id, 11 as value)", "when not matched and c2 = 1 then insert (id, c2) values (s.id, null)")),
        Case("a target that is no table", "testMergeWithNonIcebergTargetTableNotSupported", (*PAIR, "create or replace temporary view target as select 1 as id"), "merge into target t using (select 1 as id) s on t.id = s.id when matched then update set *"),
        Case("a branch that is not there", "testMergeNonExistingBranch", PAIR, "merge into {t}.branch_nowhere t using (select 1 as id, 'x' as v) s on t.id = s.id " + UPSERT),
        Case("a branch", "testMergeWithMatchedAndNotMatchedClauses on a branch", (*PAIR, "+branch side"), "merge into {t}.branch_side t using " + values("id, v", "(1, 'x')", "(3, 'y')") + " s on t.id = s.id " + UPSERT, ("select * from {t}", "select * from {t}.branch_side"), modes=BOTH),
        Case("a branch for audits (spark.wap.branch)", "testMergeToWapBranch", (*PAIR, "alter table {t} set tblproperties ('write.wap.enabled' = 'true')"), merge(values("id, v", "(1, 'x')", "(3, 'y')"), UPSERT), conf={"spark.wap.branch": "wap"}, differs=NO_STAGING),
    ),
)

SUITES: Final = (MERGE,)
