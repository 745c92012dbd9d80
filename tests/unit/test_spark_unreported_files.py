"""Files of killed tasks are found by the operation's id in their names, on every storage that can list."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from icelock.arrow.write.context import WriteContext
from icelock.spark.driver import commit
from icelock.spark.driver.unreached import files_of_write, remove
from icelock.table.change_result import ChangeResult
from icelock.table.epochs import EpochCommittedError

OPERATION = "8c5d4ac2-7e43-4f3b-9d3c-1f6f4f0b3a11"


def context_at(io, location, **properties):
    return WriteContext(
        schema=Schema(), spec=UNPARTITIONED_PARTITION_SPEC, sort_order=UNSORTED_SORT_ORDER, location=location, properties=properties, io=io,
        data_key_length=16, operation_id=OPERATION,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data" / "day=1"
    data.mkdir(parents=True)
    for name in (f"00000-1-{OPERATION}-00001.parquet", f"00001-2-{OPERATION}-00001.parquet", "00000-1-another-00001.parquet"):
        (data / name).write_bytes(b"PARE")
    return tmp_path


@pytest.mark.parametrize("io", [PyArrowFileIO(), FsspecFileIO({})], ids=["arrow", "fsspec"])
def test_files_of_the_operation_are_found_and_removed(io, folder):
    context = context_at(io, f"file://{folder}")
    names = {f"file://{folder}/data/day=1/0000{task}-{task + 1}-{OPERATION}-00001.parquet" for task in (0, 1)}
    assert set(files_of_write(context)) == names
    remove(io, files_of_write(context))
    assert [path.name for path in folder.rglob("*.parquet")] == ["00000-1-another-00001.parquet"]


@pytest.mark.parametrize("io", [PyArrowFileIO(), FsspecFileIO({})], ids=["arrow", "fsspec"])
def test_the_folder_is_that_of_write_data_path(io, folder):
    context = context_at(io, "file:///nowhere", **{"write.data.path": f"file://{folder}/data/day=1"})
    assert len(files_of_write(context)) == 2


def test_a_storage_that_cannot_list_leaves_the_jobs_own_error(folder):
    class Closed:
        def list_prefix(self, location):
            raise PermissionError(location)

    assert files_of_write(context_at(Closed(), f"file://{folder}")) == []


def test_a_batch_that_another_writer_committed_meanwhile_leaves_no_file(folder, monkeypatch):
    """The commit, which knows the files of the last attempts only, finds it in the table; a task had run twice."""

    def committed(*_):
        raise EpochCommittedError("batch 7 is in the table")

    monkeypatch.setattr(commit, "_ended", committed)
    write = SimpleNamespace(job=SimpleNamespace(table="lake.db.t"))
    assert commit.end_job(context_at(PyArrowFileIO(), f"file://{folder}"), write, ()) == ChangeResult()
    assert [path.name for path in folder.rglob("*.parquet")] == ["00000-1-another-00001.parquet"]
