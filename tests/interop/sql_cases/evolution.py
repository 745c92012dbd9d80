"""MERGE WITH SCHEMA EVOLUTION."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import BOTH, DELTA, SCHEMA, Case, Suite, table, values
from tests.interop.sql_cases.merge import UPSERT

EVOLUTION: Final = Suite(
    "TestMergeSchemaEvolution",
    tuple(
        Case(
            title,
            of,
            table(*given),
            f"merge with schema evolution into {{t}} t using {source} s on t.id = s.id {UPSERT}",
            ("select * from {t}", SCHEMA),
            conf=conf,
            modes=modes,
        )
        for title, of, given, source, conf, modes in (
            (
                "the source has more columns",
                "testMergeWithSchemaEvolutionSourceHasMoreColumns",
                ("id int, dep string", "(1, 'hr')", "(2, 'it')"),
                values("id, dep, salary", "(1, 'hr', 100)", "(3, 'fin', 300)"),
                {},
                BOTH,
            ),
            (
                "the source has fewer columns",
                "testMergeWithSchemaEvolutionSourceHasFewerColumns",
                ("id int, dep string, salary int", "(1, 'hr', 100)", "(2, 'it', 200)"),
                values("id, dep", "(1, 'hr-new')", "(3, 'fin')"),
                {},
                (),
            ),
            (
                "a struct of the source has more fields",
                "testMergeWithSchemaEvolutionNestedStructSourceHasMoreFields",
                (
                    "id int, s struct<c1: int, c2: string>",
                    "(1, named_struct('c1', 10, 'c2', 'a'))",
                    "(2, named_struct('c1', 20, 'c2', 'b'))",
                ),
                "(select 1 as id, named_struct('c1', 100, 'c2', 'aa', 'c3', 1000) as s union all select 3, named_struct('c1', 300, 'c2', 'cc', 'c3', 3000))",
                {},
                (DELTA,),
            ),
            (
                "a struct of the source has fewer fields",
                "testMergeWithSchemaEvolutionNestedStructSourceHasFewerFields",
                ("id int, s struct<c1: int, c2: string, c3: int>", "(1, named_struct('c1', 100, 'c2', 'aa', 'c3', 1000))"),
                "(select 1 as id, named_struct('c1', 10, 'c2', 'a') as s union all select 3, named_struct('c1', 30, 'c2', 'c'))",
                {"spark.sql.mergeNestedTypeCoercion.enabled": "true"},
                (),
            ),
            (
                "the source has a new struct",
                "testMergeWithSchemaEvolutionSourceHasMoreColumns, a struct",
                ("id int, dep string", "(1, 'hr')"),
                "(select 1 as id, 'hr' as dep, named_struct('a', 1, 'b', array(2)) as s)",
                {},
                (),
            ),
            (
                "a type becomes wider",
                "testMergeWithSchemaEvolutionTypeWidening",
                ("id int, value int", "(1, 100)", "(2, 200)"),
                values("id, value", "(1, 1000000000000L)", "(3, 3000000000000L)"),
                {},
                (DELTA,),
            ),
        )
    ),
)

SUITES: Final = (EVOLUTION,)
