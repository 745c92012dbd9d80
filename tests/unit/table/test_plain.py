"""Plain tables beside encrypted ones: the same calls give the same rows, and writes are PyIceberg's. Expected rows are SQL's, by hand."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException

import icelock
import icelock.duckdb
import icelock.polars
from icelock.errors import PolicyError
from icelock.maintenance import convert
from icelock.table.plain import PlainTable
from tests.golden.relocate import catalog_properties, metadata_location
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.table.test_convert import OPEN, commit_deletes, equality, plain_table, positions

NAN = float("nan")
NUMBERS = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "f": [0.0, NAN, 5.0, None], "s": ["a", None, "b", "c"]})
KINDS = {"encrypted": KEYED, "version 1": {"format-version": "1"}, "version 2": {"format-version": "2"}}
OF_PLAIN = ("version 1", "version 2")


@pytest.fixture(scope="module")
def read_only() -> Iterator[dict[str, Any]]:
    """A table of each kind with ids 0 to 9 and, by a second snapshot, 10 to 12; nobody writes to them."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = TestLake.with_namespace(Path(folder)).catalog(**OPEN)
        yield {kind: two_snapshots(catalog, f"db.t{number}", properties) for number, (kind, properties) in enumerate(KINDS.items())}
        catalog.close()


def two_snapshots(catalog: Any, name: str, properties: dict[str, str]) -> Any:
    table = catalog.create_table(name, people().schema, properties=properties)
    table.append(people())
    table.append(people(10, 3))
    return catalog.load_table(name)


def first(table: Any) -> int:
    return int(table.snapshots()[0].snapshot_id)


READS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "rows": (ids, [*range(13)]),
    "filter": (lambda table: sorted(table.scan("id < 8 and city = 'town-1'").to_arrow()["id"].to_pylist()), [1, 4, 7]),
    "limit": (lambda table: table.scan(limit=3).to_arrow().num_rows, 3),
    "count": (lambda table: table.scan(row_filter="id >= 9").count(), 4),
    "an older snapshot": (lambda table: table.scan(snapshot_id=first(table)).count(), 10),
    "metadata columns": (lambda table: sorted(table.scan(selected_fields=("_pos",)).to_arrow()["_pos"].to_pylist())[-3:], [7, 8, 9]),
    "a stream": (lambda table: pa.RecordBatchReader.from_stream(table.scan()).read_all().num_rows, 13),
    "pandas": (lambda table: len(table.scan().to_pandas()), 13),
    "a frame of Polars": (lambda table: pl.DataFrame(table.scan("id > 10")).height, 2),
    "Polars": (lambda table: icelock.polars.scan(table).filter(pl.col("id") > 10).collect().height, 2),
    "Polars, of a scan": (lambda table: icelock.polars.scan(table.scan("id > 10")).collect().height, 2),
    "Polars, of the table": (lambda table: table.to_polars().select("id").collect().sum().item(), 78),
    "DuckDB": (lambda table: icelock.duckdb.relation(table).filter("id > 10").aggregate("sum(id)::int as n").fetchall(), [(23,)]),
    "DuckDB, of a scan": (lambda table: table.scan("id > 10").to_duckdb("t").sql("select max(id) from t").fetchall(), [(12,)]),
    "changes": (lambda table: table.changes(start_snapshot_id=first(table)).to_arrow()["id"].to_pylist(), [10, 11, 12]),
    "appended": (lambda table: table.incremental_append_scan(from_snapshot_id_exclusive=first(table)).count(), 3),
    "files": (lambda table: sorted(table.inspect.files()["record_count"].to_pylist()), [3, 10]),
    "entries": (lambda table: table.inspect.entries().num_rows, 2),
    "snapshots": (lambda table: table.inspect.snapshots()["operation"].to_pylist(), ["append", "append"]),
}


@pytest.mark.parametrize("what", READS)
def test_every_read_is_that_of_an_encrypted_table(read_only: dict[str, Any], what: str) -> None:
    read, wanted = READS[what]
    assert {kind: read(table) for kind, table in read_only.items()} == dict.fromkeys(KINDS, wanted)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda table: table.scan("id <<< 5"), "the filter cannot be read from character 4 on"),
        (lambda table: table.scan("idd = 5").to_arrow(), "column 'idd' does not exist; did you mean 'id'"),
        (lambda table: table.scan(selected_fields=("idd",)).to_arrow(), "column 'idd' does not exist; did you mean 'id'"),
        (lambda table: table.scan(snapshot_id=1).to_arrow(), "snapshot 1 is not in the table's metadata"),
        (lambda table: table.scan(limit=-1), "limit is -1"),
        (lambda table: table.snapshot_as_of_timestamp("now"), "datetime with a time zone"),
        (lambda table: table.delete("id = 1", branch="side"), "has no branch 'side'"),
        (lambda table: table.upsert(people(), join_cols=["idd"]), "column 'idd' does not exist; did you mean 'id'"),
        (lambda table: table.dynamic_partition_overwrite(people()), "spec 0 is unpartitioned"),
        (lambda table: icelock.polars.scan(table.name()[1]), r"got its name: catalog\.load_table\('t\d'\) loads it"),
    ],
)
def test_every_mistake_is_told_as_of_an_encrypted_table(read_only: dict[str, Any], wrong: Callable[[Any], Any], message: str) -> None:
    for table in read_only.values():
        with pytest.raises(PolicyError, match=message):
            wrong(table)


