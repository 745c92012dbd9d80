"""Tables that are made or replaced with their rows in one commit: nothing before it, everything after it, nothing left on failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icelock.errors import FormatError, KmsError, PolicyError
from tests.helpers.table_model import verified
from tests.lakes.sqlite import KEYED, TestLake, people

SCHEMA = Schema(
    NestedField(7, "id", LongType(), required=False),
    NestedField(9, "name", StringType(), required=False, doc="who", initial_default="nobody", write_default="nobody"),
    NestedField(8, "city", StringType(), required=False),
)
BY_CITY = PartitionSpec(PartitionField(8, 1000, IdentityTransform(), "town"))
BY_ID = SortOrder(SortField(source_id=7, transform=IdentityTransform()))


def rows(table: Any, **scan: Any) -> list[int]:
    return sorted(table.scan(**scan).to_arrow()["id"].to_pylist())


# --- create


def test_a_table_and_its_rows_are_one_commit(lake: TestLake) -> None:
    catalog = lake.catalog()
    transaction = catalog.create_table_transaction("db.t", SCHEMA, None, BY_CITY, BY_ID, KEYED)
    with transaction as tx:
        tx.append(people())
        with pytest.raises(NoSuchTableError):
            lake.catalog().load_table("db.t")
        assert not [name for name in lake.files() if name.endswith(".metadata.json")]
        table = tx.commit_transaction()
    assert rows(table) == list(range(10))
    assert lake.catalog().load_table("db.t").metadata == table.metadata
    assert [name for name in lake.files() if name.endswith(".metadata.json")] == [
        Path(table.metadata_location.removeprefix("file://")).relative_to(lake.warehouse).as_posix()
    ]
    assert table.metadata.metadata_log == []
    assert [f.field_id for f in table.schema().fields] == [1, 2, 3]
    assert table.schema().find_field("name").write_default == "nobody"
    assert table.schema().find_field("name").doc == "who"
    assert [(f.source_id, f.name) for f in table.spec().fields] == [(3, "town")]
    assert [f.source_id for f in table.sort_order().fields] == [1]
    assert table.properties == KEYED
    verified(table)
    table.append(people(10, 5))
    assert rows(lake.catalog().load_table("db.t")) == list(range(15))


def test_several_operations_and_none(lake: TestLake) -> None:
    catalog = lake.catalog()
    with catalog.create_table_transaction("db.t", people().schema, properties=KEYED) as tx:
        tx.append(people())
        tx.delete("id < 3")
        with tx.update_schema() as update:
            update.add_column("more", LongType())
        tx.append(people(20, 2).append_column("more", pa.array([1, 2])))
        tx.set_properties({"owner": "me"})
        tx.manage_snapshots().create_tag(tx.table_metadata.current_snapshot_id, "first").commit()
    table = catalog.load_table("db.t")
    assert rows(table) == [3, 4, 5, 6, 7, 8, 9, 20, 21]
    assert sorted(table.scan().use_ref("first").to_arrow()["id"].to_pylist()) == rows(table)
    assert rows(table, snapshot_id=table.snapshots()[0].snapshot_id) == list(range(10))
    assert table.properties["owner"] == "me"
    assert len(table.metadata.encryption_keys) == 4, "a KEK and one list key a snapshot"
    verified(table)
    empty = catalog.create_table_transaction("db.empty", SCHEMA, properties=KEYED).commit_transaction()
    assert rows(empty) == []
    assert catalog.load_table("db.empty").metadata.encryption_keys == []


def test_ctas_of_a_query(lake: TestLake) -> None:
    catalog = lake.catalog()
    source = catalog.create_table("db.source", SCHEMA, properties=KEYED)
    source.append(people())
    reader = source.scan(row_filter="id >= 5").to_arrow_batch_reader()
    tx = catalog.create_table_transaction("db.t", reader.schema, properties=KEYED)
    tx.append(reader)
    assert rows(tx.commit_transaction()) == [5, 6, 7, 8, 9]
    verified(catalog.load_table("db.t"))


def test_another_writer_makes_the_table_first(lake: TestLake) -> None:
    catalog = lake.catalog()
    tx = catalog.create_table_transaction("db.t", SCHEMA, properties=KEYED)
    tx.append(people())
    catalog.create_table("db.t", SCHEMA, properties=KEYED).append(people(100, 1))
    before = {name for name in lake.files() if "/00000-" in name or "snap-" in name}
    with pytest.raises(TableAlreadyExistsError):
        tx.commit_transaction()
    assert {name for name in lake.files() if "/00000-" in name or "snap-" in name} < before
    assert rows(catalog.load_table("db.t")) == [100]
    verified(catalog.load_table("db.t"))  # no file that no snapshot reaches


def test_an_empty_one_too(lake: TestLake) -> None:
    catalog = lake.catalog()
    tx = catalog.create_table_transaction("db.t", SCHEMA, properties=KEYED)
    catalog.create_table("db.t", SCHEMA, properties=KEYED)
    before = lake.files()
    with pytest.raises((TableAlreadyExistsError, CommitFailedException)):
        tx.commit_transaction()
    assert lake.files() == before


def test_what_is_refused_makes_nothing(lake: TestLake) -> None:
    catalog = lake.catalog()
    catalog.create_table("db.there", SCHEMA, properties=KEYED)
    before = lake.files()
    cases: list[tuple[type[Exception], str, Any]] = [
        (TableAlreadyExistsError, "db.there", KEYED),
        (NoSuchNamespaceError, "nodb.t", KEYED),
        (PolicyError, "db.t", {**KEYED, "format-version": "2"}),
        (PolicyError, "db.t", {"format-version": "3"}),
        (PolicyError, "db.t", {**KEYED, "encryption.keyid": "x"}),
        (PolicyError, "db.t", {**KEYED, "write.format.default": "orc"}),
        (KmsError, "db.t", {"encryption.key-id": "nobody"}),
    ]
    for error, name, properties in cases:
        with pytest.raises(error):
            catalog.create_table_transaction(name, SCHEMA, properties=properties)
    tx = catalog.create_table_transaction("db.t", SCHEMA, properties=KEYED)
    with pytest.raises(PolicyError, match="more"):
        tx.append(people().append_column("more", people()["id"]))
    beside = (lambda: tx._table.update_schema().union_by_name(people().schema).commit(), lambda: tx._table.update_spec().commit())
    for use in (tx._table.scan, tx._table.refresh, *beside):
        with pytest.raises(PolicyError, match="does not exist yet"):
            use()
    assert lake.files() == before
    assert not catalog.table_exists("db.t")


def test_a_block_that_fails_makes_no_table(lake: TestLake) -> None:
    catalog = lake.catalog()

    def fail() -> None:
        with catalog.create_table_transaction("db.t", SCHEMA, properties=KEYED) as tx:
            tx.append(people())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lake.files() == {}
    assert not catalog.table_exists("db.t")


def test_a_commit_of_which_nobody_knows_leaves_its_files(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the error leaves the block: the table may be there."""
    catalog = lake.catalog()
    commit = catalog.commit_table

    def lost(*arguments: Any) -> Any:
        commit(*arguments)
        msg = "no answer"
        raise CommitStateUnknownException(msg)

    def make() -> None:
        with catalog.create_table_transaction("db.t", SCHEMA, properties=KEYED) as tx:
            tx.append(people())
            tx.commit_transaction()

    monkeypatch.setattr(catalog, "commit_table", lost)
    with pytest.raises(CommitStateUnknownException):
        make()
    table = lake.catalog().load_table("db.t")
    assert rows(table) == list(range(10))
    verified(table)


