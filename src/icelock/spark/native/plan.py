"""The files of a native scan: which ones Spark's reader can read, and the plan that Java asks for at each query.

A scan is planned when its DataFrame is made. Each query asks for the files again, with Spark's filters, and gets those that the manifests
do not rule out: so a filter on the DataFrame or in SQL prunes files as it does with Java Iceberg. Deleted positions are read in the driver,
for a query's files only, and travel with their file, as its key does.

Java gets the plan as an Arrow stream: path, size, key metadata, deleted positions, then the plan's columns (``spark.native.columns``).

Not here: its use (``PlannedFiles.java``), the DataFrame (``spark.native.scan``), equality deletes (``spark.native.equality``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import PrimitiveType, UUIDType

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import Deletes, check_deletes
from icelock.arrow.read.stored_file import StoredFile
from icelock.arrow.types import output_type, storage
from icelock.metadata.metadata_columns import PARTITION_FIELDS, PARTITION_ID, shows_deleted
from icelock.plan.task import EQUALITY_DELETES, DeleteFile, ScanTask
from icelock.spark.columns.filters import FilterTranslator
from icelock.spark.columns.types import arrow_schema
from icelock.spark.native import equality as eq
from icelock.spark.native.columns import FILE_PATH, FIRST_ROW_ID, PARTITION_VALUE, SEQUENCE_NUMBER, SPEC, Columns
from icelock.spark.native.filters import FUNCTION, bucket_conditions, conjunction, function_filter, pruning_filter
from icelock.spark.native.functions import FunctionFilter
from icelock.table.read.scan import DataScan

_KEPT_PLANS: Final = 8


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one relation: ``constants`` are columns of the plan, ``equality`` what the equality deletes compare."""

    constants: frozenset[int]
    equality: frozenset[eq.Ids]


def is_native(task: ScanTask, *, name_mapping: bool, deleted: bool) -> bool:
    """Whether Spark's reader can read a file and its equality deletes: Parquet with field ids (plain files may need a mapping).

    With ``deleted``, which asks for deleted rows too, it reads those without deletes.
    """
    if task.file_format.upper() != eq.PARQUET or (name_mapping and task.key_metadata is None) or (deleted and task.deletes):
        return False
    return eq.can_join(task, name_mapping=name_mapping)


def positional_deletes(task: ScanTask) -> tuple[DeleteFile, ...]:
    """Return a task's delete files with positions of rows: vectors and Parquet files."""
    return tuple(delete for delete in task.deletes if delete.content != EQUALITY_DELETES)


def constants_of(spec: PartitionSpec | None, wanted: Schema) -> frozenset[int]:
    """Return the field ids of top-level columns whose values a spec has."""
    columns = {field.field_id for field in wanted.fields if isinstance(field.field_type, PrimitiveType)}
    fields = () if spec is None else spec.fields
    return frozenset(field.source_id for field in fields if isinstance(field.transform, IdentityTransform) and field.source_id in columns)


