"""The cases of ``spark_vs_java.py``: what is asked of which table, and each engine's way to it.

A query is timed from the table's name to its last row, so loading the table and planning are in it. Java's catalog keeps loaded tables, as
it does by default; ``uncached`` is Java loading the table each time, as icelock does.

Not here: tables (``bench_tables``), the clock (``bench_runs``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from bench_runs import Clock, Times, Way, by_turns, check_equal
from bench_tables import ENCRYPTED, JAVA_CATALOG, KINDS, OURS, PLAIN, Kind, Tables, base_frame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

import icelock.spark
from icelock.errors import PolicyError
from tests.interop.session import DATABASE

JAVA, JAVA_PLAIN, UNCACHED = "Java", "Java plain", "Java uncached"
NATIVE, PYTHON, OWN_PLAIN, SPARK_PLAIN = "native", "python", "native plain", "Spark plain"
WRITE_TO, DATA_FRAME_WRITE = "write_to", "df.write"
FIXED_REPEAT: Final = 5
FIXED_WARM: Final = 6  # times as many rounds, for the JVM to have compiled what short queries are made of
_DIMENSION: Final = 10_000
_REGIONS: Final = 100
# Taken at once: there is a module of the same name.
_READ: Final = getattr(icelock.spark, "read", None)
Query = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """``query`` makes the answer's DataFrame, None scans everything into nothing; ``columns`` are those that it needs."""

    name: str
    what: str
    kind: str
    query: Query | None = None
    columns: tuple[str, ...] = ()
    repeat: int = 1
    large: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a case took; ``files`` says who wrote what was read."""

    case: str
    what: str
    group: str
    files: str
    times: dict[str, Times]


def _grouped(df: Any) -> Any:
    return df.where("d1 < 0.25").groupBy("s1").agg(F.count("*").alias("n"), F.sum("d2").alias("d2")).orderBy("s1")


def _joined(df: Any) -> Any:
    keys = df.sparkSession.range(0, _DIMENSION)
    key, region = F.substring(F.md5(F.col("id").cast("string")), 1, 16), F.pmod(F.col("id"), F.lit(_REGIONS))
    dimension = F.broadcast(keys.select(key.alias("s1"), region.alias("region")))
    return df.join(dimension, "s1").groupBy("region").agg(F.sum("d3").alias("d3")).orderBy("region")


def _sum(column: str) -> Query:
    return lambda df: df.agg(F.sum(column))


def _count(df: Any) -> Any:
    return df.agg(F.count("*"))


def _three(df: Any) -> Any:
    return df.agg(F.sum("d7"), F.sum("n9"), F.max("s20"))


def _one_part(df: Any) -> Any:
    return df.where("part = 5").agg(F.count("*"), F.sum("d1"))


READS: Final = (
    Case(name="full", what="full scan", kind="base", large=True),
    Case(name="sum", what="sum of one column", kind="base", query=_sum("d1"), columns=("d1",), large=True),
    Case(name="group", what="filter (a quarter), group by", kind="base", query=_grouped, columns=("d1", "d2", "s1"), large=True),
    Case(name="join", what="join with 10,000 rows, group by", kind="base", query=_joined, columns=("d3", "s1"), large=True),
    Case(name="count", what="count(*)", kind="base", query=_count, columns=("id",), large=True),
    Case(name="wide", what="100 columns, a 20th of the rows, full scan", kind="wide"),
    Case(name="wide3", what="3 columns of 100", kind="wide", query=_three, columns=("d7", "n9", "s20")),
    Case(name="part", what="one partition of 16", kind="partitioned", query=_one_part, columns=("part", "d1")),
    Case(name="deleted", what="a tenth deleted by vectors, full scan", kind="deleted", large=True),
    Case(name="deleted-sum", what="a tenth deleted, sum", kind="deleted", query=_sum("d1"), columns=("d1",), large=True),
    Case(name="nested", what="struct, list, map, a fifth of the rows, full scan", kind="nested"),
    Case(name="nested-field", what="sum of a field in a struct", kind="nested", query=_sum("s.b"), columns=("s.b",)),
)
FIXED: Final = (
    Case(name="fixed-count", what="one row: count", kind="one_row", query=_count, columns=("id",), repeat=FIXED_REPEAT),
    Case(name="fixed-collect", what="one row: collect", kind="one_row", query=lambda df: df, repeat=FIXED_REPEAT),
)
WRITE, FIXED_INSERT = "write", "fixed-insert"
NAMES: Final = (*(case.name for case in READS), WRITE, *(case.name for case in FIXED), FIXED_INSERT)
LARGE: Final = tuple(case.name for case in READS if case.large)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How often, and on what."""

    tables: Tables
    clock: Clock
    rounds: int
    warm: int

    @property
    def spark(self) -> Any:
        return self.tables.spark

    def times(self, ways: list[Way], repeat: int = 1) -> dict[str, Times]:
        warm = self.warm if repeat == 1 else self.warm * FIXED_WARM
        return by_turns(self.clock, ways, rounds=self.rounds, warm=warm, repeat=repeat)