def test_a_failing_catalog_leaves_no_file(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = lake.catalog()
    tx = catalog.create_table_transaction("db.t", SCHEMA, properties=KEYED)
    tx.append(people())

    def refuse(*_: Any, **__: Any) -> Any:
        msg = "the guard says no"
        raise PolicyError(msg)

    monkeypatch.setattr("icelock.catalog.base.check_change", refuse)
    with pytest.raises(PolicyError, match="says no"):
        tx.commit_transaction()
    assert lake.files() == {}
    assert not lake.catalog().table_exists("db.t")


def test_another_process_can_commit(lake: TestLake) -> None:
    """As Spark does: planned here, written there, committed in a third process."""
    planned = lake.catalog().create_table_transaction("db.t", SCHEMA, None, BY_CITY, properties=KEYED)
    data = planned.staged_metadata()
    files = planned._write(people())
    tx = lake.catalog().resume_create_transaction("db.t", data)
    tx.append_data_files(files)
    table = tx.commit_transaction()
    assert rows(table) == list(range(10))
    assert json.loads(data)["table-uuid"] == str(table.metadata.table_uuid)
    verified(table)
    with pytest.raises(TableAlreadyExistsError):
        lake.catalog().resume_create_transaction("db.t", data)
    with pytest.raises(FormatError):
        lake.catalog().resume_create_transaction("db.u", b"{}")


def test_if_not_exists(lake: TestLake) -> None:
    catalog = lake.catalog()
    first = catalog.create_table_if_not_exists("db.t", SCHEMA, properties=KEYED)
    first.append(people())
    again = catalog.create_table_if_not_exists("db.t", SCHEMA, properties=KEYED)
    assert again.metadata.table_uuid == first.metadata.table_uuid
    assert rows(again) == list(range(10))


def test_plain_tables_are_staged_by_pyiceberg(lake: TestLake) -> None:
    catalog = lake.catalog()
    with catalog.create_table_transaction("db.plain", people().schema, properties={"icelock.plain": "true"}) as tx:
        tx.append(people())
    assert rows(catalog.load_table("db.plain")) == list(range(10))


# --- replace


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", SCHEMA, partition_spec=BY_CITY, sort_order=BY_ID, properties={**KEYED, "owner": "me"})
    made.append(people())
    made.manage_snapshots().create_tag(made.current_snapshot().snapshot_id, "old").create_branch(
        made.current_snapshot().snapshot_id, "side"
    ).commit()
    return made


NEW = Schema(NestedField(1, "city", StringType(), required=False), NestedField(2, "extra", LongType(), required=False))


def test_a_table_is_replaced_in_one_commit_and_stays_itself(lake: TestLake, table: Any) -> None:
    before = table.metadata
    spec = PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "b"))
    tx = lake.catalog().replace_table_transaction("db.t", NEW, partition_spec=spec, properties={"color": "red"})
    tx.append(pa.table({"city": ["x"], "extra": pa.array([5], pa.int64())}))
    assert rows(lake.catalog().load_table("db.t")) == list(range(10)), "nothing is visible yet"
    tx.commit_transaction()
    now = lake.catalog().load_table("db.t")
    assert now.scan().to_arrow().to_pylist() == [{"city": "x", "extra": 5}]
    assert now.metadata.table_uuid == before.table_uuid
    assert now.location() == table.location()
    assert [s.snapshot_id for s in now.snapshots()][:1] == [s.snapshot_id for s in before.snapshots]
    assert now.current_snapshot().parent_snapshot_id is None, "as Java: the new content has no ancestor"
    assert now.current_snapshot().summary.additional_properties["total-records"] == "1"
    assert now.properties == {**KEYED, "owner": "me", "color": "red"}
    ids = {field.name: field.field_id for field in now.schema().fields}
    assert ids == {"city": 3, "extra": 4}, "a column of the same name keeps its id, a new one gets one that was never given"
    assert now.metadata.last_column_id == 4
    assert now.spec().spec_id == 1
    assert [(f.source_id, f.field_id) for f in now.spec().fields] == [(4, 1001)]
    assert now.sort_order().is_unsorted
    old = before.current_snapshot_id
    assert rows(now, snapshot_id=old) == list(range(10))
    assert sorted(now.scan().use_ref("old").to_arrow()["id"].to_pylist()) == list(range(10))
    assert now.metadata.refs["side"].snapshot_id == old
    assert now.metadata.next_row_id == 11
    assert len(now.metadata.metadata_log) == len(before.metadata_log) + 1, "one commit"
    verified(now)


