"""A plain table is copied to a new encrypted one, and stays as it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from icelock.errors import IntegrityError, PolicyError
from icelock.maintenance import audit, convert
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.table.test_convert import commit_deletes, equality, plain_catalog, plain_table, rows_of


def test_an_evolved_table_is_copied_by_names(lake: TestLake) -> None:
    """The copy's ids are its own: by the copy's ids, ``town`` would be read from the place of the dropped ``name``."""
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
    table = plain_table(lake, partition_spec=spec, sort_order=SortOrder(SortField(1, IdentityTransform())))
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("name").add_column("more", LongType()).rename_column("city", "town").move_first("more")
    table.append(pa.table({"id": pa.array([100], pa.int64()), "town": ["x"], "more": pa.array([1], pa.int64())}))
    table.delete("id = 5")
    before, plain = rows_of(table), table.metadata
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA", copy_to="db.copy", data_key_length=32)
    copy = lake.catalog().load_table("db.copy")
    assert rows_of(copy) == before
    assert [field.field_id for field in copy.schema().fields] == [1, 2, 3]
    assert copy.properties["encryption.data-key-length"] == "32"
    assert (copy.metadata.table_uuid != plain.table_uuid, copy.metadata.format_version) == (True, 3)
    assert (done.copied_to, done.snapshot_id, done.plain_files) == ("db.copy", copy.metadata.current_snapshot_id, ())
    assert copy.metadata.snapshots[0].summary.operation.value == "append"
    assert "icelock.converted-from" not in copy.properties
    assert plain_catalog(lake).load_table("db.t").metadata == plain
    (report,) = audit(lake.catalog(), "db.copy", depth=["bytes", "foreign"]).tables
    assert (report.counts, report.unseen) == ({}, ())


def test_equality_deletes_name_mappings_and_places_of_files(lake: TestLake, tmp_path: Path) -> None:
    """What names columns by id, or says where files are, does not go along: the copy's files lie at the copy."""
    properties = {"write.data.path": f"file://{tmp_path}/warehouse/db/t/elsewhere", "write.parquet.compression-codec": "zstd"}
    table = plain_table(lake, properties=properties)
    (tmp_path / "warehouse" / "db" / "t" / "data").mkdir()
    commit_deletes(table, equality(table, 3, 14))
    file = f"{tmp_path}/warehouse/db/t/given.parquet"
    pq.write_table(people(50, 3), file)
    table.refresh()
    table.add_files([file])
    convert(lake.catalog().load_table("db.t"), key_id="keyA", copy_to=("db", "copy"))
    copy = lake.catalog().load_table("db.copy")
    assert ids(copy) == sorted([*({*range(20)} - {3, 14}), 50, 51, 52])
    assert copy.properties == {"encryption.key-id": "keyA", "write.parquet.compression-codec": "zstd"}
    assert all("/db/copy/data/" in task.file.file_path for task in copy.scan().plan_files())


def test_a_table_without_rows(lake: TestLake) -> None:
    plain_table(lake, rows=0)
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA", copy_to="db.copy")
    assert (done.files, done.snapshot_id, ids(lake.catalog().load_table("db.copy"))) == (0, None, [])


def test_the_newest_version_is_copied_whatever_was_loaded(lake: TestLake) -> None:
    table = plain_table(lake)
    held = lake.catalog().load_table("db.t")
    table.append(people(20, 5))
    convert(held, key_id="keyA", copy_to="db.copy")
    assert ids(lake.catalog().load_table("db.copy")) == list(range(25))


def test_a_copy_in_another_catalog(lake: TestLake, tmp_path: Path) -> None:
    """Its files lie in that catalog's warehouse, under a key of its KMS; the plain table's catalog has nothing new."""
    before = rows_of(plain_table(lake))
    files, held = lake.files(), lake.catalog().load_table("db.t")
    (tmp_path / "other").mkdir()
    other = TestLake.with_namespace(tmp_path / "other")
    done = convert(held, key_id="keyB", copy_to="db.copy", copy_catalog=other.catalog())
    copy = other.catalog().load_table("db.copy")
    assert rows_of(copy) == before
    assert (done.copied_to, done.snapshot_id, copy.properties["encryption.key-id"]) == (
        "db.copy",
        copy.metadata.current_snapshot_id,
        "keyB",
    )
    (report,) = audit(other.catalog(), "db.copy", depth=["bytes", "foreign"]).tables
    assert report.counts == {}
    assert lake.files() == files
    assert not lake.catalog().table_exists("db.copy")


def test_a_dry_run_and_what_is_refused_write_nothing(lake: TestLake) -> None:
    table = plain_table(lake)
    lake.catalog().create_table("db.taken", people().schema, properties=KEYED)
    files, held = set(lake.files()), lake.catalog().load_table("db.t")
    done = convert(held, key_id="keyA", copy_to="db.copy", dry_run=True)
    sizes = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    assert (done.files, done.bytes, done.copied_to, done.dry_run) == (2, sizes, "db.copy", True)
    assert not lake.catalog().table_exists("db.copy")
    with pytest.raises(TableAlreadyExistsError):
        convert(held, key_id="keyA", copy_to="db.taken")
    with pytest.raises(NoSuchNamespaceError):
        convert(held, key_id="keyA", copy_to="nowhere.copy")
    with pytest.raises(PolicyError, match="is encrypted: plain tables are copied"):
        convert(lake.catalog().load_table("db.taken"), key_id="keyA", copy_to="db.copy")
    with pytest.raises(PolicyError, match="copy_to"):
        convert(held, key_id="keyA", copy_catalog=lake.catalog())
    with pytest.raises(PolicyError, match="not one of icelock's catalogs"):
        convert(held, key_id="keyA", copy_to="db.copy", copy_catalog=plain_catalog(lake))
    assert set(lake.files()) == files


def test_what_fails_or_is_overtaken_leaves_nothing(lake: TestLake) -> None:
    table = plain_table(lake)
    files = set(lake.files())
    (path,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    whole = pq.read_table(path)
    pq.write_table(whole.slice(0, 9), path)
    with pytest.raises(IntegrityError, match="has 9 rows, its manifest entry says 10"):
        convert(lake.catalog().load_table("db.t"), key_id="keyA", copy_to="db.copy")
    assert set(lake.files()) == files
    pq.write_table(whole, path)
    made = []

    def overtaken(_done: int, _whole: int) -> None:
        if not made:
            made.append(lake.catalog().create_table("db.copy", people().schema, properties=KEYED))

    with pytest.raises(TableAlreadyExistsError):
        convert(lake.catalog().load_table("db.t"), key_id="keyA", copy_to="db.copy", progress=overtaken)
    left = set(lake.files()) - files
    assert left == {name for name in left if name.endswith(".metadata.json")}
    assert ids(lake.catalog().load_table("db.copy")) == []