class Planned:
    """The files of one scan in groups; ``scan`` has a fixed snapshot, ``tasks`` are its files, ``wanted`` is the schema to read."""

    def __init__(self, scan: DataScan, tasks: Sequence[ScanTask], wanted: Schema) -> None:
        self.scan = scan
        self._context: ReadContext = scan.update(row_filter=AlwaysTrue()).read_context(wanted)
        self._specs = self._context.specs
        self._mapped = self._context.name_mapping is not None
        self.wanted = wanted
        self._constants: dict[tuple[int, frozenset[eq.Ids]], frozenset[int]] = {}
        self._translator = FilterTranslator(wanted, scan.full_schema)
        self._lock = threading.Lock()
        self._plans: dict[str, list[ScanTask]] = {repr(AlwaysTrue()): list(tasks)}
        deleted = shows_deleted(wanted)
        native = [task for task in tasks if is_native(task, name_mapping=self._mapped, deleted=deleted)]
        self._groups = {task.path: self._group(task) for task in native}

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that is read."""
        return self.scan.snapshot_id

    def groups(self) -> dict[Group, list[ScanTask]]:
        """Return the files that Spark's reader reads; a scan without files has one empty group."""
        tasks = self._plans[repr(AlwaysTrue())]
        found: dict[Group, list[ScanTask]] = {} if tasks else {Group(frozenset(), frozenset()): []}
        for task in tasks:
            if task.path in self._groups:
                found.setdefault(self._groups[task.path], []).append(task)
        return found

    def rows(self, tasks: Sequence[ScanTask]) -> int | None:
        """Return how many rows some files have by the manifests; None if a read may return fewer, or be refused."""
        if any(task.deletes or (task.key_metadata is None and not self._context.allow_plaintext) for task in tasks):
            return None
        return sum(task.record_count for task in tasks)

    def equality(self, group: Group, tasks: Sequence[ScanTask], table: str) -> list[eq.EqualityDeletes]:
        """Return a group's equality deletes, one for each set of compared columns; ``tasks`` are all of the group."""
        return [eq.EqualityDeletes(self._context, ids, tasks, table) for ids in sorted(group.equality)]

    def rest(self) -> bool:
        """Whether there are files that Spark's reader cannot read."""
        return len(self._groups) < len(self._plans[repr(AlwaysTrue())])

    def files(self, group: Group, columns: Columns, equality: Iterable[eq.EqualityDeletes], filters: bytes) -> bytes:
        """Return the files of a group that Spark's filters leave, as an Arrow stream."""
        with eq.still_there(f"snapshot {self.snapshot_id} of {columns.table}"):
            tasks = self._filtered(pruning_filter(filters, self._translator))
            chosen = [task for task in tasks if self._groups.get(task.path) == group]
            for condition in bucket_conditions(filters):
                chosen = self._left_by(condition, chosen)
            return self._files(chosen, columns, equality)

    def _files(self, chosen: list[ScanTask], columns: Columns, equality: Iterable[eq.EqualityDeletes]) -> bytes:
        for task in chosen:
            StoredFile.of(task, allow_plaintext=self._context.allow_plaintext)
            check_deletes(self._context, task)
        made = self._columns(columns, chosen)
        made |= {deletes.name: deletes.sets(chosen) for deletes in equality}
        return eq.stream(made)

    def _left_by(self, condition: list[Any], tasks: list[ScanTask]) -> list[ScanTask]:
        """Return the files that a condition with buckets leaves."""
        kind, *parts = condition
        if kind == "And":
            return self._left_by(parts[1], self._left_by(parts[0], tasks))
        if kind == "Or":
            kept = {task.path for part in parts for task in self._left_by(part, tasks)}
        elif kind == FUNCTION and (function := function_filter(condition)).is_bucket:
            return self._in_buckets(tasks, function)
        else:
            kept = {task.path for task in self._filtered(conjunction([condition], self._translator))}
        return [task for task in tasks if task.path in kept]

    def _in_buckets(self, tasks: list[ScanTask], function: FunctionFilter) -> list[ScanTask]:
        """Return the files that a comparison of a bucket leaves: those of specs without it, and those of its partitions."""
        column = self._translator.column(function.column)
        transform = f"bucket[{function.number}]"
        places = {
            spec.spec_id: place
            for spec in self._specs.values()
            for place, field in enumerate(spec.fields)
            if column is not None and field.source_id == column.field_id and str(field.transform) == transform
        }
        return [task for task in tasks if task.spec_id not in places or function.may_match(task.partition[places[task.spec_id]])]

    def _filtered(self, expression: BooleanExpression) -> list[ScanTask]:
        name = repr(expression)
        with self._lock:
            if name not in self._plans:
                if len(self._plans) >= _KEPT_PLANS:
                    # The first one is of the scan itself.
                    del self._plans[list(self._plans)[1]]
                self._plans[name] = self.scan.filter(expression).scan_tasks()
            return self._plans[name]

    def _group(self, task: ScanTask) -> Group:
        compared = eq.compared_by(task)
        key = (task.spec_id, compared)
        if key not in self._constants:
            self._constants[key] = constants_of(self._specs.get(task.spec_id), eq.with_compared(self.wanted, [task]))
        return Group(self._constants[key], compared)

    def _columns(self, columns: Columns, tasks: list[ScanTask]) -> dict[str, pa.Array]:
        made = eq.file_columns(tasks, [self._deleted(task) for task in tasks])
        for constant in columns.constant_fields:
            values = [self._partition(task, constant.field_id) for task in tasks]
            made[f"constant {constant.name}"] = _column(values, constant.field_type)
        for target in arrow_schema(columns.planned):
            made[target.name] = self._hidden(target.name, target.type, tasks, columns)
        return made

    def _hidden(self, name: str, target: pa.DataType, tasks: list[ScanTask], columns: Columns) -> pa.Array:
        if name in _OF_TASK:
            return pa.array([getattr(task, _OF_TASK[name]) for task in tasks], target)
        part = int(name.removeprefix(PARTITION_VALUE))
        kinds = {
            child.field_id - PARTITION_FIELDS: child.field_type
            for field in columns.wanted.fields
            if field.field_id == PARTITION_ID
            for child in field.field_type.fields  # type: ignore[attr-defined]
        }
        return _column([self._part(task, part) for task in tasks], kinds[part])

    def _partition(self, task: ScanTask, source_id: int) -> Any:
        fields = zip(self._specs[task.spec_id].fields, task.partition, strict=True)
        return next(value for field, value in fields if field.source_id == source_id and isinstance(field.transform, IdentityTransform))

    def _part(self, task: ScanTask, field_id: int) -> Any:
        fields = zip(self._specs[task.spec_id].fields, task.partition, strict=True)
        return next((value for field, value in fields if field.field_id == field_id), None)

    def _deleted(self, task: ScanTask) -> bytes | None:
        positions = positional_deletes(task)
        if not positions:
            return None
        only = task if len(positions) == len(task.deletes) else replace(task, deletes=positions)
        return bytes(Deletes.read(self._context, only).positions.serialize())


_OF_TASK: Final[Mapping[str, str]] = {
    FILE_PATH: "path",
    SPEC: "spec_id",
    FIRST_ROW_ID: "first_row_id",
    SEQUENCE_NUMBER: "sequence_number",
}


def _column(values: list[Any], kind: Any) -> pa.Array:
    """Return PyIceberg's values in the Arrow form of Spark's type."""
    if isinstance(kind, UUIDType):
        return pa.array(
            [None if value is None else str(value if isinstance(value, UUID) else UUID(bytes=value)) for value in values], pa.string()
        )
    target = storage(output_type(kind))
    made = pa.array(values, target)
    return made.cast(pa.binary()) if pa.types.is_fixed_size_binary(target) else made
