"""A write that was planned before the table got other columns: committed where files of before mean the same, else a conflict.

What a column may become is the spec's "Schema Evolution". Java commits such writes and the values are gone; here they are conflicts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError, ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from icelock.errors import CommitError
from icelock.maintenance import leftovers
from icelock.table.commit.conflicts import check_same_columns, check_still_fits
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, TestLake

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "n": pa.array([1, 2], pa.int32()), "s": ["canary-1", "canary-2"]})
MORE = pa.table({"id": pa.array([3], pa.int64()), "n": pa.array([3], pa.int32()), "s": ["canary-3"]})


def make(lake: TestLake, **properties: str) -> Any:
    table = lake.catalog().create_table("db.t", ROWS.schema, properties={**KEYED, "commit.retry.max-wait-ms": "1", **properties})
    table.append(ROWS)
    return table


def replace_without_s(lake: TestLake) -> None:
    with lake.catalog().replace_table_transaction("db.t", pa.schema([("id", pa.int64())])) as tx:
        tx.append(pa.table({"id": pa.array([9], pa.int64())}))


def drop_s(lake: TestLake) -> None:
    with load(lake).update_schema() as update:
        update.delete_column("s")


def drop_and_add_s(lake: TestLake) -> None:
    drop_s(lake)
    with load(lake).update_schema() as update:
        update.add_column("s", StringType())


def require_n(lake: TestLake) -> None:
    with load(lake).update_schema(allow_incompatible_changes=True) as update:
        update.update_column("n", required=True)


def in_transaction(table: Any) -> None:
    with table.transaction() as tx:
        tx.set_properties({"owner": "me"})
        tx.append(MORE)
        tx.delete("id = 1")


OPERATIONS: dict[str, Callable[[Any], object]] = {
    "append": lambda table: table.append(MORE),
    "fast append": lambda table: table.append(MORE),
    "overwrite": lambda table: table.overwrite(MORE, "id = 1"),
    "upsert": lambda table: table.upsert(MORE, ["id"]),
    "delete": lambda table: table.delete("s = 'canary-1'"),
    "transaction": in_transaction,
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("change", [replace_without_s, drop_s, drop_and_add_s, require_n])
def test_a_column_that_is_gone_another_or_required_is_a_conflict(
    lake: TestLake, operation: str, change: Callable[[TestLake], None]
) -> None:
    stale = make(lake, **({"commit.manifest-merge.enabled": "false"} if operation == "fast append" else {}))
    change(lake)
    before, rows = lake.files(), load(lake).scan().to_arrow()
    with pytest.raises(ValidationException, match=r"table db\.t has other columns than when this was planned \('[sn]' \(id [23]\)"):
        OPERATIONS[operation](stale)
    assert lake.files() == before
    assert load(lake).scan().to_arrow() == rows


@pytest.mark.parametrize("operation", ["append", "fast append", "overwrite"])
def test_columns_added_renamed_or_wider_are_none(lake: TestLake, operation: str) -> None:
    """As in Java: files of before read as they did, the new column null."""
    stale = make(lake, **({"commit.manifest-merge.enabled": "false"} if operation == "fast append" else {}))
    with load(lake).update_schema() as update:
        update.add_column("more", StringType())
        update.rename_column("s", "t")
        update.update_column("n", LongType())
    OPERATIONS[operation](stale)
    found = {row["id"]: (row["n"], row["t"], row["more"]) for row in load(lake).scan().to_arrow().to_pylist()}
    expected = {1: (1, "canary-1", None), 2: (2, "canary-2", None), 3: (3, "canary-3", None)}
    assert found == {key: value for key, value in expected.items() if operation != "overwrite" or key != 1}


@pytest.mark.parametrize("operation", ["delete", "upsert", "overwrite"])
def test_a_filter_whose_column_has_another_name_now_is_a_conflict(lake: TestLake, operation: str) -> None:
    """Two columns swap their names: the filter would be about the other one, and rows to come as well."""
    both = pa.table({"id": pa.array([1, 2], pa.int64()), "a": ["x", "y"], "b": ["y", "x"]})
    stale = lake.catalog().create_table("db.t", both.schema, properties=KEYED)
    stale.append(both)
    with load(lake).update_schema() as update:
        update.rename_column("a", "was_a")
    with load(lake).update_schema() as update:
        update.rename_column("b", "a")
    with load(lake).update_schema() as update:
        update.rename_column("was_a", "b")
    before, files = load(lake).scan().to_arrow().to_pylist(), lake.files()
    changed = both.slice(0, 1).set_column(1, "a", pa.array(["z"]))
    with pytest.raises(ValidationException, match=r"column 'a' of table db\.t is now called 'b'"):
        {
            "delete": lambda: stale.delete("a = 'x'"),
            "upsert": lambda: stale.upsert(changed, ["id"]),
            "overwrite": lambda: stale.overwrite(changed, "a = 'x'"),
        }[operation]()
    assert load(lake).scan().to_arrow().to_pylist() == before
    assert lake.files() == files


def test_a_delete_goes_on_where_another_column_was_renamed(lake: TestLake) -> None:
    stale = make(lake)
    with load(lake).update_schema() as update:
        update.rename_column("s", "t")
    stale.delete("id = 1")
    assert load(lake).scan().to_arrow().to_pylist() == [{"id": 2, "n": 2, "t": "canary-2"}]


def test_another_partition_spec_and_sort_order_are_none(lake: TestLake) -> None:
    """Files keep the spec that they were written with (Java FastAppend, by spec id)."""
    stale = make(lake)
    with load(lake).update_spec() as update:
        update.add_identity("n")
    with load(lake).update_sort_order() as update:
        update.asc("id", IdentityTransform())
    stale.append(MORE)
    fresh = load(lake)
    assert sorted(fresh.scan(row_filter="n >= 2").to_arrow().column("id").to_pylist()) == [2, 3]
    assert [file["spec_id"] for file in fresh.inspect.files().to_pylist()] == [0, 0]


def test_a_table_made_again_under_the_name_is_another_table(lake: TestLake) -> None:
    """Java: AssertTableUUID."""
    stale = make(lake)
    transaction = stale.transaction()
    transaction.append(MORE)
    written = [file.file_path for producer in transaction.staged.producers for file in producer._added_data_files]
    lake.catalog().drop_table("db.t")
    lake.catalog().create_table("db.t", ROWS.schema, properties=KEYED)
    with pytest.raises(CommitError, match=r"table db\.t was dropped and created again meanwhile"):
        transaction.commit_transaction()
    for call in (stale.refresh, stale.maintenance.expire_snapshots().plan, stale.maintenance.compact, lambda: leftovers(stale)):
        with pytest.raises(CommitError, match=r"table db\.t was dropped and created again meanwhile .*; load the new table"):
            call()
    assert load(lake).scan().count() == 0
    assert written
    assert not any(path.endswith(name) for path in written for name in lake.files())


def test_a_table_that_was_renamed_is_not_found_by_its_old_name(lake: TestLake) -> None:
    stale = make(lake)
    lake.catalog().rename_table("db.t", "db.other")
    before = lake.files()
    with pytest.raises(NoSuchTableError, match="was dropped or renamed meanwhile"):
        stale.append(MORE)
    assert lake.files() == before
    assert lake.catalog().load_table("db.other").scan().count() == 2


def test_an_append_that_goes_on_from_an_expired_version_looks_as_well(lake: TestLake) -> None:
    """It follows the table before it commits, since its manifest list is gone."""
    stale = make(lake)
    drop_s(lake)
    other = load(lake)
    other.append(MORE.drop_columns(["s"]))
    other.maintenance.expire_snapshots().by_id(stale.metadata.current_snapshot_id).commit()
    with pytest.raises(ValidationException, match="'s'"):
        stale.append(MORE)
    assert load(lake).scan().count() == 3


def column(field_id: int, name: str, kind: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=False)


POINT = StructType(column(2, "x", IntegerType()), column(3, "y", IntegerType()))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (StructType(column(2, "x", IntegerType())), "'p.y' (id 3) was dropped"),
        (StructType(column(2, "x", IntegerType()), column(4, "y", IntegerType())), "'p.y' (id 3) was dropped"),
        (StructType(column(2, "x", StringType()), column(3, "y", IntegerType())), "'p.x' (id 2) was int and is string"),
        (ListType(2, IntegerType(), element_required=False), "'p' (id 1) was struct and is list"),
        (StructType(column(2, "x", LongType()), column(3, "z", IntegerType()), column(5, "w", IntegerType())), None),
    ],
)
def test_columns_within_columns(now: Any, said: str | None) -> None:
    before, after = Schema(column(1, "p", POINT)), Schema(column(1, "p", now))
    if said is None:
        check_same_columns(before, after, table="t")
        return
    with pytest.raises(ValidationException) as raised:
        check_same_columns(before, after, table="t")
    assert said in str(raised.value)


def test_a_spec_that_is_not_there_any_more(lake: TestLake) -> None:
    table = make(lake)
    other = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"), spec_id=0)
    lost = table.metadata.model_copy(update={"partition_specs": [other]})
    with pytest.raises(ValidationException, match="no longer has partition spec 0"):
        check_still_fits(table.metadata, lost, table="db.t")
