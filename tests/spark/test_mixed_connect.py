"""The mixed lake of ``test_mixed_lake`` over a real server of Spark Connect, in a process of its own: the same two tables, the same rows.

What a classic session does by statements, a Connect session does by the data source and ``icelock.spark``; statements on the catalog are
refused there. Expected states were written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import icelock.spark
from icelock.maintenance import audit
from tests.helpers.connect_script import found_by
from tests.helpers.turns import todays
from tests.lakes.sqlite import KEYED, TestLake
from tests.servers.running import free_ports
from tests.spark.test_mixed_lake import NOT_REPLACED, STAYS, E, P, Rows, dict_sorted

pytest.importorskip("grpc")
pytestmark = [pytest.mark.spark, pytest.mark.newest, pytest.mark.slow]

SCRIPT = """
import json, sys
from pathlib import Path
from pyspark.sql.connect.client import DefaultChannelBuilder
from tests.helpers.spark import session
from tests.spark.test_mixed_connect import differences

port = sys.argv[2]
DefaultChannelBuilder.default_port = staticmethod(lambda: int(port))  # Spark's own is one for the machine
spark = session({"spark.remote": "local[2]", "spark.connect.grpc.binding.port": port}, log_level=None)
print("FOUND " + json.dumps(differences(spark, Path(sys.argv[1]))))
spark.stop()
"""
PLAIN: Final = {"icelock.plain": "true"}
CLEAR: Final = {50: "told-in-the-clear"}
MADE: Final = ("encrypted", P)
MAKES: Final = "would be plain, and icelock creates encrypted tables only"
ONLY: Final = "so it is not encrypted, and icelock's functions change encrypted tables only"
NO_NAMES: Final = "and this one is of Spark Connect"


class Session:
    """The session, its lake, and a plain file outside it."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.lake, self.file = spark, TestLake(folder), folder / "raw" / "a.parquet"
        self._runs = 0

    def begin(self, *, required: bool) -> None:
        """Make the tables anew, by a catalog that the session does not know: ``p`` is of version 2 or 1, ``v3`` has no rows."""
        catalog = self.lake.catalog(**{"icelock.require-encryption": "false"})
        for _, name in catalog.list_tables("db"):
            catalog.drop_table(("db", name))
        plain = {**PLAIN, "format-version": "2" if required else "1"}
        for name, rows, said in (("e", E, KEYED), ("p", P, plain)):
            made = pa.table({"id": pa.array(rows, pa.int64()), "name": list(rows.values())})
            catalog.create_table(f"db.{name}", made.schema, properties=said).append(made)
        v3 = Path(catalog.create_table("db.v3", made.schema, properties=plain).metadata_location.removeprefix("file://"))
        v3.write_text(json.dumps({**json.loads(v3.read_text()), "format-version": 3, "last-sequence-number": 0, "next-row-id": 0}))
        icelock.spark.register(self.spark, {"test": self.lake.properties(**{"icelock.require-encryption": str(required).lower()})})

    def state(self, name: str) -> tuple[str, Rows] | str:
        """Return what a table is and its rows, in this process."""
        catalog = self.lake.catalog()
        if not catalog.table_exists(f"db.{name}"):
            return "none"
        table = catalog.load_table(f"db.{name}")
        return "encrypted" if table.encrypted else "plain", {
            row["id"]: row["name"] for row in table.scan().to_arrow().sort_by("id").to_pylist()
        }

    def read(self, name: str, where: str = "true") -> Any:
        return self.spark.read.format("icelock").load(f"test.db.{name}").where(where)

    def raw(self) -> Any:
        return self.spark.read.parquet(str(self.file))

    def save(self, rows: Any, name: str, mode: str = "append", **options: str) -> None:
        rows.write.format("icelock").mode(mode).options(**options).save(f"test.db.{name}")

    def writer(self, rows: Any, name: str, **properties: str) -> Any:
        made = icelock.spark.write_to(rows, f"test.db.{name}")
        for key, value in properties.items():
            made.tableProperty(key, value)
        return made

    def view(self, name: str) -> str:
        self.spark.sql(f"create or replace temporary view of_{name} using icelock options (path 'test.db.{name}')")
        return f"of_{name}"

    def insert(self, target: str, source: str, how: str = "into") -> None:
        self.spark.sql(f"insert {how} {self.view(target)} select * from {source}").collect()

    def stream(self, start: Callable[[Any], Any]) -> None:
        self._runs += 1
        read = self.spark.readStream.schema("id bigint, name string").parquet(str(self.file.parent))
        writer = read.writeStream.trigger(availableNow=True).option(
            "checkpointLocation", str(self.lake.folder / f"checkpoint-{self._runs}")
        )
        start(writer).awaitTermination()


