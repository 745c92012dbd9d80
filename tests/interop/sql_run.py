"""A case of ``sql_cases`` on one of the engines, and what came of it in a form that both share.

Java Iceberg is the catalog ``plain``, icelock ``lake``; each has a database of its own on one metastore. A table's metadata is read from
its file, by neither engine.

Not here: what the engines may differ in (``sql_cases``), the page (``sql_page``).
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.hive import _HiveClient
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

from tests.interop.compare import plain
from tests.interop.session import JAVA_SQL, OUR_SQL, Session
from tests.interop.sql_cases.case import (
    IDENTIFIERS,
    LOCATION,
    ORDER,
    PROPERTIES,
    REFS,
    ROWS,
    SCHEMA,
    SNAPSHOTS,
    SPEC,
    STATEMENTS,
    Case,
    Frame,
    Statement,
)

Outcome = dict[str, list[Any]]
PARTS: Final = (STATEMENTS, ROWS, SNAPSHOTS)
# Counts of a snapshot's summary that do not depend on how rows are dealt out to files.
COUNTS: Final = ("added-records", "deleted-records", "total-records", "added-position-deletes")
_SETTINGS: Final = {"spark.sql.shuffle.partitions": "1", "spark.sql.leafNodeDefaultParallelism": "1"}
_OWN_PROPERTIES: Final = ("encryption.", "icelock.", "write.parquet.compression", "write.delete.", "write.update.", "write.merge.", "owner")
_IDS: Final = {"id", "element-id", "key-id", "value-id"}
# What icelock has procedures for, as Java's statements.
_SHORT: Final = {
    "java": {
        "+branch": "alter table {{t}} create branch `{0}`",
        "+tag": "alter table {{t}} create tag `{0}`",
        "+field": "alter table {{t}} add partition field {0}",
    },
    "icelock": {
        "+branch": "call {{cat}}.system.create_branch('{{id}}', '{0}')",
        "+tag": "call {{cat}}.system.create_tag('{{id}}', '{0}')",
        "+field": "call {{cat}}.system.add_partition_field('{{id}}', '{0}')",
    },
}
_NUMBERED: Final = re.compile(r"\{m?s\d\}")
_MESSAGE: Final = 300
_SMALL: Final = 10**9  # ids and times of snapshots are larger
_LONG_AGO: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()


@dataclass(frozen=True, kw_only=True)
class Side:
    """One engine: ``name`` is java or icelock."""

    name: str
    session: Session
    catalog: str
    database: str


def sides(session: Session) -> tuple[Side, Side]:
    """Return Java's side and ours, each with its database."""
    found = (
        Side(name="java", session=session, catalog=JAVA_SQL, database="sqljava"),
        Side(name="icelock", session=session, catalog=OUR_SQL, database="sqllake"),
    )
    for side in found:
        session.spark.sql(f"create namespace if not exists {side.catalog}.{side.database}")
    return found


def run(side: Side, case: Case, number: int) -> Outcome:
    """Run a case; return its parts."""
    running = _Running(side, case, number)
    with _settings(side.session.spark, case.conf):
        return running.outcome()


def differing(one: Outcome, other: Outcome) -> tuple[str, ...]:
    """Return the parts in which outcomes differ; of errors their kinds count."""
    return tuple(part for part in PARTS if _compared(one[part]) != _compared(other[part]))


def _compared(part: list[Any]) -> list[Any]:
    return [{name: item.get(name) for name in ("kind", "changed")} if isinstance(item, dict) else item for item in part]


@contextmanager
def _settings(spark: Any, conf: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in {**_SETTINGS, **conf}}
    for name, value in {**_SETTINGS, **conf}.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.catalog.clearCache()
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