def test_a_form_that_the_table_had_is_used_again(lake: TestLake, table: Any) -> None:
    tx = lake.catalog().replace_table_transaction("db.t", SCHEMA, partition_spec=BY_CITY, sort_order=BY_ID)
    tx.append(people(50, 2))
    tx.commit_transaction()
    now = lake.catalog().load_table("db.t")
    assert rows(now) == [50, 51]
    assert (len(now.metadata.schemas), len(now.metadata.partition_specs), len(now.metadata.sort_orders)) == (1, 1, 1)
    assert now.schema() == table.schema()
    verified(now)


def test_replaced_by_nothing(lake: TestLake, table: Any) -> None:
    lake.catalog().replace_table_transaction("db.t", people().schema).commit_transaction()
    now = lake.catalog().load_table("db.t")
    assert now.current_snapshot() is None
    assert rows(now) == []
    assert rows(now, snapshot_id=table.current_snapshot().snapshot_id) == list(range(10))
    now.append(people(3, 1))
    assert rows(lake.catalog().load_table("db.t")) == [3]
    verified(now)


def test_rows_that_came_meanwhile_are_replaced_and_stay_in_history(lake: TestLake, table: Any) -> None:
    tx = lake.catalog().replace_table_transaction("db.t", SCHEMA)
    tx.append(people(50, 2))
    table.append(people(20, 1))
    theirs = table.current_snapshot().snapshot_id
    tx.commit_transaction()
    now = lake.catalog().load_table("db.t")
    assert rows(now) == [50, 51]
    assert rows(now, snapshot_id=theirs) == [*range(10), 20]
    assert now.current_snapshot().parent_snapshot_id is None
    verified(now)


