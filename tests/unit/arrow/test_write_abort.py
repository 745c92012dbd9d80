"""A write that fails or is aborted leaves no file, or says which."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform

from icelock.arrow.write.writer import DataFileWriter, write_data_files
from icelock.errors import IntegrityError, PolicyError
from icelock.keys.entropy import SystemEntropy
from tests.unit.arrow.writing import CountingIO, context, files_in, id_table, parquet_file, path_of, write
from tests.unit.keys.fakes import CountedEntropy

SMALL_GROUPS = {"write.parquet.row-group-size-bytes": "20000"}
BUCKETS = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))


def started(folder, **fields) -> DataFileWriter:
    """A writer with files open and some ended."""
    properties = {**SMALL_GROUPS, "write.target-file-size-bytes": "50000"}
    writer = DataFileWriter(context(folder, properties=properties, **fields), task_id=0, entropy=SystemEntropy())
    for batch in id_table(40_000).to_batches(max_chunksize=5_000):
        writer.write(batch)
    return writer


def test_abort_deletes_open_and_ended_files(tmp_path):
    io = CountingIO()
    writer = started(tmp_path, io=io)
    assert len(files_in(tmp_path)) > 1
    assert io.open_now
    assert writer.abort() == []
    assert files_in(tmp_path) == []
    assert io.open_now == set()
    with pytest.raises(PolicyError, match="closed or aborted"):
        writer.write(id_table(1).to_batches()[0])


def test_abort_after_close_deletes_too_and_can_be_repeated(tmp_path):
    writer = started(tmp_path)
    assert writer.close()
    assert files_in(tmp_path)
    assert writer.abort() == []
    assert writer.abort() == []
    assert files_in(tmp_path) == []


def test_a_writer_left_by_an_error_aborts(tmp_path):
    def fail():
        with started(tmp_path):
            assert files_in(tmp_path)
            msg = "the job failed"
            raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="the job failed"):
        fail()
    assert files_in(tmp_path) == []


def test_a_writer_left_without_close_aborts(tmp_path):
    with started(tmp_path):
        pass
    assert files_in(tmp_path) == []


def test_batches_that_fail_to_come_leave_nothing(tmp_path):
    def batches():
        yield from id_table(40_000).to_batches(max_chunksize=5_000)
        assert files_in(tmp_path)
        msg = "the source broke"
        raise ConnectionError(msg)

    with pytest.raises(ConnectionError, match="the source broke"):
        write_data_files(context(tmp_path, properties=SMALL_GROUPS), batches(), task_id=0, entropy=SystemEntropy())
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("fail_at", [0, 5, 3_000, 30_000])
@pytest.mark.parametrize("partitioning", [None, BUCKETS])
def test_storage_that_fails_leaves_nothing(tmp_path, fail_at, partitioning):
    """From the magic bytes to a later row group; the error is the storage's own."""
    io = CountingIO(fail_at=fail_at)
    fields = {} if partitioning is None else {"spec": partitioning}
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path, id_table(40_000), batch_rows=5_000, io=io, properties=SMALL_GROUPS, **fields)
    assert io.made
    assert io.open_now == set()
    assert files_in(tmp_path) == []


def test_files_that_cannot_be_deleted_are_named(tmp_path, caplog):
    writer = started(tmp_path, io=CountingIO(keep=True))
    left = [f"file:{path}" for path in files_in(tmp_path)]
    with caplog.at_level(logging.DEBUG, logger="icelock"), pytest.raises(PolicyError) as caught:
        writer.write(pa.record_batch({"id": pa.array([None], pa.int64())}))
    assert len(caught.value.__notes__) == 1
    assert all(location in caught.value.__notes__[0] for location in left)
    assert all(location in caplog.text for location in left)
    assert all(record.levelno == logging.DEBUG for record in caplog.records)
    assert sorted(f"file:{path}" for path in files_in(tmp_path)) == sorted(left)


def test_a_file_that_is_already_there_is_neither_overwritten_nor_deleted(tmp_path):
    first = write_data_files(context(tmp_path), id_table(3).to_batches(), task_id=0, entropy=CountedEntropy())
    before = path_of(first[0]).read_bytes()
    with pytest.raises(FileExistsError):
        write_data_files(context(tmp_path), id_table(3).to_batches(), task_id=0, entropy=CountedEntropy())
    assert path_of(first[0]).read_bytes() == before


class _Tampering(PyArrowFileIO):
    """Storage that shows other bytes than were written, at the first look."""

    def __init__(self, change) -> None:
        super().__init__({})
        self._change = change

    def new_input(self, location):
        path = location.removeprefix("file:")
        with open(path, "rb") as file:  # noqa: PTH123
            stored = file.read()
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(self._change(stored))
        return super().new_input(location)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stored: stored[:-1], r"bytes on storage, \d+ were written"),
        (lambda stored: b"PAR1" + stored[4:], "begins with b'PAR1'"),
    ],
)
def test_a_file_that_is_not_stored_as_written_is_never_returned(tmp_path, change, message):
    with pytest.raises(IntegrityError, match=message):
        write(tmp_path, id_table(10), io=_Tampering(change))
    assert files_in(tmp_path) == []


def test_an_aborted_task_does_not_touch_another_attempts_files(tmp_path):
    kept = write(tmp_path, id_table(10))
    started(tmp_path).abort()
    assert files_in(tmp_path) == [path_of(kept[0])]
    assert parquet_file(kept[0]).read().num_rows == 10