# What is done, the table it is about, and what comes of it, whether encryption is required or not: the table's state and rows, or words of
# the refusal. What names a table of the catalog in SQL or to Spark's own writers is refused over Connect, so one of each kind is here.
CASES: Final[tuple[tuple[Callable[[Session], Any], str, tuple[str, Rows] | str], ...]] = (
    (lambda s: s.writer(s.read("p"), "c", **KEYED).create(), "c", MADE),
    (lambda s: s.writer(s.read("e"), "c").create(), "c", MAKES),
    (lambda s: s.writer(s.read("e"), "c", **PLAIN).create(), "c", MAKES),
    (lambda s: s.writer(s.read("p"), "e", **KEYED).replace(), "e", MADE),
    (lambda s: s.writer(s.read("p"), "e").createOrReplace(), "e", MADE),
    (lambda s: s.writer(s.read("p"), "e", **PLAIN).createOrReplace(), "e", STAYS),
    (lambda s: s.writer(s.read("p"), "e", **PLAIN).replace(), "e", STAYS),
    (lambda s: s.writer(s.read("e"), "p", **KEYED).replace(), "p", NOT_REPLACED),
    (lambda s: s.writer(s.read("e"), "p", **PLAIN).createOrReplace(), "p", NOT_REPLACED),
    (lambda s: s.writer(s.read("e"), "v3", **KEYED).createOrReplace(), "v3", NOT_REPLACED),
    (lambda s: s.save(s.read("p", "id = 9"), "e"), "e", ("encrypted", E | {9: "p9"})),
    (lambda s: s.save(s.read("e", "id = 1"), "p"), "p", ONLY),
    (lambda s: s.save(s.read("e", "id = 1"), "v3"), "v3", r"db\.v3 is plain .*encrypted tables only"),
    (lambda s: s.save(s.read("p"), "e", "overwrite"), "e", MADE),
    (lambda s: s.save(s.read("e"), "p", "overwrite"), "p", ONLY),
    (lambda s: s.writer(s.read("e"), "p").append(), "p", ONLY),
    (lambda s: s.writer(s.read("p"), "e").overwrite("id > 1"), "e", ("encrypted", {1: E[1], **P})),
    (lambda s: icelock.spark.upsert(s.read("p"), "test.db.e", ["id"]), "e", ("encrypted", {1: E[1], **P})),
    (lambda s: icelock.spark.upsert(s.read("e"), "test.db.p", ["id"]), "p", ONLY),
    (lambda s: icelock.spark.delete(s.spark, "test.db.e", "id in (2, 3)"), "e", ("encrypted", {1: E[1]})),
    (lambda s: icelock.spark.delete(s.spark, "test.db.p", "id = 9"), "p", ONLY),
    (lambda s: s.insert("e", f"{s.view('p')} where id = 9"), "e", ("encrypted", E | {9: "p9"})),
    (lambda s: s.insert("p", f"{s.view('e')} where id = 1"), "p", ONLY),
    (lambda s: s.insert("e", s.view("p"), "overwrite"), "e", MADE),
    (lambda s: s.insert("p", s.view("e"), "overwrite"), "p", ONLY),
    # A plain file
    (lambda s: s.insert("e", f"parquet.`{s.file.parent}`"), "e", ("encrypted", E | CLEAR)),
    (lambda s: s.save(s.raw(), "e", **{"write-format": "avro"}), "e", ("encrypted", E | CLEAR)),
    (lambda s: icelock.spark.add_files(s.spark, "test.db.e", str(s.file), reencrypt=True), "e", ("encrypted", E | CLEAR)),
    (lambda s: icelock.spark.add_files(s.spark, "test.db.e", str(s.file)), "e", "take no plain files as they are"),
    (lambda s: icelock.spark.add_files(s.spark, "test.db.p", str(s.file), reencrypt=True), "p", ONLY),
    (lambda s: s.stream(lambda writer: writer.format("icelock").start("test.db.e")), "e", ("encrypted", E | CLEAR)),
    (lambda s: s.stream(lambda writer: writer.format("icelock").start("test.db.p")), "p", ONLY),
    (lambda s: s.stream(lambda writer: writer.format("parquet").toTable("test.db.e")), "e", NO_NAMES),
    (lambda s: s.read("p").writeTo("test.db.e").using("parquet").createOrReplace(), "e", NO_NAMES),
    (lambda s: s.raw().write.format("parquet").mode("append").saveAsTable("test.db.e"), "e", NO_NAMES),
    (lambda s: s.raw().write.insertInto("test.db.e"), "e", NO_NAMES),
    (lambda s: s.spark.sql(f"load data inpath '{s.file.parent}' into table test.db.e"), "e", NO_NAMES),
    (lambda s: s.spark.sql("alter table test.db.e set tblproperties ('icelock.plain' = 'true')"), "e", NO_NAMES),
    (lambda s: s.spark.sql("call test.system.register_table('db.e', 'db/p')"), "e", NO_NAMES),
)
# One of two is run on a day: one case with encryption required, the next one without.
_TURNS: Final = [(number, required) for number in range(len(CASES)) for required in ((True, False) if number % 2 else (False, True))]


