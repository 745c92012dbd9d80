"""iceberg-rust reads what icelock wrote and maintained, row by row at every snapshot.

By hand, as it compiles for many minutes: ``python -m tests.interop.rust_reader CHECKOUT``, with cargo and a checkout of iceberg-rust, to
whose workspace it adds a member. It prints what docs/reference/iceberg-rust.md says, and exits with 1 if a table is not read as expected.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType
from rich.console import Console
from rich.table import Table as Shown

from icelock.maintenance import convert
from tests.helpers.tables import local
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.table.test_convert import plain_catalog

KEY: Final = "0123456789012345"  # keyA of the test lakes
SOURCE: Final = Path(__file__).parent / "rust" / "main.rs"
NOT_READ: Final = frozenset({"deletion vectors", "keys of 24 bytes"})
MANIFEST: Final = """
[package]
name = "reader"
version = "0.1.0"
edition = "2024"

[[bin]]
name = "reader"
path = "{source}"

[dependencies]
arrow-cast = {{ workspace = true }}
futures = {{ workspace = true }}
iceberg = {{ path = "../crates/iceberg" }}
serde_json = {{ workspace = true }}
tokio = {{ workspace = true, features = ["full"] }}
"""


def built(checkout: Path) -> Path:
    """Return the reader, compiled as a member of the checkout's workspace."""
    member, manifest = checkout / "icelock-reader", checkout / "Cargo.toml"
    member.mkdir(exist_ok=True)
    (member / "Cargo.toml").write_text(MANIFEST.format(source=SOURCE), encoding="utf-8")
    text = manifest.read_text(encoding="utf-8")
    if member.name not in text:
        manifest.write_text(text.replace("members = [", f'members = [\n  "{member.name}",', 1), encoding="utf-8")
    subprocess.run(["cargo", "build", "--package", "reader"], check=True, cwd=checkout)
    return checkout / "target" / "debug" / "reader"


class Checked:
    """Tables that were read by both."""

    def __init__(self, reader: Path) -> None:
        self._reader = reader
        self.rows: dict[str, tuple[int, str]] = {}

    def look(self, name: str, table: Any) -> None:
        """Compare all snapshots of a table."""
        snapshots = [snapshot.snapshot_id for snapshot in table.refresh().snapshots()]
        told = {self._read(table, snapshot) for snapshot in snapshots}
        self.rows[name] = len(snapshots), "; ".join(sorted(told))

    def _read(self, table: Any, snapshot: int) -> str:
        command = [self._reader, local(table.metadata_location), "keyA", KEY, str(snapshot)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        if done.returncode:
            return f"an error: {done.stderr.strip().splitlines()[0]}"
        wanted = table.scan(snapshot_id=snapshot, selected_fields=("id",)).to_arrow()["id"].to_pylist()
        found = [int(line.partition("\t")[0]) for line in done.stdout.splitlines()]
        return "equal" if sorted(found) == sorted(wanted) else f"{len(found)} rows instead of {len(wanted)}"


def filled(lake: TestLake, name: str, schema: pa.Schema | None = None, **properties: str) -> Any:
    table = lake.catalog().create_table(f"db.{name}", schema or people().schema, properties={**KEYED, **properties})
    with table.update_spec() as spec:
        spec.add_identity("city")
    for start in range(0, 100, 20):
        table.append(people(start, 20))
    return table


def maintained(lake: TestLake, checked: Checked) -> None:
    """One table through all of it."""
    table = filled(lake, "maintained")
    table.delete("id < 30")
    table.upsert(people(90, 20), ["id"])
    steps: dict[str, Callable[[Any], Any]] = {
        "appended, deleted from, upserted": lambda upkeep: upkeep,
        "compacted": lambda upkeep: upkeep.compact(options={"rewrite-all": "true"}),
        "compacted in an order": lambda upkeep: upkeep.compact(sort_by="id desc", options={"rewrite-all": "true"}),
        "manifests rewritten": lambda upkeep: upkeep.rewrite_manifests(),
        **{f"rotated: {level}": lambda upkeep, level=level: upkeep.rotate(level) for level in ("kek", "wrap", "data", "lists", "all")},
    }
    for name, step in steps.items():
        step(table.maintenance)
        checked.look(name, table.refresh())


def evolved(lake: TestLake, checked: Checked) -> None:
    table = filled(lake, "evolved")
    with table.update_schema() as change:
        change.rename_column("name", "called").add_column("more", IntegerType())
    table.append(people(500, 3).rename_columns(["id", "called", "city"]).append_column("more", pa.array([1, 2, 3], pa.int32())))
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4))
    table.append(people(600, 9).rename_columns(["id", "called", "city"]).append_column("more", pa.nulls(9, pa.int32())))
    checked.look("schema and partition spec evolved", table)


def deleted(lake: TestLake, checked: Checked) -> None:
    table = filled(lake, "vectors", **{"write.delete.mode": "merge-on-read"})
    table.delete("id in (3, 47, 92)")
    vectors = table.refresh()
    checked.look("deletion vectors", vectors)
    vectors.maintenance.rewrite_deletes(into="data")
    vectors.maintenance.expire_snapshots().older_than(datetime.max.replace(tzinfo=UTC)).retain_last(1).commit()
    checked.look("the same, into the data, and expired", lake.catalog().load_table("db.vectors"))


def converted(lake: TestLake, checked: Checked) -> None:
    for version in ("1", "2"):
        name = f"db.converted{version}"
        plain = plain_catalog(lake).create_table(name, people().schema, properties={"format-version": version})
        for start in (0, 20):
            plain.append(people(start, 20))
        plain.delete("id = 7")
        convert(lake.catalog().load_table(name), key_id="keyA")
        table = lake.catalog().load_table(name)
        table.append(people(900, 3))
        checked.look(f"converted from format version {version}, appended", table)


def main(checkout: str) -> int:
    """Build, make tables, and print."""
    checked = Checked(built(Path(checkout).resolve()))
    with tempfile.TemporaryDirectory(prefix="icelock-rust-") as folder:
        lake = TestLake(Path(folder))
        lake.catalog().create_namespace("db")
        maintained(lake, checked)
        evolved(lake, checked)
        for length in ("24", "32"):
            checked.look(f"keys of {length} bytes", filled(lake, f"keys{length}", **{"encryption.data-key-length": length}))
        deleted(lake, checked)
        converted(lake, checked)
    shown = Shown("table", "snapshots", "as iceberg-rust reads it")
    for name, (snapshots, told) in checked.rows.items():
        shown.add_row(name, str(snapshots), told)
    Console().print(shown)
    return int(any((told != "equal") != (name in NOT_READ) for name, (_, told) in checked.rows.items()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
