"""How long manifests take to be put together: ``table.maintenance.rewrite_manifests`` beside Java's ``CALL rewrite_manifests``.

One table on one metastore, partitioned by day, whose manifests list files that need not exist: only manifests are read and written. Engines
take turns; after each run the table is rolled back, untimed. Wall time is min and median, CPU time (JVM and this process) the median.

    python benchmarks/manifests_vs_java.py [--files 10000] [--manifests 500] [--rounds 5] [--ours-only]

Needs what the interop tests need: a JDK and, once, Maven; with ``--ours-only`` nothing.
"""

from __future__ import annotations

import secrets
import statistics
import struct
import sys
import tempfile
import time
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
from icelock.metadata.manifest import DataFile  # noqa: E402
from icelock.secret import SecretBytes  # noqa: E402
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


def timed(what: str, run: Any, back: Any, rounds: int) -> list[float]:
    """Run, and print, one warm round and those that count."""
    found = []
    for number in range(rounds + 1):
        start = time.perf_counter()
        result = run()
        if number:
            found.append(time.perf_counter() - start)
        back()
    click.echo(f"{what:8} min {min(found):.2f} s, median {statistics.median(found):.2f} s   {result}")
    return found


@click.command()
@click.option("--files", default=10_000, show_default=True)
@click.option("--manifests", default=500, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--ours-only", is_flag=True, help="On SQLite, without a JVM.")
def main(*, files: int, manifests: int, rounds: int, ours_only: bool) -> None:
    """Time rewriting of manifests beside Java."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        if ours_only:
            catalog = TestLake(folder).catalog()
            catalog.create_namespace("db")
            base = make(catalog, "db.t", files, manifests).current_snapshot().snapshot_id
            timed("icelock", lambda: ours(catalog, "db.t"), lambda: roll_back(catalog, "db.t", base), rounds)
            return
        from tests.interop.session import DATABASE, interop_session  # noqa: PLC0415 - wants Spark

        with interop_session(folder) as session:
            catalog = icelock.load_catalog("ours", **session.properties)
            name = f"{DATABASE}.many"
            base = make(catalog, name, files, manifests).current_snapshot().snapshot_id
            call = f"CALL ice.system.rewrite_manifests('{name}')"

            def back() -> None:
                session.spark.sql(f"CALL ice.system.rollback_to_snapshot('{name}', {base})")

            java = timed("Java", lambda: tuple(session.spark.sql(call).first()), back, rounds)
            here = timed("icelock", lambda: ours(catalog, name), back, rounds)
            click.echo(f"ratio: min {min(here) / min(java):.2f}, median {statistics.median(here) / statistics.median(java):.2f}")


def roll_back(catalog: Any, name: str, snapshot: int) -> None:
    """Go back to a snapshot."""
    catalog.load_table(name).manage_snapshots().rollback_to_snapshot(snapshot).commit()


if __name__ == "__main__":
    main()
