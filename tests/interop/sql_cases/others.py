"""What Java's catalog has beside tables, and statements that neither engine has."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import IDENTIFIERS, PROPERTIES, SCHEMA, SPEC, Case, Suite, table
from tests.interop.sql_cases.reasons import (
    NO_VIEWS,
    NO_VIEWS_IN_QUERIES,
    ONLY_MOVED,
)

# fmt: off

ROWS: Final = table("id bigint, data string", "(1, 'a')", "(2, 'b')")
DAY: Final = "date'2020-02-29'"
PLACES: Final = "create table {t} (id bigint not null, location struct<lon: bigint not null, lat: bigint not null> not null)"


HEX: Final = "X'00010203', 'iceberg'"
TIMES: Final = "date'2017-11-16', timestamp_ntz'2017-11-16 22:31:08', timestamp'2017-11-16 22:31:08 UTC'"
BEFORE: Final = ("timestamp'1969-12-31 23:59:59.5 UTC'", "timestamp_ntz'1968-02-29 00:00:00'")


def functions(name: str, number: int, *values: str) -> str:
    """Return calls of a function with each of the values."""
    listed = ", ".join(values).split(", ")
    return ", ".join(f"{{cat}}.system.{name}({number}, {value}) as v{i}" for i, value in enumerate(listed))


def identified(verb: str, fields: str) -> str:
    return f"call {{cat}}.system.{verb}_identifier_fields('{{id}}', array({fields}))"


FUNCTIONS: Final = Suite(
    "TestFunctionCatalog, TestSparkBucketFunction, and others",
    (
        Case("bucket, truncate, years, months, days", "TestSparkBucketFunction", (), f"select {{cat}}.system.bucket(4, 34) as b, {{cat}}.system.truncate(2, 'abc') as t, {{cat}}.system.years({DAY}) as y, {{cat}}.system.months({DAY}) as m, {{cat}}.system.days({DAY}) as d", ()),
        Case("bucket of each type", "TestSparkBucketFunction, of each type", (), f"select {functions('bucket', 2147483647, '8Y', '8S', '8', '8L', '14.20', HEX, TIMES, 'cast(null as int)')}", ()),
        Case("truncate of each type", "TestSparkTruncateFunction", (), f"select {functions('truncate', 10, '8Y', '-8S', '-1', '-11L', '-0.05', '12.34', HEX, 'cast(null as int)')}, {{cat}}.system.truncate(2, '€uro') as u", ()),
        Case("times before 1970", "TestSparkHoursFunction", (), f"select {', '.join(f'{{cat}}.system.{name}({time}) as {name}{i}' for name in ('years', 'months', 'days', 'hours') for i, time in enumerate(BEFORE))}", ()),
        Case("functions of columns, and nulls", "TestSystemFunctionPushDownDQL, columns", table("id bigint, data string", "(-7, 'abc')", "(2, null)"), (), "select {cat}.system.bucket(16, id) as b, {cat}.system.truncate(2, data) as t, {cat}.bucket(16, data) as s from {t}"),
        Case("arguments that a function does not take", "TestSparkBucketFunction, wrong numbers", (), tuple(f"select {{cat}}.system.{call}" for call in ("bucket(4)", "bucket(4, 1.5D)", "bucket('4', 1)", "bucket(4L, 1)", "years('2020')", f"hours({DAY})", "truncate(2, true)", "days()", "iceberg_version(1)", "nothing(1)")), ()),
        Case("a filter by bucket", "TestSystemFunctionPushDownDQL", table("id bigint, data string", "(1, 'a')", "(2, 'b')", by="bucket(4, id)"), (), "select id from {t} where {cat}.system.bucket(4, id) = {cat}.system.bucket(4, 2L)"),
        Case("SHOW FUNCTIONS", "testListFunctions", (), (), "show system functions in {db} like 'bucket'"),
    ),
)

VIEWS: Final = Suite(
    "TestViews, TestChangelogTable",
    (
        Case("CREATE VIEW, and SELECT from it", "createViewIfNotExists", ROWS, "create view {t}_v as select id from {t} where id > 1", "select * from {t}_v", differs=NO_VIEWS),
        Case("SHOW VIEWS", "showViews", ROWS, (), "show views in {db} like 'nothing'", differs=NO_VIEWS_IN_QUERIES),
        Case("changes of rows", "testDataFilters", (*ROWS, "delete from {t} where id = 1"), (), "select id, _change_type from {t}.changes", differs=ONLY_MOVED),
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
