"""What ``append``, ``overwrite``, ``delete`` and the like return. Expected numbers are counted by hand: ids 0 to 9, town-(id % 3)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icelock.table.change_result import ChangeResult
from tests.lakes.sqlite import KEYED, TestLake, people


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def table(tmp_path, request):
    mode = {"write.delete.mode": request.param, "write.merge.mode": request.param}
    made = TestLake.with_namespace(tmp_path).catalog().create_table("db.t", people().schema, properties={**KEYED, **mode})
    made.append(people())
    return made


def told(result):
    return result.rows_inserted, result.rows_updated, result.rows_deleted


def test_append(table):
    done = table.append(people(10, 3))
    assert isinstance(done, ChangeResult)
    assert (told(done), done.files_added, done.files_removed) == ((3, 0, 0), 1, 0)
    assert done.snapshot_id == table.current_snapshot().snapshot_id
    reader = pa.RecordBatchReader.from_batches(people().schema, iter(people(20, 7).to_batches(max_chunksize=2)))
    assert told(table.append(reader)) == (7, 0, 0)
    assert "rows_inserted=3" in repr(done)
    assert told(table.append([{"id": 90, "name": "n", "city": "c"}, {"id": 91, "name": "n", "city": "c"}])) == (2, 0, 0)
    assert told(table.append(people(100, 4).to_pandas())) == (4, 0, 0)


def test_delete(table):
    done = table.delete("id < 4")
    assert told(done) == (0, 0, 4)
    assert (done.files_removed, done.delete_files_added) in {(1, 0), (0, 1)}
    assert table.delete("id < 4") == ChangeResult()
    assert told(table.delete("id = 4")) == (0, 0, 1)
    assert told(table.delete()) == (0, 0, 5)
    assert table.scan().count() == 0


def test_overwrite(table):
    assert told(table.overwrite(people(50, 2), "city = 'town-0'")) == (2, 0, 4)  # 0, 3, 6, 9
    assert told(table.overwrite(people(60, 1))) == (1, 0, 8)
    assert told(table.overwrite(pa.RecordBatchReader.from_batches(people().schema, iter(people(70, 4).to_batches())))) == (4, 0, 1)


def test_partitions_and_files(tmp_path):
    table = TestLake.with_namespace(tmp_path).catalog().create_table("db.p", people().schema, properties=KEYED)
    with table.update_spec() as spec:
        spec.add_identity("city")
    table.append(people())
    assert told(table.dynamic_partition_overwrite(people(90, 1))) == (1, 0, 4)  # town-0 had 0, 3, 6, 9
    pq.write_table(people(200, 5), tmp_path / "plain.parquet")
    assert told(table.add_files([str(tmp_path / "plain.parquet")], reencrypt=True)) == (5, 0, 0)


def test_upsert_says_what_it_did(table):
    done = table.upsert(people(8, 4).set_column(2, "city", pa.array(["new"] * 4)), ["id"])
    assert (done.rows_updated, done.rows_inserted) == (2, 2)
