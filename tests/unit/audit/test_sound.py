"""Sound tables have no findings: those that Java wrote, and ours after every kind of change."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from icelock.audit.options import AuditOptions
from icelock.audit.table import Subject, audit_table
from icelock.catalog.trust.kept import Kept
from icelock.kms.loader import load_kms_client
from icelock.maintenance import audit
from tests.golden.relocate import TABLES, RelocatingFileIO, catalog_properties, metadata_location
from tests.lakes.sqlite import KEYED, TestLake, people

FOUND = {"plain_v3": {"plain-table": 1}, "stats": {"statistics-in-the-clear": 2}}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_java_wrote(name: str) -> None:
    """Parquet, Avro, deletion vectors, expired snapshots, refs, keys of 32 bytes; Java leaves statistics in the clear."""
    properties = catalog_properties(name)
    subject = Subject(
        name=name,
        kept=Kept(location=metadata_location(name), io=RelocatingFileIO(properties)),
        kms=lambda: load_kms_client(properties),  # type: ignore[arg-type,return-value]
    )
    report = audit_table(subject, AuditOptions.of("bytes", snapshots="all", threads=4, most=10))
    assert (report.counts, report.unseen_count) == (FOUND.get(name, {}), 0)
    assert report.encrypted == (name != "plain_v3")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> TestLake:
    """Two encrypted tables: one that was changed in every way, one that is empty."""
    lake = TestLake(tmp_path_factory.mktemp("lake"))
    catalog = lake.catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.empty", people().schema, properties=KEYED)
    table = catalog.create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    for start in range(0, 40, 10):
        table.append(people(start))
    table.manage_snapshots().create_tag(table.refresh().current_snapshot().snapshot_id, "kept").commit()
    table.delete("id = 3")
    table.upsert(people(35, 10).set_column(1, "name", pa.array(["changed"] * 10)), ["id"])
    table.maintenance.compact(options={"min-input-files": "2"})
    table.refresh().manage_snapshots().create_branch(table.refresh().current_snapshot().snapshot_id, "side").commit()
    table.append(people(50), branch="side")
    table.delete("id = 7")
    catalog.close()
    return lake


def test_our_tables_after_every_kind_of_change(lake: TestLake) -> None:
    before = lake.files()
    report = audit(lake.catalog(), "db", depth=["bytes", "foreign"])
    assert lake.files() == before
    assert [(table.table, table.verdict.value, dict(table.counts)) for table in report.tables] == [
        ("db.empty", "sound", {}),
        ("db.t", "sound", {}),
    ]
    table = report.tables[1]
    assert table.statements == {"catalog": "agrees", "hash": "agrees", "answer": "none", "pin": "none", "pins-file": "none"}
    assert table.objects["encrypted, left over"].files == 0
    assert table.objects["encrypted, reached"].files == sum(encrypted.files for encrypted, _ in table.files.values())
    assert {ref for snapshot in table.snapshots for ref in snapshot.refs} == {"main", "side", "kept"}


def test_after_an_expiry_with_files_of_old_snapshots_left(lake: TestLake) -> None:
    catalog = lake.catalog()
    table = catalog.load_table("db.t")
    snapshots = len(table.metadata.snapshots)
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).retain_last(1).commit()
    report = audit(catalog, "db.t", depth="foreign").tables[0]
    assert len(report.snapshots) < snapshots
    assert (report.counts, report.verdict.value) == ({}, "sound")


def test_the_current_state_alone(lake: TestLake) -> None:
    catalog = lake.catalog()
    report = audit(catalog, "db.t", snapshots="current").tables[0]
    assert [one.id for one in report.snapshots] == [catalog.load_table("db.t").current_snapshot().snapshot_id]
    assert report.files["manifest lists"][0].files == 1