def test_a_change_of_form_meanwhile_is_a_conflict(lake: TestLake, table: Any) -> None:
    with table.transaction() as settings:
        settings.set_properties({"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    tx = lake.catalog().replace_table_transaction("db.t", NEW)
    tx.append(pa.table({"city": ["x"], "extra": pa.array([5], pa.int64())}))
    with table.update_schema() as update:
        update.add_column("theirs", LongType())
    before = set(lake.files())
    with pytest.raises(CommitFailedException):
        tx.commit_transaction()
    assert set(lake.files()) < before, "the files of the transaction are gone"
    now = lake.catalog().load_table("db.t")
    assert rows(now) == list(range(10))
    assert "theirs" in now.schema().column_names
    verified(now)


def test_what_a_replacement_may_not_do(lake: TestLake, table: Any) -> None:
    catalog = lake.catalog()
    catalog.create_table("db.plain", people().schema, properties={"icelock.plain": "true"})
    before = lake.files()
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (PolicyError, "db.t", {"properties": {"encryption.key-id": "keyB"}}),
        (PolicyError, "db.t", {"properties": {"encryption.data-key-length": "32"}}),
        (PolicyError, "db.t", {"properties": {"format-version": "2"}}),
        (PolicyError, "db.t", {"properties": {"write.format.default": "orc"}}),
        (PolicyError, "db.t", {"location": f"{lake.warehouse}/elsewhere"}),
        (PolicyError, "db.plain", {}),
        (NoSuchTableError, "db.none", {}),
    ]
    for error, name, arguments in cases:
        with pytest.raises(error):
            catalog.replace_table_transaction(name, SCHEMA, **arguments)
    assert lake.files() == before
    tx = catalog.replace_table_transaction("db.t", SCHEMA, table.location(), properties={**KEYED, "format-version": "3"})
    tx.commit_transaction()
    assert rows(catalog.load_table("db.t")) == []


def test_create_or_replace(lake: TestLake) -> None:
    catalog = lake.catalog()
    uuids = set()
    for start in (0, 50):
        tx = catalog.create_or_replace_table_transaction("db.t", SCHEMA, properties=KEYED)
        tx.append(people(start, 2))
        tx.commit_transaction()
        assert rows(catalog.load_table("db.t")) == [start, start + 1]
        uuids.add(catalog.load_table("db.t").metadata.table_uuid)
    assert len(uuids) == 1
    verified(catalog.load_table("db.t"))