def test_a_table_says_whether_it_is_encrypted(read_only: dict[str, Any]) -> None:
    assert {kind: table.encrypted for kind, table in read_only.items()} == {"encrypted": True, "version 1": False, "version 2": False}
    golden = {name: icelock.StaticTable.from_metadata(metadata_location(name), catalog_properties(name)) for name in ("plain_v3", "mor_dv")}
    assert {name: table.encrypted for name, table in golden.items()} == {"plain_v3": False, "mor_dv": True}


def test_a_plain_table_has_every_method(read_only: dict[str, Any]) -> None:
    """``load_table`` has one type for both."""
    encrypted, plain = read_only["encrypted"], read_only["version 2"]
    assert isinstance(plain, PlainTable)
    assert {name for name in dir(encrypted) if not name.startswith("_")} == {name for name in dir(plain) if not name.startswith("_")}


def test_plain_and_encrypted_tables_are_joined(read_only: dict[str, Any]) -> None:
    secret, plain = read_only["encrypted"], read_only["version 1"]
    joined = icelock.polars.scan(secret).join(icelock.polars.scan(plain), on="id").filter(pl.col("id") > 10).select("id", "name_right")
    assert joined.collect().sort("id").rows() == [(11, "canary-00011"), (12, "canary-00012")]
    connection = duckdb.connect()
    secret.scan().to_duckdb("secret", connection)
    plain.scan().to_duckdb("plain", connection)
    query = "select plain.id from secret join plain using (id) where secret.city = 'town-1' and plain.id > 4 order by 1"
    assert connection.sql(query).fetchall() == [(7,), (10,)]


