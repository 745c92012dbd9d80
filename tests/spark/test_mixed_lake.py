"""A plain table beside an encrypted one in one session: what statements give, and that no plain file comes into an encrypted table.

Each statement begins with the same two tables. Expected rows are SQL's, by hand; refusals those of docs/how-to/mixed-lakes.md and
docs/how-to/spark-sql.md. ``on`` is a catalog as it is with a KMS, ``off`` one with ``icelock.require-encryption=false``; the session
did not make the tables. Not here: what single statements do to plain tables (``test_plain_tables``), streams (``test_streams_plain``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import icelock.spark
from icelock.maintenance import audit
from tests.lakes.sqlite import KEY, TestLake

pytestmark = [pytest.mark.spark, pytest.mark.turns(7)]
E: Final = {1: "told-to-nobody-1", 2: "told-to-nobody-2", 3: "told-to-nobody-3"}
P: Final = {2: "p2", 3: "p3", 9: "p9"}
PLAIN: Final = "tblproperties ('icelock.plain' = 'true', 'format-version' = '2')"
WRITES: Final = "is plain, and catalog test writes encrypted tables"
MAKES: Final = "would be plain"
STAYS: Final = "is encrypted, and stays so when it is replaced"
NOT_REPLACED: Final = "is plain, and icelock replaces encrypted tables only"
NO_MERGE: Final = "is plain, and PyIceberg, which writes plain tables"
MERGE: Final = "on t.id = s.id when matched then update set name = s.name when not matched then insert *"
MERGED_E: Final = {1: "told-to-nobody-1", **P}

Rows = dict[int, str]
# A statement, the table it is about, and what comes of it where encryption is required and where it is not: the table's state and rows, or
# words of the refusal.
CASES: Final[tuple[tuple[str, str, tuple[str, Rows] | str, tuple[str, Rows] | str], ...]] = (
    (f"create table test.db.c {KEY} as select * from test.db.p", "c", ("encrypted", P), ("encrypted", P)),
    ("create table test.db.c as select * from test.db.e", "c", MAKES, MAKES),
    (f"create table test.db.c {PLAIN} as select * from test.db.e", "c", ("plain", E), ("plain", E)),
    ("create table test.db.c like test.db.p", "c", "PARSE_SYNTAX_ERROR", "PARSE_SYNTAX_ERROR"),
    (f"create or replace table test.db.e {KEY} as select * from test.db.p", "e", ("encrypted", P), ("encrypted", P)),
    (f"create or replace table test.db.e {PLAIN} as select * from test.db.p", "e", STAYS, STAYS),
    (f"replace table test.db.e {KEY} as select * from test.db.p", "e", ("encrypted", P), ("encrypted", P)),
    ("create or replace table test.db.e as select * from test.db.p", "e", ("encrypted", P), ("encrypted", P)),
    (f"create or replace table test.db.p {KEY} as select * from test.db.e", "p", NOT_REPLACED, NOT_REPLACED),
    (f"create or replace table test.db.p {PLAIN} as select * from test.db.e", "p", NOT_REPLACED, NOT_REPLACED),
    (f"create or replace table test.db.p {PLAIN} as select * from test.db.p", "p", NOT_REPLACED, NOT_REPLACED),
    (f"create or replace table test.db.c {PLAIN} as select * from test.db.e", "c", MAKES, MAKES),
    ("replace e", "e", ("encrypted", P), ("encrypted", P)),
    ("createOrReplace e plain", "e", STAYS, STAYS),
    ("createOrReplace p", "p", NOT_REPLACED, NOT_REPLACED),
    ("replace p plain", "p", NOT_REPLACED, NOT_REPLACED),
    ("insert into test.db.e select * from test.db.p where id = 9", "e", ("encrypted", E | {9: "p9"}), ("encrypted", E | {9: "p9"})),
    ("insert into test.db.p select * from test.db.e where id = 1", "p", WRITES, ("plain", P | {1: E[1]})),
    ("insert overwrite test.db.e select * from test.db.p", "e", ("encrypted", P), ("encrypted", P)),
    ("insert overwrite test.db.p select * from test.db.e", "p", WRITES, ("plain", E)),
    (f"merge into test.db.e t using test.db.p s {MERGE}", "e", ("encrypted", MERGED_E), ("encrypted", MERGED_E)),
    (f"merge into test.db.p t using test.db.e s {MERGE}", "p", NO_MERGE, NO_MERGE),
    ("delete from test.db.e where id in (select id from test.db.p)", "e", ("encrypted", {1: E[1]}), ("encrypted", {1: E[1]})),
    ("delete from test.db.p where id = 9", "p", WRITES, ("plain", {2: "p2", 3: "p3"})),
    ("writeTo e", "e", ("encrypted", E | {9: "p9"}), ("encrypted", E | {9: "p9"})),
    ("writeTo p", "p", WRITES, ("plain", P | {1: E[1]})),
)
# What DataFrameWriterV2 does: rows of a table, those of a filter, into another one.
WRITERS: Final[dict[str, tuple[str, str, str, Callable[[Any], Any]]]] = {
    "writeTo e": ("p", "id = 9", "e", lambda writer: writer.append()),
    "writeTo p": ("e", "id = 1", "p", lambda writer: writer.append()),
    "replace e": ("p", "true", "e", lambda writer: writer.replace()),
    "createOrReplace e plain": ("p", "true", "e", lambda writer: writer.tableProperty("icelock.plain", "true").createOrReplace()),
    "createOrReplace p": ("e", "true", "p", lambda writer: writer.tableProperty("encryption.key-id", "keyA").createOrReplace()),
    "replace p plain": ("e", "true", "p", lambda writer: writer.tableProperty("icelock.plain", "true").replace()),
}


class Mixed:
    """The two tables, and a session that knows them by settings of its own."""

    def __init__(self, spark: Any, lake: TestLake, *, required: bool) -> None:
        self.spark, self.lake, self._required = spark, lake, required

    def begin(self) -> None:
        """Make the tables anew, by a catalog that the session does not know."""
        catalog = self.lake.catalog(**{"icelock.require-encryption": "false"})
        for _, name in catalog.list_tables("db"):
            catalog.drop_table(("db", name))
        for name, rows, said in (("e", E, {"encryption.key-id": "keyA"}), ("p", P, {"icelock.plain": "true", "format-version": "2"})):
            made = pa.table({"id": pa.array(rows, pa.int64()), "name": list(rows.values())})
            catalog.create_table(f"db.{name}", made.schema, properties=said).append(made)
        icelock.spark.register(self.spark, {"test": self.lake.properties(**{"icelock.require-encryption": str(self._required).lower()})})

    def run(self, statement: str) -> str:
        """Run a statement; return what it is refused with, or nothing."""
        try:
            if statement in WRITERS:
                source, chosen, target, write = WRITERS[statement]
                write(self.spark.table(f"test.db.{source}").where(chosen).writeTo(f"test.db.{target}").using("iceberg"))
            else:
                self.spark.sql(statement).collect()
        except Exception as e:  # noqa: BLE001 - the message is compared
            return f"{type(e).__name__}: {e}"
        return ""

    def state(self, name: str) -> tuple[str, Rows] | str:
        """Return what a table is, by another catalog object, and its rows by Spark."""
        catalog = self.lake.catalog()
        if not catalog.table_exists(f"db.{name}"):
            return "none"
        kind = "encrypted" if catalog.load_table(f"db.{name}").encrypted else "plain"
        return kind, dict(sorted(tuple(row) for row in self.spark.table(f"test.db.{name}").collect()))


@pytest.fixture
def mixed(request: pytest.FixtureRequest, spark: Any, spark_lake: TestLake) -> Mixed:
    return Mixed(spark, spark_lake, required=request.param)


@pytest.mark.parametrize("mixed", [True, False], ids=["on", "off"], indirect=True)
def test_what_statements_make_of_a_mixed_lake(mixed: Mixed, request: pytest.FixtureRequest) -> None:
    other = []
    for statement, name, on, off in CASES:
        expected = on if request.node.callspec.params["mixed"] else off
        mixed.begin()
        before = mixed.state(name)
        said, found = mixed.run(statement), mixed.state(name)
        fits = re.search(expected, said) and found == before if isinstance(expected, str) else not said and found == dict_sorted(expected)
        if not fits:
            other.append(f"{statement}: {said[:300]!r}, {found}, not {expected}")
    assert other == []


def dict_sorted(expected: tuple[str, Rows]) -> tuple[str, Rows]:
    return expected[0], dict(sorted(expected[1].items()))


@pytest.mark.parametrize("mixed", [True], ids=["on"], indirect=True)
def test_both_are_read_and_joined(mixed: Mixed) -> None:
    mixed.begin()
    spark = mixed.spark
    icelock.spark.attach(spark, "test.db")
    joined = [("told-to-nobody-2", "p2"), ("told-to-nobody-3", "p3")]
    assert [tuple(row) for row in spark.sql("select e.name, p.name from e join p using (id) order by id").collect()] == joined
    plain, encrypted = (icelock.spark.read(spark, f"test.db.{name}", engine="python") for name in "pe")  # as over Connect
    rows = encrypted.join(plain, "id").orderBy("id").select(encrypted.name, plain.name)
    assert [tuple(row) for row in rows.collect()] == joined
    for name in "ep":
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("mixed", [False], ids=["off"], indirect=True)
def test_no_plain_file_comes_into_an_encrypted_table(mixed: Mixed, tmp_path: Path) -> None:
    spark, lake = mixed.spark, mixed.lake
    (tmp_path / "raw").mkdir()
    file = tmp_path / "raw" / "a.parquet"
    pq.write_table(pa.table({"id": pa.array([50], pa.int64()), "name": ["told-in-the-clear"]}), file)
    raw = f"parquet.`{file.parent}`"
    rows = spark.read.parquet(str(file))

    def stream(start: Callable[[Any], Any]) -> None:
        read = spark.readStream.schema("id bigint, name string").parquet(str(file.parent))
        checkpoint = tmp_path / f"checkpoint-{len(list(tmp_path.iterdir()))}"
        start(read.writeStream.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))).awaitTermination()

    takes: tuple[str | Callable[[], Any], ...] = (
        f"insert into test.db.e select * from {raw}",
        f"call test.system.add_files('db.e', '{raw}')",
        lambda: rows.writeTo("test.db.e").option("write-format", "avro").append(),
        lambda: rows.write.insertInto("test.db.e"),
        lambda: rows.write.format("icelock").mode("append").save("test.db.e"),
        lambda: rows.write.format("parquet").mode("append").saveAsTable("test.db.e"),
        lambda: stream(lambda writer: writer.toTable("test.db.e")),
        lambda: stream(lambda writer: writer.format("parquet").toTable("test.db.e")),
        lambda: stream(lambda writer: writer.format("icelock").start("test.db.e")),
    )
    refused: tuple[str | Callable[[], Any], ...] = (
        lambda: icelock.spark.add_files(spark, "test.db.e", [str(file)]),
        f"load data inpath '{file.parent}' into table test.db.e",
        f"alter table test.db.e add partition (id = 50) location '{file.parent}'",
        "msck repair table test.db.e",
        f"call test.system.register_table('db.e', '{lake.warehouse}/db/p')",
        "call test.system.migrate('db.e')",
        "call test.system.snapshot('test.db.p', 'db.e')",
        "alter table test.db.e unset tblproperties ('encryption.key-id')",
        "alter table test.db.e set tblproperties ('icelock.plain' = 'true')",
        "alter table test.db.e set tblproperties ('format-version' = '2')",
    )
    other = []
    for attempt, adds in [*((one, True) for one in takes), *((one, False) for one in refused)]:
        mixed.begin()
        said = ""
        if isinstance(attempt, str):
            said = mixed.run(attempt)
        else:
            try:
                attempt()
            except Exception as e:  # noqa: BLE001 - whether it is refused is compared
                said = f"{type(e).__name__}: {e}"
        verdict = audit(lake.catalog(), "db.e").verdict
        clear = [name for name, content in lake.files().items() if not name.startswith("db/p") and b"told-" in content]
        expected = ("encrypted", E | ({50: "told-in-the-clear"} if adds else {}))
        if (mixed.state("e"), verdict, clear, not said) != (expected, "sound", [], adds):
            other.append(f"{attempt}: {said[:300]!r}, {mixed.state('e')}, {verdict}, {clear}")
    assert other == []