def has_native() -> bool:
    """Whether this icelock has ``icelock.spark.read``."""
    return callable(_READ)


def native(spark: Any, name: str) -> Any:
    """Read by Spark's own Parquet reader or not at all."""
    if not callable(_READ):
        msg = "this icelock has no native scan"
        raise TypeError(msg)
    return _READ(spark, name, engine="native")


class Readers:
    """DataFrames of a table by engine; ``form`` is who wrote it."""

    def __init__(self, setup: Setup) -> None:
        self._tables = setup.tables
        self._spark = setup.spark

    def of(self, case: Case, form: str) -> dict[str, Callable[[], Any]]:
        """Return what can read the case's table, from its name to a DataFrame."""
        kind, spark = KINDS[case.kind], self._spark
        name = f"{DATABASE}.{self._tables.name(kind, form)}"
        found: dict[str, Callable[[], Any]] = {JAVA: lambda: spark.table(f"{JAVA_CATALOG}.{name}")}
        if kind.name == "one_row":
            found[UNCACHED] = lambda: spark.table(f"ice.{name}")
        if has_native():
            found[NATIVE] = lambda: native(spark, f"ours.{name}")
        found[PYTHON] = lambda: self._python(f"ours.{name}", case.columns)
        if form == ENCRYPTED and kind.name != "one_row":
            found |= self._plain(kind)
        return found

    def _python(self, name: str, columns: tuple[str, ...]) -> Any:
        reader = self._spark.read.format("icelock")
        return (reader.option("columns", ", ".join(columns)) if columns else reader).load(name)

    def _plain(self, kind: Kind) -> dict[str, Callable[[], Any]]:
        spark = self._spark
        name = f"{DATABASE}.{self._tables.name(kind, PLAIN)}"
        found: dict[str, Callable[[], Any]] = {JAVA_PLAIN: lambda: spark.table(f"{JAVA_CATALOG}.{name}")}
        own = has_native() and _allowed(lambda: native(spark, f"mixed.{name}"))
        if own:
            found[OWN_PLAIN] = lambda: native(spark, f"mixed.{name}")
        elif not kind.deleted:
            files = [str(row[0]) for row in spark.sql(f"SELECT file_path FROM ice.{name}.data_files ORDER BY 1").collect()]  # noqa: S608
            found[SPARK_PLAIN] = lambda: spark.read.parquet(*files)
        return found


def _allowed(read: Callable[[], Any]) -> bool:
    try:
        read()
    except PolicyError:
        return False
    return True