class _Running:
    def __init__(self, side: Side, case: Case, number: int) -> None:
        self.side, self.case = side, case
        self.spark = side.session.spark
        self.table = f"case_{number}"
        self.namespace = f"{side.database}_{number}"
        self.place = f"{side.session.warehouse.as_uri()}/{side.database}_places/{number}"

    def outcome(self) -> Outcome:
        for statement in self.case.given:
            self._do(statement)
        before = {snapshot["snapshot-id"] for snapshot in self._snapshots()}
        instead = self.case.instead if self.side.name == "icelock" else ()
        done = [self._tried(lambda s=statement: self._do(s)) for statement in instead or self.case.statements]
        if self.case.instead:  # other statements, of which only the errors can be compared
            done = [item for item in done if isinstance(item, dict)]
        seen = [self._tried(lambda q=query: self._seen(q)) for query in self.case.looks]
        made = [snapshot for snapshot in self._snapshots() if snapshot["snapshot-id"] not in before]
        return {STATEMENTS: done, ROWS: seen, SNAPSHOTS: [_summary(snapshot) for snapshot in made]}

    def _tried(self, what: Callable[[], list[Any]]) -> Any:
        before = self._location()
        try:
            return what()
        except Exception as e:  # noqa: BLE001 - the error is what came of it
            kind = {**kind_of(e), "message": str(e).partition("\n\tat ")[0][:_MESSAGE]}
            return {**kind, "changed": True} if self._location() != before else kind

    def _do(self, statement: Statement) -> list[Any]:
        if isinstance(statement, Frame):
            self._write(statement)
            return []
        short, _, rest = statement.partition(" ")
        if short == "+orphan":
            return self._leave(rest)
        if short.startswith("+"):
            statement = _SHORT[self.side.name][short].format(rest)
        found = self.spark.sql(statement.format_map(self._names(statement)))
        return self._rows(found) if statement.lstrip().startswith(("call", "select", "/*")) else []

    def _write(self, frame: Frame) -> None:
        writer = self.spark.sql(frame.query.format_map(self._names())).writeTo(self._names()["t"])
        for name, value in frame.options.items():
            writer = writer.option(name, value.format_map(self._names(value)))
        if frame.by:
            writer = writer.partitionedBy(F.col(frame.by))
        getattr(writer, frame.method)(*([F.expr(frame.condition)] if frame.condition else []))

    def _leave(self, path: str) -> list[Any]:
        """Leave a file of nobody's in the table's folder, an old one."""
        left = Path(self._metadata()["location"].removeprefix("file://").removeprefix("file:")) / path
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"PAR1")
        os.utime(left, (_LONG_AGO, _LONG_AGO))
        return []

    def _seen(self, query: str) -> list[Any]:
        if query.startswith("+"):
            return _FACTS[query](self)
        return self._rows(self.spark.sql(query.format_map(self._names(query))))

    def _rows(self, found: Any) -> list[Any]:
        """Return the columns with their types, and the rows in an order of their own."""
        rows = sorted(json.dumps(self.shown(row), ensure_ascii=False, default=str) for row in found.collect())
        return [found.schema.simpleString(), *rows]

    def shown(self, value: Any) -> Any:
        """Return a value in which snapshots, names and folders are the same on both sides."""
        if isinstance(value, (Row, list, tuple)):
            return [self.shown(item) for item in value]
        if isinstance(value, dict):
            return sorted([self.shown(key), self.shown(item)] for key, item in value.items())
        if isinstance(value, str):
            return self._neutral(value)
        if isinstance(value, int) and value > _SMALL:
            return next((name for name, number in self._numbers().items() if number == value), value)
        return plain(value)

    def _neutral(self, text: str) -> str:
        names = {
            self.place: "PLACE",
            self.side.session.warehouse.as_uri(): "WAREHOUSE",
            f"file:{self.side.session.warehouse}": "WAREHOUSE",
            self.namespace: "NAMESPACE",
            self.side.database: "DATABASE",
            self.table: "TABLE",
        }
        for name, word in names.items():
            text = text.replace(name, word)
        return "CATALOG" if text == self.side.catalog else text

    def _numbers(self) -> dict[str, int]:
        """Return ids and times of the snapshots, by name."""
        found = self._snapshots()
        ids = {f"s{i}": int(snapshot["snapshot-id"]) for i, snapshot in enumerate(found, 1)}
        return {**ids, **{f"ms{i}": int(snapshot["timestamp-ms"]) for i, snapshot in enumerate(found, 1)}}

    def _names(self, statement: str = "") -> dict[str, Any]:
        catalog, database = self.side.catalog, self.side.database
        return {
            "t": f"{catalog}.{database}.{self.table}",
            "name": self.table,
            "id": f"{database}.{self.table}",
            "db": f"{catalog}.{database}",
            "only_db": database,
            "cat": catalog,
            "ns": f"{catalog}.{self.namespace}",
            "only": self.namespace,
            "place": self.place,
            "mode": self.case.mode,
            **(self._numbers() if _NUMBERED.search(statement) else {}),
        }

    def _location(self) -> str | None:
        with _HiveClient(self.side.session.uri) as client:
            try:
                return str(client.get_table(self.side.database, self.table).parameters["metadata_location"])
            except Exception as e:
                if type(e).__name__ == "NoSuchObjectException":
                    return None
                raise

    def _metadata(self) -> dict[str, Any]:
        location = self._location()
        if location is None:
            return {}
        path = Path(location.removeprefix("file://").removeprefix("file:"))
        if not path.exists():
            return {}
        stored = path.read_bytes()
        found: dict[str, Any] = json.loads(gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored)
        return found

    def _snapshots(self) -> list[dict[str, Any]]:
        return sorted(self._metadata().get("snapshots", []), key=lambda snapshot: (snapshot["sequence-number"], snapshot["timestamp-ms"]))

    def schema(self) -> list[Any]:
        found = self._metadata()
        if not found:
            return []
        schema = next(s for s in found["schemas"] if s["schema-id"] == found["current-schema-id"])
        return [json.dumps(_without_ids(field), sort_keys=True) for field in schema["fields"]]

    def identifiers(self) -> list[Any]:
        found = self._metadata()
        schema = next(s for s in found["schemas"] if s["schema-id"] == found["current-schema-id"])
        names = dict(_names_by_id(schema, ""))
        return sorted(names[field_id] for field_id in schema.get("identifier-field-ids", []))

    def spec(self) -> list[Any]:
        return [f"{field['name']}: {field['transform']}" for field in self._default("partition-specs", "spec-id")]

    def order(self) -> list[Any]:
        return [f"{field['transform']} {field['direction']} {field['null-order']}" for field in self._default("sort-orders", "order-id")]

    def _default(self, name: str, number: str) -> list[dict[str, Any]]:
        found = self._metadata()
        entries = (entry for entry in found.get(name, []) if entry[number] == found[f"default-{number.replace('order', 'sort-order')}"])
        return [field for entry in entries for field in entry["fields"] if field["transform"] != "void"]

    def refs(self) -> list[Any]:
        return sorted(f"{name}: {json.dumps(self.shown(ref))}" for name, ref in self._metadata().get("refs", {}).items())

    def properties(self) -> list[Any]:
        found = self._metadata().get("properties", {}).items()
        return sorted(f"{name}={value}" for name, value in found if not name.startswith(_OWN_PROPERTIES))

    def location(self) -> list[Any]:
        return [self._neutral(self._metadata().get("location", ""))]


