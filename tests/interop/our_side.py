"""icelock as the tests use it, in plain Python (Arrow) and as a Spark data source, on the tables that Java sees too.

Every commit is followed by a look from Java's side: see ``landed``.

Not here: Java's own work (``java_side``).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import icelock
import icelock.spark
from tests.interop.java_side import Java, frame_of, rows_of_frame
from tests.interop.session import DATABASE, Session
from tests.interop.views import EVERYTHING, View

KEYED: Final = {"encryption.key-id": "keyA"}


class Ours:
    """Tables are named without catalog and database."""

    def __init__(self, session: Session, java: Java) -> None:
        self.spark = session.spark
        self.java = java
        self.catalog = icelock.load_catalog("ours", **session.properties)
        self.mixed = icelock.load_catalog("mixed", **session.properties, **{"icelock.plaintext-files": "allow-unkeyed"})
        self.commits = 0
        _after_commits(self.catalog, self.landed)

    def create(self, table: str, schema: Any, *, properties: Mapping[str, str] | None = None, **more: Any) -> Any:
        """Create an encrypted table."""
        made = self.catalog.create_table(f"{DATABASE}.{table}", schema, properties={**KEYED, **(properties or {})}, **more)
        self.landed(table)
        return made

    def table(self, table: str, *, mixed: bool = False) -> Any:
        """Return the table, loaded anew."""
        return (self.mixed if mixed else self.catalog).load_table(f"{DATABASE}.{table}")

    def read(self, table: str, view: View = EVERYTHING, *, mixed: bool = False) -> pa.Table:
        """Return the rows as plain Python reads them."""
        loaded = self.table(table, mixed=mixed)
        columns = (view.total,) if view.total else view.columns or ("*",)
        scan = loaded.scan(
            snapshot_id=_snapshot_id(loaded, view), selected_fields=columns, **({"row_filter": view.where} if view.where else {})
        )
        rows = (scan.use_ref(view.ref) if view.ref else scan).to_arrow()
        return pa.table({"n": [len(rows)], "total": [pc.sum(rows.column(0)).as_py()]}) if view.total else rows

    def read_by_spark(self, table: str, view: View = EVERYTHING, *, mixed: bool = False) -> pa.Table:
        """Return the rows as the data source reads them."""
        reader = self.spark.read.format("icelock")
        options = {"snapshot-id": view.snapshot_id, "as-of-timestamp": view.as_of_ms}
        if view.ref:
            options[str(self.table(table).metadata.refs[view.ref].snapshot_ref_type.value)] = view.ref
        if any(name.startswith("_") for name in view.columns):
            options["columns"] = ", ".join(view.columns)
        for name, value in options.items():
            reader = reader if value is None else reader.option(name, str(value))
        return rows_of_frame(reader.load(f"{'mixed' if mixed else 'ours'}.{DATABASE}.{table}"), view)

    def read_natively(self, table: str, view: View = EVERYTHING, *, mixed: bool = False) -> pa.Table:
        """Return the rows as Spark's own Parquet reader reads them, as far as it can."""
        at: dict[str, Any] = {"snapshot_id": view.snapshot_id, "as_of_timestamp": view.as_of_ms}
        if view.ref:
            at[str(self.table(table).metadata.refs[view.ref].snapshot_ref_type.value)] = view.ref
        columns = list(view.columns) if any(name.startswith("_") for name in view.columns) else None
        name = f"{'mixed' if mixed else 'ours'}.{DATABASE}.{table}"
        return rows_of_frame(icelock.spark.read(self.spark, name, columns=columns, **at), view)

    def landed(self, table: str) -> None:
        """Check what each commit of ours must leave: Java loads the table, and the metastore's hash is that of the file."""
        self.commits += 1
        parameters = self.java.parameters(table)
        stored = path_of(parameters["metadata_location"]).read_bytes()
        text = gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored
        assert parameters["metadata_hash"] == base64.b64encode(hashlib.sha256(text).digest()).decode()
        loaded = self.java.table(table)
        assert loaded.operations().current().metadataFileLocation() == parameters["metadata_location"]


class ArrowWriter:
    """Writes from plain Python; calling it appends."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours

    def __call__(self, table: str, rows: pa.Table) -> None:
        """Append rows."""
        self._ours.table(table).append(rows)

    def overwrite(self, table: str, rows: pa.Table) -> None:
        """Replace all rows."""
        self._ours.table(table).overwrite(rows)

    def compact(self, table: str) -> None:
        """Put all data files together."""
        assert self._ours.table(table).maintenance.compact(options={"rewrite-all": "true"}).added_files == 1


class SparkWriter:
    """Writes through the data source, whose commit is made in a process of Spark's; calling it appends."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours

    def __call__(self, table: str, rows: pa.Table) -> None:
        """Append rows."""
        self._save(table, rows, "append")

    def overwrite(self, table: str, rows: pa.Table) -> None:
        """Replace all rows."""
        self._save(table, rows, "overwrite")

    def compact(self, table: str) -> None:
        """Put all data files together, sorted by Spark."""
        options = {"rewrite-all": "true"}
        assert icelock.spark.compact(self._ours.spark, f"ours.{DATABASE}.{table}", sort_by="id desc", options=options).added_files == 1
        self._ours.landed(table)

    def _save(self, table: str, rows: pa.Table, mode: str) -> None:
        frame = frame_of(self._ours.spark, _for_spark(rows)).coalesce(1)
        frame.write.format("icelock").mode(mode).save(f"ours.{DATABASE}.{table}")
        self._ours.landed(table)


def _snapshot_id(table: Any, view: View) -> int | None:
    if view.as_of_ms is None:
        return view.snapshot_id
    found = table.snapshot_as_of_timestamp(view.as_of_ms)
    assert found is not None
    return int(found.snapshot_id)


def path_of(location: str) -> Path:
    """Return the file of a location."""
    return Path(location.removeprefix("file://").removeprefix("file:"))


def magics(location: str) -> dict[str, str]:
    """Return the first four bytes of every file below a table's location, by relative path; Hadoop's own checksum files are left out."""
    root = path_of(location)
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".crc")
    return {str(path.relative_to(root)): _first_bytes(path) for path in files}


def _first_bytes(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(4).decode("latin1")


def plain_files(location: str) -> list[str]:
    """Return the files below a table's location that are neither encrypted nor metadata.json."""
    return [path for path, magic in magics(location).items() if magic not in {"AGS1", "PARE"} and ".metadata.json" not in path]


def _for_spark(rows: pa.Table) -> pa.Table:
    """Return rows in the types that Spark has: text for a UUID, binary for fixed-length bytes."""
    for i, field in enumerate(rows.schema):
        if field.type == pa.uuid():
            rows = rows.set_column(
                i, field.name, pa.array([None if v is None else str(v) for v in rows.column(i).to_pylist()], pa.string())
            )
        elif pa.types.is_fixed_size_binary(field.type):
            rows = rows.set_column(i, field.name, rows.column(i).cast(pa.binary()))
    return rows


def _after_commits(catalog: Any, check: Callable[[str], None]) -> None:
    """Call ``check`` with the table's name after each commit through this catalog object."""
    commit = catalog.commit_table

    def commit_and_check(table: Any, requirements: Any, updates: Any) -> Any:
        response = commit(table, requirements, updates)
        check(table.name()[-1])
        return response

    catalog.commit_table = commit_and_check
