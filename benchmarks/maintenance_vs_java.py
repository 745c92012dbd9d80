"""How long upkeep of a table takes in plain Python, beside the procedures of Java Iceberg in one Spark session on the same metastore.

``manifests``: ``rewrite_manifests`` of a table partitioned by day, whose files need not exist; after each run it is rolled back, untimed.
``leftovers``: ``leftovers`` beside ``remove_orphan_files`` as a dry run, on a table of empty files, a tenth of which nothing reaches.

    python benchmarks/maintenance_vs_java.py [--case manifests] [--files 10000] [--manifests 500] [--rounds 5] [--ours-only]

Wall time is min and median; peak is how much more memory this process held. Needs what the interop tests need: a JDK and, once, Maven;
with ``--ours-only`` nothing.
"""

from __future__ import annotations

import os
import secrets
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "spark"), str(ROOT)]

import icelock  # noqa: E402 - found through the path above
from icelock.format.key_metadata import KeyMetadata  # noqa: E402
from icelock.maintenance import leftovers  # noqa: E402
from icelock.metadata.manifest import DataFile  # noqa: E402
from icelock.secret import SecretBytes  # noqa: E402
from tests.helpers.tables import local  # noqa: E402
from tests.lakes.sqlite import TestLake  # noqa: E402

COLUMNS: Final = 8
DAYS: Final = 100
_A_COMMIT: Final = 25
SCHEMA: Final = Schema(
    NestedField(1, "day", IntegerType(), required=False),
    NestedField(2, "id", LongType(), required=False),
    *(NestedField(number, f"d{number}", DoubleType(), required=False) for number in range(3, COLUMNS + 1)),
)
BY_DAY: Final = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
PROPERTIES: Final = {
    "encryption.key-id": "keyA",
    "commit.manifest-merge.enabled": "false",
    "commit.manifest.target-size-bytes": str(1 << 20),
}


def data_file(location: str, number: int) -> DataFile:
    """Return the entry of a file that nobody opens."""
    counts = dict.fromkeys(range(1, COLUMNS + 1), 1_000_000)
    bound = struct.pack("<d", number / 7)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/data/00000-{number}-{secrets.token_hex(16)}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(number % DAYS),
        record_count=1_000_000,
        file_size_in_bytes=64_000_000 + number,
        column_sizes=dict.fromkeys(range(1, COLUMNS + 1), 8_000_000),
        value_counts=counts,
        null_value_counts=dict.fromkeys(counts, 0),
        nan_value_counts=dict.fromkeys(range(3, COLUMNS + 1), 0),
        lower_bounds={key: bound if key > 2 else struct.pack("<q" if key == 2 else "<i", number % DAYS) for key in counts},
        upper_bounds={key: bound if key > 2 else struct.pack("<q" if key == 2 else "<i", number % DAYS) for key in counts},
        split_offsets=[4],
        key_metadata=KeyMetadata(
            dek=SecretBytes(secrets.token_bytes(16)), aad_prefix=secrets.token_bytes(16), encrypted_length=64_000_000 + number
        ).encode(),
    )
    file.spec_id = 0
    file.fresh = True
    return file


def make(catalog: Any, name: str, files: int, manifests: int) -> Any:
    """Return a table with so many manifests, each with files of many days."""
    table = catalog.create_table(name, SCHEMA, partition_spec=BY_DAY, properties=PROPERTIES)
    share = files // manifests
    for start in range(0, manifests, _A_COMMIT):
        transaction = table.transaction()
        for number in range(start, min(start + _A_COMMIT, manifests)):
            with transaction.update_snapshot().fast_append() as producer:
                for file in range(share):
                    producer.append_data_file(data_file(table.location(), number * share + file))
        transaction.commit_transaction()
    return table


def ours(catalog: Any, name: str) -> tuple[int, int]:
    """Rewrite by icelock; return how many manifests were replaced, and made."""
    done = catalog.load_table(name).maintenance.rewrite_manifests()
    return done.replaced, done.created


def scatter(folder: Path, table: Any) -> int:
    """Make the files that the table names, and a ninth of as many others, all ten days old; return the number of the others."""
    old = time.time() - 10 * 86_400
    paths = [local(task.file.file_path) for task in table.scan().plan_files()]
    others = [folder / f"left-{number}.parquet" for number in range(len(paths) // 9)]
    for path in (*paths, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (old, old))
    return len(others)


def found(catalog: Any, name: str) -> int:
    """Return how many files icelock finds left over."""
    return len(leftovers(catalog.load_table(name), older_than=timedelta(days=3)).files)


def peak_mb() -> int:
    """Return the most memory that this process has held since ``reset_peak``, in MB."""
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")) // 1024


def reset_peak() -> int:
    """Forget the peak; return what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def timed(what: str, run: Any, back: Any, rounds: int) -> list[float]:
    """Run, and print, one warm round and those that count."""
    seconds = []
    held = reset_peak()
    for number in range(rounds + 1):
        start = time.perf_counter()
        result = run()
        if number:
            seconds.append(time.perf_counter() - start)
        back()
    click.echo(f"{what:8} min {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s, peak {peak_mb() - held} MB   {result}")
    return seconds


@click.command()
@click.option("--case", default="manifests", show_default=True, type=click.Choice(["manifests", "leftovers"]))
@click.option("--files", default=10_000, show_default=True)
@click.option("--manifests", default=500, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--ours-only", is_flag=True, help="On SQLite, without a JVM.")
def main(*, case: str, files: int, manifests: int, rounds: int, ours_only: bool) -> None:
    """Time upkeep beside Java."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        if ours_only:
            catalog = TestLake(folder).catalog()
            catalog.create_namespace("db")
            here(case, catalog, make(catalog, "db.t", files, manifests), rounds, lambda base: roll_back(catalog, "db.t", base))
            return
        from tests.interop.session import DATABASE, interop_session  # noqa: PLC0415 - wants Spark

        with interop_session(folder) as session:
            catalog = icelock.load_catalog("ours", **session.properties)
            table = make(catalog, f"{DATABASE}.many", files, manifests)

            def back(base: int) -> None:
                session.spark.sql(f"CALL ice.system.rollback_to_snapshot('{DATABASE}.many', {base})")

            ours = here(case, catalog, table, rounds, back)
            name, base = f"'{DATABASE}.many'", table.current_snapshot().snapshot_id
            if case == "manifests":
                java = timed(
                    "Java",
                    lambda: tuple(session.spark.sql(f"CALL ice.system.rewrite_manifests({name})").first()),
                    lambda: back(base),
                    rounds,
                )
            else:
                call = f"CALL ice.system.remove_orphan_files(table => {name}, dry_run => true)"
                java = timed("Java", lambda: len(session.spark.sql(call).collect()), lambda: None, rounds)
            click.echo(f"ratio: min {min(ours) / min(java):.2f}, median {statistics.median(ours) / statistics.median(java):.2f}")


def here(case: str, catalog: Any, table: Any, rounds: int, back: Callable[[int], None]) -> list[float]:
    """Time icelock."""
    name, base = ".".join(table.name()), table.current_snapshot().snapshot_id
    if case == "manifests":
        return timed("icelock", lambda: ours(catalog, name), lambda: back(base), rounds)
    click.echo(f"{scatter(local(table.location()) / 'data', table)} files are left over")
    return timed("icelock", lambda: found(catalog, name), lambda: None, rounds)


def roll_back(catalog: Any, name: str, snapshot: int) -> None:
    """Go back to a snapshot."""
    catalog.load_table(name).manage_snapshots().rollback_to_snapshot(snapshot).commit()


if __name__ == "__main__":
    main()
