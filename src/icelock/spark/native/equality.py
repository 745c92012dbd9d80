"""Equality deletes of a native scan: a left anti join with the delete files, which Spark's reader reads too.

Delete files that compare the same columns are one relation, with their keys in its splits. The planner decides which of them apply to a
data file (``plan.delete_index``: sequence numbers, partitions, specs): each data file has the number of its set of delete files, each
delete file a number of its own, and a table of bits says which belong together. No bits are needed if all apply to all.

Values are equal if the Arrow engine finds them equal (``arrow.read.deletes``): null equals null, NaN equals NaN, and -0.0 is not 0.0. So
floats are compared as text, since Spark's joins treat the zeros as equal.

Spark reads a missing column as null, which would keep deleted rows: before a delete file is first read, its footer is checked here for
every compared column, and for the manifest entry's number of rows.

Not here: data files (``spark.native.plan``), deletes that the data source applies: nested columns, Avro, types that Spark lacks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import Final

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.utils.concurrent import ExecutorFactory
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark
from pyspark.sql import types as sp

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import EqualityColumns, EqualityKeys, check_count
from icelock.arrow.read.file_schema import file_fields
from icelock.arrow.read.project import FileColumns
from icelock.arrow.read.stored_file import StoredFile
from icelock.errors import PolicyError
from icelock.io.parquet import ParquetInput
from icelock.metadata.column_types import field_from_json
from icelock.plan.task import EQUALITY_DELETES, DeleteFile, ScanTask
from icelock.spark.columns.types import quoted, spark_type
from icelock.spark.jvm.native import NativeJvm, Scan
from icelock.spark.native.columns import Columns, reason_against, shown

PARQUET: Final = "PARQUET"
# Hidden columns; ``spark.native.columns`` refuses tables with such names.
_COMPARED: Final = "icelock compared "
_DELETED: Final = "icelock deleted value "
_SET: Final = "icelock delete files by "
_FILE: Final = "icelock delete file"
# Deleted rows that are broadcast, whatever their size on storage: some 100 MB on each executor. Otherwise all data would be shuffled.
_BROADCAST_ROWS: Final = 1_000_000

Ids = tuple[int, ...]


def equality_deletes(task: ScanTask) -> list[DeleteFile]:
    """Return a task's equality delete files."""
    return [delete for delete in task.deletes if delete.content == EQUALITY_DELETES]


def can_join(task: ScanTask, *, name_mapping: bool) -> bool:
    """Whether Spark can apply a task's equality deletes; all planning processes decide the same."""
    deletes = equality_deletes(task)
    if any(delete.file_format.upper() != PARQUET or (name_mapping and delete.key_metadata is None) for delete in deletes):
        return False
    return all(_can_compare(field) for columns in {delete.equality_columns for delete in deletes} for field in _fields(columns))


def ids_of(delete: DeleteFile) -> Ids:
    """Return the field ids that a delete file compares, in order."""
    return tuple(sorted(delete.equality_ids or ()))


def compared_by(task: ScanTask) -> frozenset[Ids]:
    """Return the sets of columns that a task's delete files compare."""
    return frozenset(map(ids_of, equality_deletes(task)))


def with_compared(wanted: Schema, tasks: Iterable[ScanTask]) -> Schema:
    """Return a schema with the columns that delete files compare; missing ones are appended under our names."""
    columns = {delete.equality_columns for task in tasks for delete in equality_deletes(task)}
    compared = {field.field_id: field for fields in columns for field in _fields(fields)}
    missing = [compared[field_id] for field_id in sorted(compared.keys() - {field.field_id for field in wanted.fields})]
    added = [field.model_copy(update={"name": f"{_COMPARED}{field.field_id}", "doc": None}) for field in missing]
    return Schema(*wanted.fields, *added, schema_id=wanted.schema_id) if added else wanted


