"""The tables of ``spark_vs_java.py``: each a frame that ``spark.range`` makes, the same on every run.

A table is written by Java encrypted (``_enc``) and plain (``_plain``), and where the case reads files of ours too, by icelock
(``_ours``). All lie in one Hive catalog. With a folder that is kept they are registered again instead.

Not here: what is asked of them (``bench_cases``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

import icelock
import icelock.spark
from tests.interop.session import DATABASE, Session

ENCRYPTED, PLAIN, OURS = "enc", "plain", "ours"
JAVA_CATALOG: Final = "java"
_FILES: Final = 4
_PARTS: Final = 16
_DELETED: Final = 10
_MOR: Final = {"write.delete.mode": "merge-on-read"}


def _hash(k: int, seed: int) -> Any:
    return F.xxhash64(F.col("id") * F.lit(k), F.lit(seed))


def _number(k: int) -> Any:
    return F.pmod(_hash(k, 7), F.lit(1 << 40)) / F.lit(float(1 << 40))


def _text(k: int, different: int) -> Any:
    return F.substring(F.md5(F.pmod(_hash(k, 11), F.lit(different)).cast("string")), 1, 16)


def base_frame(spark: Any, rows: int) -> Any:
    """Id, four doubles in [0, 1), two strings of 16 characters: 10,000 and 200,000 different ones."""
    doubles = [_number(k).alias(f"d{k}") for k in (1, 2, 3, 4)]
    return spark.range(0, rows, 1, _FILES).select("id", *doubles, _text(5, 10_000).alias("s1"), _text(6, 200_000).alias("s2"))


def wide_frame(spark: Any, rows: int) -> Any:
    """A hundred columns: id, 59 doubles, 20 longs, 20 strings of 1,000 different ones."""
    doubles = [_number(k).alias(f"d{k}") for k in range(1, 60)]
    longs = [F.pmod(_hash(k, 3), F.lit(1_000_000)).alias(f"n{k}") for k in range(1, 21)]
    base = F.pmod(F.col("id"), F.lit(1000))
    texts = [F.concat(F.lit(f"name {k} of "), F.pmod(base * k, F.lit(1000)).cast("string")).alias(f"s{k}") for k in range(1, 21)]
    return spark.range(0, rows, 1, _FILES).select("id", *doubles, *longs, *texts)


def partitioned_frame(spark: Any, rows: int) -> Any:
    """The base table's columns and ``part``, sixteen values one after the other."""
    part = F.floor(F.col("id") * F.lit(_PARTS) / F.lit(rows)).cast("int").alias("part")
    return base_frame(spark, rows).select(part, "*")


def nested_frame(spark: Any, rows: int) -> Any:
    """Id, a struct of three, a list of three doubles, a map of two entries."""
    struct = F.struct(_hash(1, 3).alias("a"), _number(1).alias("b"), _text(5, 10_000).alias("c")).alias("s")
    listed = F.array(_number(2), _number(3), _number(4)).alias("l")
    mapped = F.create_map(F.lit("x"), _hash(2, 3), F.lit("y"), _hash(3, 3)).alias("m")
    return spark.range(0, rows, 1, _FILES).select("id", struct, listed, mapped)


def one_row_frame(spark: Any, rows: int) -> Any:
    """The base table's columns, one row whatever is asked."""
    return base_frame(spark, min(rows, 1)).coalesce(1)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One table; it has ``rows / share`` rows."""

    name: str
    frame: Callable[[Any, int], Any]
    share: int = 1
    by: str = ""
    deleted: bool = False
    ours_too: bool = False


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind(name="base", frame=base_frame, ours_too=True),
        Kind(name="wide", frame=wide_frame, share=20),
        Kind(name="partitioned", frame=partitioned_frame, by="part"),
        Kind(name="deleted", frame=base_frame, deleted=True),
        Kind(name="nested", frame=nested_frame, share=5),
        Kind(name="one_row", frame=one_row_frame),
    )
}


class Tables:
    """Makes tables that are not there; names are without catalog and database."""

    def __init__(self, session: Session, rows: int) -> None:
        self.spark = session.spark
        self.rows = rows
        self.catalog = icelock.load_catalog("ours", **session.properties)
        self._kept_in = session.warehouse / f"tables-{rows}.json"
        self._kept: dict[str, str] = json.loads(self._kept_in.read_text()) if self._kept_in.exists() else {}
        self._there: set[str] = set()
        _add_java_catalog(session)

    def name(self, kind: Kind, form: str) -> str:
        """Return the name of a table that is there from then on."""
        name = f"{kind.name}_{self.rows}_{form}"
        if name not in self._there:
            if name in self._kept:
                self._register(name, encrypted=form != PLAIN)
            else:
                self._make(kind, form, name)
                self._kept[name] = self.metadata_location(name)
                self._kept_in.write_text(json.dumps(self._kept, indent=1))
            self._there.add(name)
        return name

    def metadata_location(self, name: str) -> str:
        log = self.spark.sql(f"SELECT file FROM ice.{DATABASE}.{name}.metadata_log_entries ORDER BY timestamp DESC, file DESC LIMIT 1")  # noqa: S608
        return str(log.collect()[0][0])

    def create(self, name: str, frame: Any, *, encrypted: bool, by: str = "", more: dict[str, str] | None = None) -> None:
        """Create an empty table by Java."""
        properties = {"format-version": "3", **({"encryption.key-id": "keyA"} if encrypted else {}), **(more or {})}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        partitioned = f"PARTITIONED BY ({by})" if by else ""
        columns = frame._jdf.schema().toDDL()  # noqa: SLF001 - PySpark has no DDL
        self.spark.sql(f"CREATE TABLE ice.{DATABASE}.{name} ({columns}) USING iceberg {partitioned} TBLPROPERTIES ({listed})")

    def drop(self, name: str) -> None:
        """Remove a table and its files, if it is there."""
        self.spark.sql(f"DROP TABLE IF EXISTS ice.{DATABASE}.{name} PURGE")

    def _make(self, kind: Kind, form: str, name: str) -> None:
        frame = kind.frame(self.spark, self.rows // kind.share)
        self.create(name, frame, encrypted=form != PLAIN, by=kind.by, more=_MOR if kind.deleted else None)
        if form == OURS:
            icelock.spark.write_to(frame, f"ours.{DATABASE}.{name}").append()
        else:
            frame.writeTo(f"ice.{DATABASE}.{name}").append()
        if kind.deleted:
            self.spark.sql(f"DELETE FROM ice.{DATABASE}.{name} WHERE pmod(xxhash64(id), {_DELETED}) = 0")  # noqa: S608

    def _register(self, name: str, *, encrypted: bool) -> None:
        location = self._kept[name]
        if encrypted:
            self.catalog.register_table(f"{DATABASE}.{name}", location)
        else:
            self.spark.sql(f"CALL ice.system.register_table(table => '{DATABASE}.{name}', metadata_file => '{location}')")


def _add_java_catalog(session: Session) -> None:
    """Give the session Java's catalog as users have it, tables cached; the tests' own ``ice`` caches none."""
    conf, prefix = session.spark.conf, "spark.sql.catalog"
    conf.set(f"{prefix}.{JAVA_CATALOG}", conf.get(f"{prefix}.ice"))
    for name in ("type", "uri", "warehouse", "encryption.kms-impl"):
        conf.set(f"{prefix}.{JAVA_CATALOG}.{name}", conf.get(f"{prefix}.ice.{name}"))
