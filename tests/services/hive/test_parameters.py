"""What goes into a row, without a metastore: short, complete, and nothing that the hash does not cover."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from icelock.catalog.hive.lock import LockWait
from icelock.catalog.hive.parameters import check_row, row_parameters
from icelock.format.encrypted_key import EncryptedKey
from icelock.metadata import canonical_json
from icelock.metadata.table_metadata import Snapshot, TableMetadataV3
from tests.lakes.sqlite import KEYED

LOCATION = "file:/warehouse/db.db/t/metadata/00300-x.metadata.json"


def metadata(snapshots: int = 0, **properties: str) -> TableMetadataV3:
    made = [
        Snapshot(
            snapshot_id=n,
            sequence_number=n,
            timestamp_ms=1_700_000_000_000 + n,
            manifest_list=f"file:/warehouse/db.db/t/metadata/snap-{n}.avro",
            summary=Summary(Operation.APPEND, **{"added-records": "10"}),
            schema_id=0,
            first_row_id=10 * (n - 1),
            added_rows=10,
            key_id=f"list-{n}",
        )
        for n in range(1, snapshots + 1)
    ]
    keys = [EncryptedKey(key_id=f"list-{n}", encrypted_key_metadata=bytes(60), encrypted_by_id="kek") for n in range(1, snapshots + 1)]
    return TableMetadataV3(
        location="file:/warehouse/db.db/t",
        last_column_id=1,
        last_updated_ms=1_700_000_000_000,
        current_schema_id=0,
        schemas=[Schema(NestedField(1, "id", LongType(), required=False), schema_id=0)],
        partition_specs=[PartitionSpec(spec_id=0)],
        default_spec_id=0,
        last_partition_id=999,
        sort_orders=[UNSORTED_SORT_ORDER],
        default_sort_order_id=0,
        properties={**KEYED, **properties},
        snapshots=made,
        encryption_keys=keys,
        next_row_id=10 * snapshots,
    )


def test_300_snapshots_do_not_make_a_row_longer() -> None:
    """C-45: old metastores hold 4,000 characters a value."""
    many = metadata(300)
    small, large = (row_parameters(None, table, location=LOCATION, previous=LOCATION) for table in (metadata(), many))
    assert small.keys() == large.keys() == {
        "EXTERNAL", "table_type", "metadata_location", "previous_metadata_location", "encryption.key-id", "metadata_hash",
    }  # fmt: skip
    assert sum(map(len, small.values())) == sum(map(len, large.values())) < 500
    assert small["metadata_hash"] != large["metadata_hash"]
    check_row(large, many, table="db.t", location=LOCATION, require_hash=True)


def test_a_plain_table_gets_no_hash_and_an_old_one_is_taken_out() -> None:
    plain = metadata()
    plain = plain.model_copy(update={"properties": {}})
    assert "metadata_hash" not in row_parameters({"metadata_hash": "old"}, plain, location=LOCATION)


def test_removed_properties_go_and_others_stay() -> None:
    existing = {"note": "old", "comment": "another's", "metadata_hash": "old", "metadata_location": "old", "long": "short once"}
    row = row_parameters(existing, metadata(owner="me", long="x" * 4001), location=LOCATION, previous="old", removed={"note"})
    assert {key: row.get(key) for key in ("note", "comment", "owner", "long", "metadata_location", "previous_metadata_location")} == {
        "note": None,
        "comment": "another's",
        "owner": "me",
        "long": None,
        "metadata_location": LOCATION,
        "previous_metadata_location": "old",
    }
    assert row["metadata_hash"] != "old"


def fields(model: Any) -> set[str]:
    return {info.alias or name for name, info in (model.model_fields | getattr(model, "model_computed_fields", {})).items()}


@pytest.mark.parametrize(
    ("model", "order"),
    [
        (TableMetadataV3, canonical_json._TOP),
        (Snapshot, canonical_json._SNAPSHOT),
        (SnapshotRef, canonical_json._REF),
        (PartitionField, tuple(canonical_json.spec_field_object(PartitionField(1, 1000, IdentityTransform(), "x")))),
        (SortField, canonical_json._SORT_FIELD),
        (NestedField, tuple(canonical_json._field(NestedField(1, "x", LongType(), doc="d", initial_default=1, write_default=1)))),
        (StatisticsFile, canonical_json._STATISTICS),
        (PartitionStatisticsFile, canonical_json._STATISTICS),
        (BlobMetadata, canonical_json._BLOB),
    ],
)
def test_the_hash_covers_every_field_that_is_parsed(model: Any, order: tuple[str, ...]) -> None:
    """A field that is used and not hashed could be edited unseen: a newer PyIceberg that adds one must fail here."""
    assert fields(model) <= set(order) | {"source-ids"}


def test_a_lock_is_waited_for_about_three_minutes_as_java_does() -> None:
    wait = LockWait.from_properties({})
    assert 150 < sum(wait.seconds(check) for check in range(wait.checks)) < 240
    assert wait.seconds(0) == 0.05
    assert wait.seconds(10_000) == 5.0


def test_pyiceberg_s_settings_of_the_lock_are_honoured() -> None:
    given = {"lock-check-min-wait-time": "1.5", "lock-check-max-wait-time": "2", "lock-check-retries": "7"}
    wait = LockWait.from_properties(given)
    assert (wait.seconds(0), wait.seconds(1), wait.seconds(4), wait.checks) == (1.5, pytest.approx(1.65), 2.0, 7)