class EqualityDeletes:
    """The delete files that compare one set of columns (``ids``), and the data files of one group (``tasks``) that they apply to."""

    def __init__(self, context: ReadContext, ids: Ids, tasks: Iterable[ScanTask], table: str) -> None:
        self._context = context
        self._table = table
        self._lock = threading.Lock()
        self._checked = False
        found: dict[str, DeleteFile] = {}
        numbers: dict[str, int] = {}
        applied: dict[str, list[int]] = {}
        for task in tasks:
            mine = [delete for delete in equality_deletes(task) if ids_of(delete) == ids]
            found.update((delete.path, delete) for delete in mine)
            applied[task.path] = [numbers.setdefault(delete.path, len(numbers)) for delete in mine]
        self.name = _SET + " ".join(map(str, ids))
        self._files = list(found.values())
        self._width = (len(found) + 7) // 8
        sets: dict[bytes, int] = {}
        self._set_of = {path: sets.setdefault(_bits(of, self._width), len(sets)) for path, of in applied.items()}
        self._bits = b"".join(sets)
        self._all = list(sets) == [_bits(range(len(found)), self._width)]
        self._fields = _fields(self._files[0].equality_columns)

    def sets(self, tasks: Iterable[ScanTask]) -> pa.Array:
        """Return the number of each data file's set, for the column ``name``."""
        return pa.array([self._set_of[task.path] for task in tasks], pa.int32())

    def remove(self, rows: DataFrame, jvm: NativeJvm, columns: Columns) -> DataFrame:
        """Return the rows that are not deleted; ``rows`` has the stored ``columns``, and ``name``."""
        deleted = self._open(jvm)
        if sum(delete.record_count for delete in self._files) <= _BROADCAST_ROWS:
            deleted = F.broadcast(deleted)
        here = {field.field_id: field for field in columns.wanted.fields}
        equal = [_equal(here[field.field_id], jvm, constant=field.field_id in columns.constants) for field in self._fields]
        if not self._all:
            equal.append(jvm.among(self._bits, self._width, F.col(quoted(self.name)), F.col(quoted(_FILE))))
        return rows.join(deleted, reduce(and_, equal), "left_anti")

    def __call__(self, filters: bytes) -> bytes:  # noqa: ARG002 - deleted rows are read whatever the filter
        """Return the delete files to Java, after a check of them."""
        with self._lock, still_there(f"a snapshot of {self._table}"):
            if not self._checked:
                list(ExecutorFactory.get_or_create().map(self._check, self._files))
                self._checked = True
        return stream({**file_columns(self._files, [None] * len(self._files)), _FILE: pa.array(range(len(self._files)), pa.int32())})

    def _open(self, jvm: NativeJvm) -> DataFrame:
        fields = (field.model_copy(update={"name": f"{_DELETED}{field.field_id}", "initial_default": None}) for field in self._fields)
        data = Columns(wanted=Schema(*fields), constants=frozenset(), table=self._table).data
        return jvm.open(
            Scan(
                data=data.json(),
                shown=shown(data).json(),
                partition=sp.StructType([sp.StructField(_FILE, sp.IntegerType(), nullable=False)]).json(),
                pushable=[],
                floats=[],
                files=self,
                count=len(self._files),
                size=sum(delete.file_size for delete in self._files),
            )
        )

    def _check(self, delete: DeleteFile) -> None:
        stored = StoredFile.of(delete, allow_plaintext=self._context.allow_plaintext, formats=(PARQUET,))
        with ParquetInput(self._context.io.new_input(stored.path), stored.key_metadata) as source:
            fields = file_fields(source.schema, None, location=stored.path)
            EqualityKeys(EqualityColumns.of(delete), FileColumns(location=stored.path, fields=fields, constants={}, complete=True))
            check_count(stored, source.metadata.num_rows)


@contextmanager
def still_there(what: str) -> Iterator[None]:
    """Explain the FileNotFoundError of a query that asks for the plan again."""
    try:
        yield
    except FileNotFoundError as e:
        raise FileNotFoundError(
            f"{what} cannot be planned again: it was expired meanwhile, or a file was removed ({e}); read the table again"
        ) from e


def stream(columns: dict[str, pa.Array]) -> bytes:
    """Return a plan as Java reads it."""
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def file_columns(files: Sequence[ScanTask | DeleteFile], deleted: Sequence[bytes | None]) -> dict[str, pa.Array]:
    """Return the first columns of every plan, which ``PlannedFiles.java`` takes by position; ``deleted`` are bitmaps of positions."""
    keys = [None if file.key_metadata is None else file.key_metadata.reveal() for file in files]
    return {
        "path": pa.array([file.path for file in files], pa.string()),
        "size": pa.array([file.file_size for file in files], pa.int64()),
        "key": pa.array(keys, pa.binary()),
        "deleted": pa.array(deleted, pa.binary()),
    }


def _fields(columns: Sequence[str]) -> list[ice.NestedField]:
    fields = map(field_from_json, set(columns))
    return sorted(fields, key=lambda field: field.field_id)


def _can_compare(field: ice.NestedField) -> bool:
    if not isinstance(field.field_type, ice.PrimitiveType) or isinstance(field.field_type, ice.UnknownType):
        return False
    try:
        spark_type(field.field_type, field.name, "")
    except PolicyError:
        return False
    return reason_against(Schema(field)) is None


def _bits(numbers: Iterable[int], width: int) -> bytes:
    found = bytearray(width)
    for number in numbers:
        found[number >> 3] |= 1 << (number & 7)
    return bytes(found)


def _equal(field: ice.NestedField, jvm: NativeJvm, *, constant: bool) -> Column:
    here, there = F.col(quoted(field.name)), F.col(quoted(f"{_DELETED}{field.field_id}"))
    if isinstance(field.field_type, (ice.FloatType, ice.DoubleType)):
        here, there = here.cast("string"), there.cast("string")
    elif isinstance(field.field_type, ice.UUIDType) and constant:
        there = jvm.uuid_text(there)
    # Without a second key for nulls the hash table is smaller and faster.
    return here == there if field.required else here.eqNullSafe(there)