_FACTS: Final[Mapping[str, Callable[[_Running], list[Any]]]] = {
    SCHEMA: _Running.schema,
    SPEC: _Running.spec,
    REFS: _Running.refs,
    PROPERTIES: _Running.properties,
    LOCATION: _Running.location,
    ORDER: _Running.order,
    IDENTIFIERS: _Running.identifiers,
}


def _names_by_id(struct: Mapping[str, Any], path: str) -> Iterator[tuple[int, str]]:
    for field in struct["fields"]:
        yield field["id"], path + field["name"]
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _names_by_id(field["type"], f"{path}{field['name']}.")


def _without_ids(kind: Any) -> Any:
    if isinstance(kind, dict):
        return {name: _without_ids(inner) for name, inner in kind.items() if name not in _IDS}
    return [_without_ids(inner) for inner in kind] if isinstance(kind, list) else kind


def _summary(snapshot: Mapping[str, Any]) -> list[Any]:
    summary = snapshot["summary"]
    return [summary["operation"], *(int(summary.get(count, 0)) for count in COUNTS)]


def kind_of(error: Exception) -> dict[str, str]:
    """Return an error's kind and class: ``analysis`` and ``runtime`` are Spark's own, with its condition; all others are refusals."""
    condition = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
    condition = "" if condition.startswith("_LEGACY") else condition
    name = type(error).__name__
    if isinstance(error, (AnalysisException, ParseException)):
        return {"kind": f"analysis {condition}".strip(), "class": f"{name} {condition}".strip()}
    if condition:
        return {"kind": f"runtime {condition}", "class": f"{name} {condition}"}
    return {"kind": "refused", "class": _cause(error.java_exception) if isinstance(error, Py4JJavaError) else name}


def _cause(thrown: Any) -> str:
    """Return the class of the first cause that is not a wrapper of Spark's."""
    names = []
    while thrown is not None:
        names.append(str(thrown.getClass().getSimpleName()))
        thrown = thrown.getCause()
    return next((name for name in names if name not in {"SparkException", "RuntimeException", "QueryExecutionException"}), names[0])
