"""Parquet files written by pyarrow alone, a FileIO that counts, and PyIceberg's own reader for a plain twin."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO, _task_to_record_batches, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, ListType, MapType, NestedField

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.task import read_task
from icelock.arrow.types import output_schema
from icelock.format.key_metadata import KeyMetadata
from icelock.plan.task import ScanTask
from icelock.secret import SecretBytes

DEK = b"0123456789abcdef"
AAD = b"AAD-PREFIX-16-B."
OTHER_DEK = b"fedcba9876543210"


def metadata(path: Path | None = None, *, dek: bytes = DEK, aad: bytes | None = AAD, length: int | None = None) -> KeyMetadata:
    """Key metadata as a manifest would have it: with the length of ``path`` unless told otherwise."""
    return KeyMetadata(dek=SecretBytes(dek), aad_prefix=aad, encrypted_length=path.stat().st_size if path and length is None else length)


def write(path: Path, table: pa.Table, *, dek: bytes | None = DEK, aad: bytes = AAD, **options: Any) -> Path:
    """Write an encrypted Parquet file (plain when ``dek`` is None) with pyarrow alone."""
    keys = None if dek is None else pe.create_encryption_properties(footer_key=dek, aad_prefix=aad, store_aad_prefix=False)
    pq.write_table(table, path, **{"encryption_properties": keys, "store_schema": False, **options})
    return path


def opt(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id, name, kind, required=False)


def with_ids(schema: Schema) -> pa.Schema:
    """The Arrow schema of a file of this Iceberg schema: field ids at every level."""
    return schema_to_pyarrow(schema, include_field_ids=True)


def rows_table(schema: Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, with_ids(schema))


def task(path: Path, *, key: KeyMetadata | None, **fields: Any) -> ScanTask:
    values: dict[str, Any] = {
        "path": str(path),
        "file_format": "PARQUET",
        "key_metadata": None if key is None else SecretBytes(key.encode()),
        "file_size": path.stat().st_size,
        "record_count": 0,
        "spec_id": 0,
        "partition": (),
    }
    return ScanTask(**{**values, **fields})


def context(schema: Schema, row_filter: BooleanExpression | None = None, **fields: Any) -> ReadContext:
    values: dict[str, Any] = {
        "schema": schema,
        "table_schema": schema,
        "row_filter": AlwaysTrue() if row_filter is None else row_filter,
        "specs": {0: UNPARTITIONED_PARTITION_SPEC},
        "io": PyArrowFileIO(),
        "allow_plaintext": False,
    }
    return ReadContext(**{**values, **fields})


def read(scan: ReadContext, one: ScanTask) -> pa.Table:
    """All rows of a task, with every batch checked to be exactly of the scan's schema."""
    batches = list(read_task(scan, one))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(scan.arrow_schema, check_metadata=True)
        assert batch.num_rows
    return pa.Table.from_batches(batches, scan.arrow_schema)


def pyiceberg_twin(path: Path, schema: Schema, row_filter: BooleanExpression, **fields: Any) -> pa.Table:
    """What PyIceberg's scan gives for a plain file; ``schema`` is the table's and the projection."""
    values: dict[str, Any] = {"spec": UNPARTITIONED_PARTITION_SPEC, "partition": (), "mapping": None, "case_sensitive": True, **fields}
    spec: PartitionSpec = values["spec"]
    file = DataFile.from_args(
        file_path=str(path), file_format=FileFormat.PARQUET, partition=Record(*values["partition"]), file_size_in_bytes=0, record_count=0
    )
    file.spec_id = spec.spec_id
    bound = bind(schema, row_filter, case_sensitive=True)
    ids = {i for i in schema.field_ids if not isinstance(schema.find_type(i), (MapType, ListType))} | extract_field_ids(bound)
    batches = _task_to_record_batches(
        PyArrowFileIO(), FileScanTask(file), bound, schema, schema, ids, None, values["case_sensitive"], values["mapping"], spec, 3
    )
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    arrow = output_schema(schema)
    return pa.concat_tables([table.cast(arrow) for table in tables]) if tables else arrow.empty_table()


@dataclasses.dataclass
class Counted:
    """What a CountingIO saw: ``bytes`` read and ``opened`` locations in order."""

    bytes: int = 0
    opened: list[str] = dataclasses.field(default_factory=list)
    open_now: int = 0


class CountingIO(PyArrowFileIO):
    """The local file system, with every byte read counted."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Counted()

    def new_input(self, location: str) -> InputFile:
        return _CountingFile(location, Path(location), self.seen)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError


class _CountingFile(InputFile):
    def __init__(self, location: str, path: Path, seen: Counted) -> None:
        super().__init__(location)
        self._path, self._seen = path, seen

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002 - PyIceberg's signature
        del seekable
        self._seen.opened.append(self.location)
        self._seen.open_now += 1
        return _CountingStream(self._path, self._seen)


class _CountingStream:
    """A readable Python file, as fsspec's are, for Arrow to call from its threads."""

    def __init__(self, path: Path, seen: Counted) -> None:
        self._file, self._seen = path.open("rb"), seen

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._seen.bytes += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if not self._file.closed:
            self._seen.open_now -= 1
        self._file.close()