def read_rows(setup: Setup, names: tuple[str, ...]) -> Iterator[Row]:
    """Time the reading cases; before the first one on a table, all engines must give the same rows."""
    readers, checked = Readers(setup), set[tuple[str, str]]()
    for case in (*READS, *FIXED):
        if case.name not in names:
            continue
        for form in (ENCRYPTED, OURS) if KINDS[case.kind].ours_too else (ENCRYPTED,):
            if (case.kind, form) not in checked:
                whole = Case(name=case.name, what="", kind=case.kind)
                check_equal({engine: checksum(read()) for engine, read in readers.of(whole, form).items()})
                checked.add((case.kind, form))
            ways = [Way(name=engine, run=_run(read, case.query)) for engine, read in readers.of(case, form).items()]
            times = setup.times(ways, case.repeat)
            group = "fixed" if case in FIXED else "reads"
            yield Row(case=case.name, what=case.what, group=group, files=_writer(form), times=times)


def _writer(form: str) -> str:
    return "icelock" if form == OURS else "Java"


def _run(read: Callable[[], Any], query: Query | None) -> Callable[[], Any]:
    def run() -> Any:
        df = read()
        if query is None:
            return df.write.format("noop").mode("overwrite").save()
        return [tuple(row) for row in query(df).collect()]

    return run


def checksum(df: Any) -> Any:
    """Return the number of rows and the sum of a hash of all columns."""
    columns = [F.map_entries(name) if kind.startswith("map<") else F.col(name) for name, kind in df.dtypes]
    total = F.sum(F.xxhash64(*columns).cast("decimal(38,0)"))
    return [tuple(row) for row in df.agg(F.count("*"), total).collect()]


def write_rows(setup: Setup, names: tuple[str, ...]) -> Iterator[Row]:
    """Time appends of all rows to an empty table, and of one row to one that grows."""
    tables, spark = setup.tables, setup.spark
    if WRITE in names:
        frame = base_frame(spark, tables.rows)
        generated = setup.times([Way(name="rows alone", run=lambda: frame.write.format("noop").mode("overwrite").save())])
        expected, right = checksum(frame), set[str]()

        def written(engine: str) -> Way:
            name = f"written_{_identifier(engine)}"

            def before() -> None:
                tables.drop(name)
                tables.create(name, frame, encrypted=engine != JAVA_PLAIN)

            def after() -> None:
                if engine not in right:
                    check_equal({"what was written": expected, engine: checksum(spark.table(f"ice.{DATABASE}.{name}"))})
                    right.add(engine)
                tables.drop(name)

            # Java's cached catalog would write to the table that was dropped before.
            by = UNCACHED if engine in {JAVA, JAVA_PLAIN} else engine
            return Way(name=engine, run=lambda: append(by, frame, name), before=before, after=after)

        times = setup.times([written(engine) for engine in (JAVA, JAVA_PLAIN, WRITE_TO, DATA_FRAME_WRITE)])
        yield Row(case=WRITE, what="append to an empty table", group="writes", files="", times={**times, **generated})
    if FIXED_INSERT in names:
        one = base_frame(spark, 1).coalesce(1)
        engines = (JAVA, UNCACHED, WRITE_TO, DATA_FRAME_WRITE)
        for engine in engines:
            tables.create(f"inserted_{_identifier(engine)}", one, encrypted=True)
        ways = [Way(name=engine, run=_inserted(engine, one)) for engine in engines]
        yield Row(case=FIXED_INSERT, what="append of one row", group="fixed", files="", times=setup.times(ways, FIXED_REPEAT))
        for engine in engines:
            tables.drop(f"inserted_{_identifier(engine)}")


def _inserted(engine: str, frame: Any) -> Callable[[], None]:
    return lambda: append(engine, frame, f"inserted_{_identifier(engine)}")


def _identifier(engine: str) -> str:
    return engine.lower().replace(" ", "_").replace(".", "_")


def append(engine: str, frame: Any, name: str) -> None:
    """Append a frame by the engine's own call."""
    if engine == WRITE_TO:
        icelock.spark.write_to(frame, f"ours.{DATABASE}.{name}").append()
    elif engine == DATA_FRAME_WRITE:
        frame.write.format("icelock").mode("append").save(f"ours.{DATABASE}.{name}")
    else:
        catalog = "ice" if engine == UNCACHED else JAVA_CATALOG
        frame.writeTo(f"{catalog}.{DATABASE}.{name}").append()