def differences(spark: Any, folder: Path) -> list[str]:
    """Do each of ``CASES`` in the process of the Connect client, and return what came out otherwise."""
    session, other = Session(spark, folder), []
    for number, required in todays("mixed lake over Connect", _TURNS, 2):
        act, name, expected = CASES[number]
        session.begin(required=required)
        before, said = session.state(name), ""
        try:
            act(session)
        except Exception as e:  # noqa: BLE001 - Connect's, with the server's text
            said = f"{type(e).__name__}: {e}"
        found, verdict = session.state(name), audit(session.lake.catalog(), "db.e").verdict
        clear = [file for file, content in session.lake.files().items() if not file.startswith("db/p") and b"told-" in content]
        fits = re.search(expected, said) and found == before if isinstance(expected, str) else not said and found == dict_sorted(expected)
        if not fits or verdict != "sound" or clear:
            words = [line for line in said.splitlines() if "Error: " in line][-1:] or said[:300]
            other.append(f"case {number}, required {required}: {words}, {found}, not {expected}; {verdict}, {clear}")
    joined = session.read("e").join(session.read("p").withColumnRenamed("name", "plain"), "id").orderBy("id")
    if (rows := [tuple(row) for row in joined.collect()]) != [(2, E[2], "p2"), (3, E[3], "p3")]:
        other.append(f"joined: {rows}")
    return other


def test_a_mixed_lake_over_connect(lake: TestLake, tmp_path: Path) -> None:
    """The session's catalog is registered anew for each case, with encryption required and without."""
    (lake.folder / "raw").mkdir()
    pq.write_table(pa.table({"id": pa.array(CLEAR, pa.int64()), "name": list(CLEAR.values())}), lake.folder / "raw" / "a.parquet")
    assert found_by(SCRIPT, str(lake.folder), str(free_ports()), folder=tmp_path) == []
