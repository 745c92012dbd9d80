"""What every service's client promises beyond ``KmsContract``: counted calls, a commit that fails, catalogs side by side, rotation.

A test class gives the fixtures of ``KmsContract``, with ``properties`` as catalog properties that choose the client, ``broken``
(properties with which the service cannot be reached), ``other_properties`` (another KMS that knows ``key_id`` too), and, for
``RotationContract``, ``rotate``, which gives the master key a new version; for ``DestroyedVersionContract`` also ``destroy``.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

import icelock
from icelock.errors import IntegrityError, KmsError, KmsErrorKind
from icelock.kms.loader import load_kms_client
from icelock.testing import KmsContract
from tests.helpers.counting_kms import Calls

KEY = b"0123456789abcdef"
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
PARTS = pa.table({"id": [1, 2, 3, 4, 5], "name": list("abcde"), "part": pa.array([0, 1, 2, 3, 4], pa.int32())})
BY_PART = PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="part"))
NO_WAIT = {"kms.retry.min-wait-ms": "1", "kms.retry.max-wait-ms": "5"}


class Counter:
    """Counts the calls of a client's class."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kms_class: type[Any]) -> None:
        self.calls: list[str] = []
        for name in ("wrap_key", "unwrap_key"):
            monkeypatch.setattr(kms_class, name, self._counted(getattr(kms_class, name)))

    def _counted(self, method):
        def counted(client, data, key_id):
            self.calls.append(method.__name__)
            return method(client, data, key_id)

        return counted

    def take(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


def lake_properties(folder: Path, properties: dict[str, str]) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/lake.db", "warehouse": folder.as_uri(), **properties}


def lake(folder: Path, properties: dict[str, str], name: str = "lake") -> Any:
    folder.mkdir(exist_ok=True)
    return icelock.load_catalog(name, **lake_properties(folder, properties))


def new_table(folder: Path, properties: dict[str, str], key_id: str, schema: pa.Schema = ROWS.schema, **more: Any) -> Any:
    catalog = lake(folder, properties)
    catalog.create_namespace("db")
    return catalog.create_table("db.t", schema=schema, properties={"encryption.key-id": key_id}, **more)


def failure(call, *arguments) -> KmsError:
    """Return the error of a call that has to fail, after checking that it names the key."""
    with pytest.raises(KmsError) as caught:
        call(*arguments)
    assert caught.value.key_id == arguments[-1]
    assert repr(arguments[-1]) in str(caught.value)
    assert "; " in str(caught.value)
    return caught.value


def kind(call, *arguments) -> KmsErrorKind:
    return failure(call, *arguments).kind


class ServiceContract(KmsContract):
    SNAPSHOTS = 8  # of five files each

    @pytest.fixture
    def properties(self) -> dict[str, str]:
        raise NotImplementedError

    @pytest.fixture
    def kms(self, properties):
        return load_kms_client(properties).inner

    @pytest.fixture
    def other_kms(self, other_properties):
        return load_kms_client(other_properties)

    def test_is_made_anew_from_pickled_properties(self, kms, key_id, properties):
        again = load_kms_client(dict(properties))
        assert type(again.inner) is type(kms)
        assert again.unwrap_key(kms.wrap_key(KEY, key_id), key_id) == KEY

    def test_a_scan_unwraps_once_and_a_commit_wraps_once(self, kms, properties, key_id, tmp_path, monkeypatch):
        counter = Counter(monkeypatch, type(kms))
        table = new_table(tmp_path / "lake", properties, key_id)
        assert counter.take() == ["wrap_key"]  # the trial of create_table
        table.append(ROWS)
        assert counter.take() == ["wrap_key", "unwrap_key"]  # a new KEK is tried once
        for _ in range(3):
            table.append(ROWS)
        assert counter.take() == []
        again = lake(tmp_path / "lake", properties).load_table("db.t")
        assert again.scan().to_arrow().num_rows == 12
        assert again.scan(row_filter="id > 1").to_arrow().num_rows == 8
        assert counter.take() == ["unwrap_key"]

    @pytest.mark.spark
    @pytest.mark.slow
    @pytest.mark.turns(3, sweep="a Spark job on a key service")
    def test_a_spark_job_asks_the_service_once(self, properties, key_id, tmp_path, spark_jobs):
        """C-33, with 40 files in 8 snapshots, and on a keystore with the 200 in 40 of the case; 16 tasks, executors never ask."""
        calls = Calls(tmp_path)
        settings = {**calls.properties(), "kms.counting.of": json.dumps(properties)}
        table = new_table(tmp_path / "lake", settings, key_id, schema=PARTS.schema, partition_spec=BY_PART)
        for _ in range(self.SNAPSHOTS):
            table.append(PARTS)
        assert calls.take() == [f"wrap {key_id}"] * 2 + [f"unwrap {key_id}"]  # the trial of create_table, the KEK of the first append
        assert (len(table.snapshots()), len(table.inspect.files())) == (self.SNAPSHOTS, 5 * self.SNAPSHOTS)
        told = spark_jobs.run(lake_properties(tmp_path / "lake", settings), tmp_path)
        assert told["rows"] == [5 * self.SNAPSHOTS, 16, 5]
        assert told["scan"] == [f"unwrap {key_id}"]
        assert told["append"] == [f"unwrap {key_id}"]  # by the process of the user, which plans and commits: no wrap
        assert lake(tmp_path / "lake", settings).load_table("db.t").scan().count() == 5 * self.SNAPSHOTS + 16

    def test_a_commit_without_the_service_leaves_nothing_behind(self, properties, broken, key_id, tmp_path):
        table = new_table(tmp_path / "lake", properties, key_id)
        before = {path: path.read_bytes() for path in (tmp_path / "lake" / "db").rglob("*") if path.is_file()}
        assert before
        cut_off = lake(tmp_path / "lake", {**properties, **broken, **NO_WAIT, "kms.retry.attempts": "2"}).load_table("db.t")
        with pytest.raises(KmsError, match=r"db\.t") as caught:
            cut_off.append(ROWS)
        assert caught.value.kind is KmsErrorKind.UNAVAILABLE
        assert {path: path.read_bytes() for path in (tmp_path / "lake" / "db").rglob("*") if path.is_file()} == before
        assert table.refresh().current_snapshot() is None

    def test_two_catalogs_with_one_key_id_keep_apart(self, properties, other_properties, key_id, tmp_path):
        ours = new_table(tmp_path / "ours", properties, key_id)
        theirs = new_table(tmp_path / "theirs", other_properties, key_id)
        ours.append(ROWS)
        theirs.append(ROWS.slice(0, 1))
        assert (ours.scan().to_arrow().num_rows, theirs.scan().to_arrow().num_rows) == (3, 1)
        swapped = lake(tmp_path / "theirs", properties).load_table("db.t")
        with pytest.raises(KmsError, match=r"db\.t") as caught:
            swapped.scan().to_arrow()
        assert caught.value.kind is KmsErrorKind.FOREIGN


class RotationContract:
    def test_old_blobs_open_after_rotation_and_new_ones_differ(self, kms, key_id, rotate):
        before = kms.wrap_key(KEY, key_id)
        rotate()
        after = kms.wrap_key(KEY, key_id)
        assert kms.unwrap_key(before, key_id) == kms.unwrap_key(after, key_id) == KEY

    def test_rotation_leaves_tables_as_they_are(self, properties, key_id, rotate, tmp_path):
        new_table(tmp_path / "lake", properties, key_id).append(ROWS)
        rotate()
        table = lake(tmp_path / "lake", properties).load_table("db.t")
        table.append(ROWS)
        assert lake(tmp_path / "lake", properties).load_table("db.t").scan().to_arrow().num_rows == 6


class DestroyedVersionContract:
    """Old versions of a master key are destroyed after a rotation of the table's keys, and every row is read by a process that begins then.

    A test class gives ``properties``, ``key_id``, ``rotate``, and ``destroy``, which destroys all versions but the newest.
    """

    @pytest.fixture
    def three(self, properties, key_id, tmp_path) -> Path:
        """A table of ids 1 to 9 in three snapshots, of which the first has a tag."""
        table = new_table(tmp_path / "lake", properties, key_id)
        for number in range(3):
            table.append(rows_from(3 * number + 1))
        table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "then").commit()
        return tmp_path / "lake"

    def test_nothing_else_makes_the_old_version_dispensable(self, properties, three, rotate, destroy):
        rotate()
        lake(three, properties).load_table("db.t").maintenance.rotate("kek")
        destroy()
        with pytest.raises((KmsError, IntegrityError)):
            lake(three, properties).load_table("db.t").scan().to_arrow()

    def test_after_wrap(self, properties, three, rotate, destroy):
        rotate()
        lake(three, properties).load_table("db.t").maintenance.rotate("wrap")
        destroy()
        table = lake(three, properties).load_table("db.t")
        assert [ids_of(table, snapshot.snapshot_id) for snapshot in table.snapshots()] == [[1, 2, 3], [*range(1, 7)], [*range(1, 10)]]
        assert ids_of(table, table.metadata.refs["then"].snapshot_id) == [1, 2, 3]
        table.append(rows_from(10))
        assert ids_of(lake(three, properties).load_table("db.t")) == [*range(1, 13)]

    @pytest.mark.parametrize("level", ["lists", "all"])
    def test_after_a_rotation_of_all_snapshots(self, properties, three, rotate, destroy, level):
        rotate()
        assert lake(three, properties).load_table("db.t").maintenance.rotate(level).left_files == 0
        destroy()
        table = lake(three, properties).load_table("db.t")
        found = [ids_of(table, snapshot.snapshot_id) for snapshot in table.snapshots()]
        assert found[:3] == [[1, 2, 3], [*range(1, 7)], [*range(1, 10)]]
        assert all(ids == [*range(1, 10)] for ids in found[3:]), "what level all commits changes no row"
        assert ids_of(table, table.metadata.refs["then"].snapshot_id) == [1, 2, 3]
        table.append(rows_from(10))
        assert ids_of(lake(three, properties).load_table("db.t")) == [*range(1, 13)]

    def test_after_data_and_an_expiry(self, properties, three, rotate, destroy):
        rotate()
        table = lake(three, properties).load_table("db.t")
        assert table.maintenance.rotate("data").left_files == 0
        table.manage_snapshots().remove_tag("then").commit()
        table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
        destroy()
        table = lake(three, properties).load_table("db.t")
        assert [ids_of(table, snapshot.snapshot_id) for snapshot in table.snapshots()] == [[*range(1, 10)]]
        table.append(rows_from(10))
        assert ids_of(lake(three, properties).load_table("db.t")) == [*range(1, 13)]


def rows_from(first: int) -> pa.Table:
    return pa.table({"id": [first, first + 1, first + 2], "name": ["a", "b", "c"]})


def ids_of(table: Any, snapshot_id: int | None = None) -> list[int]:
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())
