"""What the write tests share: a context on a folder, reading back without icelock, and FileIOs that count or fail."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from icelock.arrow.write.writer import WriteContext, write_data_files
from icelock.keys.entropy import SystemEntropy
from icelock.metadata.manifest import DataFile

OPERATION = "3cff6226-6b4e-491b-bcb9-5ca5ef39cfe5"
_KEY_METADATA = {
    "type": "record",
    "name": "key_metadata",
    "fields": [
        {"name": "key", "type": "bytes"},
        {"name": "aad", "type": ["null", "bytes"]},
        {"name": "length", "type": ["null", "long"]},
    ],
}


def req(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id, name, kind, required=True)


def opt(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id, name, kind, required=False)


ID_AND_TEXT = Schema(req(1, "id", LongType()), opt(2, "s", StringType()))


def context(folder: Path, schema: Schema = ID_AND_TEXT, **fields: Any) -> WriteContext:
    values: dict[str, Any] = {
        "schema": schema,
        "spec": UNPARTITIONED_PARTITION_SPEC,
        "sort_order": UNSORTED_SORT_ORDER,
        "location": f"file:{folder}",
        "properties": {},
        "io": PyArrowFileIO(),
        "data_key_length": 16,
        "operation_id": OPERATION,
    }
    return WriteContext(**{**values, **fields})


def write(folder: Path, table: pa.Table, schema: Schema = ID_AND_TEXT, *, batch_rows: int | None = None, **fields: Any) -> list[DataFile]:
    batches = table.to_batches(max_chunksize=batch_rows)
    return write_data_files(context(folder, schema, **fields), batches, task_id=7, entropy=SystemEntropy())


def id_table(rows: int) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64()), "s": pa.array([f"row {i}" for i in range(rows)])})


def key_metadata(data_file: DataFile) -> dict[str, Any]:
    """Key metadata by fastavro alone: ``key``, ``aad``, ``length``."""
    assert data_file.key_metadata[:1] == b"\x01"
    read: Any = fastavro.schemaless_reader(io.BytesIO(data_file.key_metadata[1:]), _KEY_METADATA, None)
    return read


def path_of(data_file: DataFile) -> Path:
    return Path(data_file.file_path.removeprefix("file:"))


def parquet_file(data_file: DataFile) -> pq.ParquetFile:
    """The stored file by pyarrow alone, with the DEK and AAD prefix of its manifest entry."""
    key = key_metadata(data_file)
    assert path_of(data_file).stat().st_size == key["length"] == data_file.file_size_in_bytes
    opened = pe.create_decryption_properties(footer_key=key["key"], aad_prefix=key["aad"])
    return pq.ParquetFile(path_of(data_file), decryption_properties=opened)


def read(data_files: list[DataFile]) -> pa.Table:
    return pa.concat_tables([parquet_file(data_file).read() for data_file in data_files])


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


class CountingIO(PyArrowFileIO):
    """Knows what was made, how much is open, and can refuse to delete or to write beyond some bytes."""

    def __init__(self, properties: Any = None, *, fail_at: int | None = None, keep: bool = False) -> None:
        super().__init__(properties or {})
        self.made: list[str] = []
        self.open_now: set[str] = set()
        self.most_open = 0
        self.fail_at = fail_at
        self.keep = keep

    def new_output(self, location: str) -> PyArrowFile:
        self.made.append(location)
        return _CountedFile(super().new_output(location), self)  # type: ignore[return-value]

    def delete(self, location: Any) -> None:
        if self.keep:
            msg = "not allowed to delete"
            raise PermissionError(msg)
        super().delete(location)


class _CountedFile:
    def __init__(self, inner: PyArrowFile, owner: CountingIO) -> None:
        self.location = inner.location
        self._inner = inner
        self._owner = owner

    def create(self, overwrite: bool = False) -> _CountedStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        return _CountedStream(self._inner.create(overwrite=overwrite), self._inner.location, self._owner)


class _CountedStream(io.RawIOBase):
    def __init__(self, inner: Any, location: str, owner: CountingIO) -> None:
        super().__init__()
        self._inner = inner
        self._location = location
        self._owner = owner
        owner.open_now.add(location)
        owner.most_open = max(owner.most_open, len(owner.open_now))

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._owner.fail_at is not None and self.tell() + len(data) > self._owner.fail_at:
            msg = "disk full"
            raise OSError(28, msg)
        self._inner.write(data)
        return len(data)

    def tell(self) -> int:
        return int(self._inner.tell())

    def close(self) -> None:
        self._owner.open_now.discard(self._location)
        self._inner.close()
        super().close()
