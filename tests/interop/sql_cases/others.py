"""What Java's catalog has beside tables, and statements that neither engine has."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import IDENTIFIERS, PROPERTIES, SCHEMA, SPEC, Case, Suite, table
from tests.interop.sql_cases.reasons import (
    NO_CHANGELOG,
    NO_FUNCTIONS,
    NO_FUNCTIONS_IN_QUERIES,
    NO_VIEWS,
    NO_VIEWS_IN_QUERIES,
)

# fmt: off

ROWS: Final = table("id bigint, data string", "(1, 'a')", "(2, 'b')")
DAY: Final = "date'2020-02-29'"
PLACES: Final = "create table {t} (id bigint not null, location struct<lon: bigint not null, lat: bigint not null> not null)"


def identified(verb: str, fields: str) -> str:
    return f"call {{cat}}.system.{verb}_identifier_fields('{{id}}', array({fields}))"


FUNCTIONS: Final = Suite(
    "TestFunctionCatalog, TestSparkBucketFunction, and others",
    (
        Case("bucket, truncate, years, months, days", "TestSparkBucketFunction", (), f"select {{cat}}.system.bucket(4, 34) as b, {{cat}}.system.truncate(2, 'abc') as t, {{cat}}.system.years({DAY}) as y, {{cat}}.system.months({DAY}) as m, {{cat}}.system.days({DAY}) as d", (), differs=NO_FUNCTIONS),
        Case("a filter by bucket", "TestSystemFunctionPushDownDQL", table("id bigint, data string", "(1, 'a')", "(2, 'b')", by="bucket(4, id)"), (), "select id from {t} where {cat}.system.bucket(4, id) = {cat}.system.bucket(4, 2L)", differs=NO_FUNCTIONS_IN_QUERIES),
        Case("SHOW FUNCTIONS", "testListFunctions", (), (), "show system functions in {db} like 'bucket'", differs=NO_FUNCTIONS_IN_QUERIES),
    ),
)

VIEWS: Final = Suite(
    "TestViews, TestChangelogTable",
    (
        Case("CREATE VIEW, and SELECT from it", "createViewIfNotExists", ROWS, "create view {t}_v as select id from {t} where id > 1", "select * from {t}_v", differs=NO_VIEWS),
        Case("SHOW VIEWS", "showViews", ROWS, (), "show views in {db} like 'nothing'", differs=NO_VIEWS_IN_QUERIES),
        Case("changes of rows", "testDataFilters", (*ROWS, "delete from {t} where id = 1"), (), "select id, _change_type from {t}.changes", differs=NO_CHANGELOG),
    ),
)

DDL: Final = Suite(
    "TestAlterTableSchema, TestReplaceBranch, and statements of Spark's own",
    (
        Case("SET IDENTIFIER FIELDS", "testSetIdentifierFields", (PLACES,), ("alter table {t} set identifier fields id", "alter table {t} set identifier fields id, location.lon"), IDENTIFIERS, (identified("set", "'id'"), identified("set", "'id', 'location.lon'"))),
        Case("SET IDENTIFIER FIELDS of what cannot be one", "testSetInvalidIdentifierFields", ("create table {t} (id bigint not null, id2 bigint)",), ("alter table {t} set identifier fields unknown", "alter table {t} set identifier fields id2"), IDENTIFIERS, (identified("set", "'unknown'"), identified("set", "'id2'"))),
        Case("DROP IDENTIFIER FIELDS", "testDropIdentifierFields", (PLACES,), ("alter table {t} set identifier fields id, location.lon", "alter table {t} drop identifier fields id"), IDENTIFIERS, (identified("set", "'id', 'location.lon'"), identified("drop", "'id'"))),
        Case("DROP IDENTIFIER FIELDS of what is none", "testDropInvalidIdentifierFields", (PLACES,), ("alter table {t} drop identifier fields unknown", "alter table {t} set identifier fields id", "alter table {t} drop identifier fields location.lon"), IDENTIFIERS, (identified("drop", "'unknown'"), identified("set", "'id'"), identified("drop", "'location.lon'"))),
        Case("REPLACE PARTITION FIELD", "testReplacePartition", table("id bigint, data string", by="bucket(4, id)"), "alter table {t} replace partition field bucket(4, id) with bucket(8, id)", SPEC, ("call {cat}.system.drop_partition_field('{id}', 'bucket(4, id)')", "call {cat}.system.add_partition_field('{id}', 'bucket(8, id)')")),
        Case("SHOW PARTITIONS", "Spark's own", ROWS, "show partitions {t}"),
        Case("CREATE TABLE LIKE", "Spark's own", ROWS, "create table {t}_b like {t}"),
        Case("ANALYZE TABLE", "Spark's own", ROWS, "analyze table {t} compute statistics"),
        Case("char and varchar", "TestSparkSchemaUtil, text", (), ("create table {t} (a char(3), b varchar(3))", "insert into {t} values ('x', 'abcdef')"), (SCHEMA, "select * from {t}")),
        Case("bytes, shorts and intervals", "TestSparkSchemaUtil, numbers", (), ("create table {t} (a tinyint, b smallint)", "insert into {t} values (1, 2)", "create table {t}_b (c interval day)"), (SCHEMA, "select * from {t}")),
        Case("a column of type variant", "TestSparkVariantRead", (), ("create table {t} (id bigint, v variant)",), SCHEMA),
        Case("a table's comment", "TestAlterTable, COMMENT ON", ROWS, "comment on table {t} is 'about it'", PROPERTIES),
    ),
)

SUITES: Final = (FUNCTIONS, VIEWS, DDL)