def test_deletes_of_other_engines_are_applied(lake: TestLake) -> None:
    """PyIceberg's own scan refuses equality deletes; one hits rows of older snapshots only: 3 is deleted, and was inserted again."""
    table = plain_table(lake)
    (path,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    commit_deletes(table, equality(table, 3, 14), positions(table, path, 0, 9))
    table.append(people(3, 1))
    found = lake.catalog().load_table("db.t")
    wanted = sorted({*range(20)} - {0, 9, 14})
    assert ids(found) == sorted(icelock.polars.scan(found).collect()["id"]) == wanted
    assert icelock.duckdb.relation(found).aggregate("count(*) as n").fetchall() == [(17,)]
    lake_of_plain = lake.catalog(**OPEN).load_table("db.t")
    lake_of_plain.delete("id < 6 and id != 3")
    assert ids(lake_of_plain) == [3, *(number for number in wanted if number > 5)]
    gone = found.changes(start_snapshot_id=found.snapshots()[1].snapshot_id, end_snapshot_id=4711 + 2)
    assert sorted(zip(gone.to_arrow()["id"].to_pylist(), gone.to_arrow()["_change_type"].to_pylist(), strict=True)) == [
        (number, "DELETE") for number in (0, 3, 9, 14)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("row_filter", "wanted"),
    [
        ("f != 0", [2, 3]),
        ("s != 'a'", [3, 4]),
        ("not (f < 1)", [2, 3]),
        ("f > 1", [3]),
        ("not (s = 'b' and f = 5)", [1, 2, 4]),
        ("f is null", [4]),
    ],
)
def test_a_filter_finds_and_deletes_the_same_rows(lake: TestLake, kind: str, row_filter: str, wanted: list[int]) -> None:
    table = lake.catalog(**OPEN).create_table("db.n", NUMBERS.schema, properties=KINDS[kind])
    table.append(NUMBERS)
    assert ids(table, row_filter=row_filter) == wanted
    assert table.delete(row_filter).rows_deleted == len(wanted)
    assert ids(table) == [number for number in (1, 2, 3, 4) if number not in wanted]


@pytest.mark.parametrize("kind", OF_PLAIN)
@pytest.mark.parametrize("by", [None, "city"])
def test_rows_go_in_in_every_form_and_results_are_told(lake: TestLake, kind: str, by: str | None) -> None:
    catalog = lake.catalog(**OPEN)
    table = catalog.create_table("db.p", people().schema, properties=KINDS[kind])
    if by:
        with table.update_spec() as update:
            update.add_identity(by)
    frames = [people(0, 2), people(2, 2).to_reader(), pl.DataFrame(people(4, 2)), people(6, 2).to_pandas(), duckdb.from_arrow(people(8, 2))]
    for frame in frames:
        done = table.append(frame)
        assert (done.rows_inserted, done.rows_deleted, done.snapshot_id) == (2, 0, table.current_snapshot().snapshot_id)
    assert table.append([{"id": 10, "name": "ten", "city": None}]).rows_inserted == 1
    done = table.overwrite(people(20, 1), "id < 3")
    assert (done.rows_inserted, done.rows_deleted) == (1, 3)
    assert table.delete("id = 99") == type(done)()
    found = table.upsert(pl.DataFrame(people(20, 2)), join_cols=["id"])
    assert (found.rows_updated, found.rows_inserted) == (0, 1)
    if by:
        done = table.dynamic_partition_overwrite(pl.DataFrame(people(30, 1)))  # town-0: 3, 6, 9 and 21
        assert (done.rows_inserted, done.rows_deleted, done.files_added) == (1, 4, 1)
        assert ids(table) == [4, 5, 7, 8, 10, 20, 30]
    with pytest.raises(PolicyError, match=r"the table has no column 'idd'.*did you mean 'id'"):
        table.append(pa.table({"idd": [1]}))


@pytest.mark.parametrize("kind", OF_PLAIN)
@pytest.mark.parametrize("what", ["compact", "rewrite_manifests", "rewrite_deletes", "optimize", "rotate"])
def test_maintenance_of_encrypted_tables_is_refused(read_only: dict[str, Any], kind: str, what: str) -> None:
    with pytest.raises(PolicyError, match=r"is plain .* Iceberg's own Spark runtime"):
        getattr(read_only[kind].maintenance, what)()


def test_expiry_is_pyicebergs(lake: TestLake) -> None:
    table = two_snapshots(lake.catalog(**OPEN), "db.p", KINDS["version 2"])
    table.maintenance.expire_snapshots().by_id(first(table)).commit()
    assert (len(table.snapshots()), len(ids(table))) == (1, 13)


def test_a_table_that_was_converted_meanwhile_takes_no_plain_rows(lake: TestLake) -> None:
    catalog = lake.catalog(**OPEN)
    made = catalog.create_table("db.p", people().schema, properties={"format-version": "2"})
    made.append(people())
    old, other = catalog.load_table("db.p"), catalog.load_table("db.p")
    convert(lake.catalog(**OPEN).load_table("db.p"), key_id="keyA")
    before = lake.files()
    writes: dict[str, Callable[[], object]] = {
        "append": lambda: old.append(people(10, 1)),
        "delete": lambda: old.delete("id = 1"),
        "overwrite": lambda: old.overwrite(people(10, 1)),
        "upsert": lambda: old.upsert(people(9, 2), join_cols=["id"]),
    }
    for write in writes.values():
        with pytest.raises((PolicyError, CommitFailedException)), warnings.catch_warnings(action="ignore"):
            write()
        assert lake.files() == before
    other.refresh()
    assert (other.encrypted, len(ids(other))) == (True, 10)
    old.refresh()
    for write in (*writes.values(), old.maintenance.compact, old.maintenance.rotate):
        with pytest.raises(PolicyError, match="was converted to an encrypted one meanwhile: load it again"):
            write()
    assert lake.files() == before


def test_files_that_a_user_adds_stay_when_the_commit_is_refused(lake: TestLake, tmp_path: Path) -> None:
    catalog = lake.catalog(**OPEN)
    made = catalog.create_table("db.p", people().schema, properties={"format-version": "2"})
    made.append(people())
    mine = tmp_path / "mine.parquet"
    pl.DataFrame(people(10, 1)).write_parquet(mine)
    old = catalog.load_table("db.p")
    convert(lake.catalog(**OPEN).load_table("db.p"), key_id="keyA")
    with pytest.raises(PolicyError):
        old.add_files([str(mine)])
    assert mine.exists()
    with pytest.raises(PolicyError, match="leave reencrypt out"):
        two_snapshots(catalog, "db.q", KINDS["version 1"]).add_files([str(mine)], reencrypt=True)


def test_a_delete_that_another_writer_was_before_leaves_no_file(lake: TestLake) -> None:
    catalog = lake.catalog(**OPEN)
    table = catalog.create_table("db.p", people().schema, properties={"format-version": "2"})
    table.append(people())
    begun = table.transaction()
    begun.delete("id = 1")
    lake.catalog(**OPEN).load_table("db.p").delete("id = 2")
    data = {name for name in lake.files() if name.endswith(".parquet")}
    assert len(data) == 3
    with pytest.raises(ValidationException):
        begun.commit_transaction()
    assert len({name for name in lake.files() if name.endswith(".parquet")} & data) == 2
    assert ids(catalog.load_table("db.p")) == [0, *range(1, 2), *range(3, 10)]


def test_a_delete_of_whole_files_is_a_delete(lake: TestLake) -> None:
    """As readers of a stream are told: of others it is an overwrite."""
    table = two_snapshots(lake.catalog(**OPEN), "db.p", KINDS["version 1"])
    table.delete("id > 9")
    table.delete("id = 9")
    assert [one.summary.operation.value for one in table.snapshots()] == ["append", "append", "delete", "overwrite"]
