"""ScanTask to Arrow: one process, one file at a time, batch by batch.

Steps for a task: 1 its key metadata says whether the file is encrypted (never the bytes). 2 open it through ``io.parquet``.
3 match field ids. 4 skip row groups by the footer's statistics. 5 read the leaf columns that output and filter need, one row group
at a time. 6 drop rows by the filter. 7 project to the output schema.

No key, reader or property object is shared between files, nothing is read before the first batch is asked for, and memory is
bounded by a row group's stored bytes and one batch.

Not here: which files (``metadata.plan``), threads over files and limits (``table``), Parquet itself (``io.parquet``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform

from icelock.arrow.arrow_types import output_schema
from icelock.arrow.file_schema import FileField, file_fields
from icelock.arrow.project import FileColumns, Lineage, Projection
from icelock.arrow.prune import matching_row_groups
from icelock.arrow.row_filter import FilterPlan, RowFilter
from icelock.errors import FormatError, IntegrityError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.parquet import ParquetInput

if TYPE_CHECKING:
    from icelock.metadata.plan import ScanTask

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """What all tasks of one scan share; it holds no key.

    ``schema`` is what comes out, ``row_filter`` (bound or not) is about ``table_schema``, ``io`` is the storage's own FileIO, and
    ``allow_plaintext`` says whether files without key metadata may be read. ``arrow_schema`` is the schema of every batch.

    Raises:
        ValueError: the filter names a column that ``table_schema`` lacks (PyIceberg's error).
    """

    schema: Schema
    table_schema: Schema
    row_filter: BooleanExpression = dataclasses.field(default_factory=AlwaysTrue)
    case_sensitive: bool = True
    specs: Mapping[int, PartitionSpec]
    name_mapping: NameMapping | None = None
    io: FileIO
    allow_plaintext: bool
    filter_plan: FilterPlan = dataclasses.field(init=False, repr=False, compare=False)
    arrow_schema: pa.Schema = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plan = FilterPlan.make(self.row_filter, self.table_schema, case_sensitive=self.case_sensitive)
        object.__setattr__(self, "filter_plan", plan)
        object.__setattr__(self, "arrow_schema", output_schema(self.schema))

    @property
    def bound_filter(self) -> BooleanExpression:
        """The filter, bound to ``table_schema``."""
        return self.filter_plan.expression


def needs_reading(context: ReadContext, task: ScanTask) -> bool:
    """Whether the number of a task's rows takes reading: without filter and deletes it is ``record_count``."""
    if isinstance(context.bound_filter, AlwaysFalse):
        return False
    return bool(task.deletes) or not isinstance(context.bound_filter, AlwaysTrue)


def count_task(context: ReadContext, task: ScanTask) -> int:
    """Return how many rows ``read_task`` would yield; only the filter's columns are read, and nothing without a filter.

    Raises:
        IcelockError: as ``read_task``, when the file is read.
    """
    if not needs_reading(context, task):
        return 0 if isinstance(context.bound_filter, AlwaysFalse) else task.record_count
    return sum(batch.num_rows for batch in read_task(dataclasses.replace(context, schema=Schema()), task))


def read_task(context: ReadContext, task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Return the rows of a data file that match the filter, in file order, as batches of ``context.arrow_schema``.

    What can be refused without reading is refused at the call; the file is opened when the first batch is asked for and closed
    after the last, or when the iterator is.

    Raises:
        PolicyError: a plain file in an encrypted table, deletes to apply, or a file format that is not read.
        IntegrityError: the file fails authentication, or is not as long as its key metadata says.
        FormatError: the file is no Parquet file, or does not hold what the schema asks for.
        KeyUnavailableError: the file is encrypted and the task has no key metadata.
    """
    reader = _READERS.get(task.file_format.upper())
    if reader is None:
        msg = f"{task.path} is a data file in {task.file_format}, which is not read: data files in {', '.join(_READERS)} are"
        raise PolicyError(msg)
    if task.deletes:
        msg = (
            f"{task.path} has {len(task.deletes)} merge-on-read delete files to apply, which comes with a later version of icelock: "
            "rewrite the table's data files (compaction) with another engine first"
        )
        raise PolicyError(msg)
    key_metadata = _key_metadata(context, task)
    if isinstance(context.bound_filter, AlwaysFalse):
        return iter(())
    return reader(context, task, key_metadata)


def _key_metadata(context: ReadContext, task: ScanTask) -> KeyMetadata | None:
    if task.key_metadata is not None:
        try:
            return KeyMetadata.decode(task.key_metadata.reveal())
        except FormatError as e:
            msg = f"{task.path}: the manifest entry's key metadata is damaged: {e}"
            raise FormatError(msg) from e
    if not context.allow_plaintext:
        msg = (
            f"{task.path} has no key metadata, but its table is encrypted: refused to read a plain file; "
            "set the table property icelock.plaintext-files=allow-unkeyed if the table was converted from a plain one"
        )
        raise PolicyError(msg)
    return None


def _read_parquet(context: ReadContext, task: ScanTask, key_metadata: KeyMetadata | None) -> Iterator[pa.RecordBatch]:
    with ParquetInput(context.io.new_input(task.path), key_metadata) as source:
        file = file_fields(source.schema, context.name_mapping, location=task.path)
        columns = FileColumns(
            location=task.path,
            fields=file,
            constants=_partition_values(context, task),
            lineage=Lineage(first_row_id=task.first_row_id, sequence_number=task.sequence_number),
        )
        projection = Projection(context.schema, context.arrow_schema, columns)
        rows: RowFilter | None = None
        if not isinstance(context.bound_filter, AlwaysTrue):
            rows = RowFilter(context.filter_plan, columns)
        for first, batch in _file_batches(context, source, file, projection, rows):
            result = _finish(batch, first, projection, rows)
            if result.num_rows:
                yield result


def _file_batches(
    context: ReadContext, source: ParquetInput, file: FileField, projection: Projection, rows: RowFilter | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of the row groups that may match, each with the position of its first row in the file."""
    leaves = sorted({*projection.leaves, *(() if rows is None else rows.leaves)})
    columns = source.leaf_paths(leaves)
    metadata = source.metadata
    wanted = set(range(metadata.num_row_groups))
    if rows is not None:
        wanted = set(matching_row_groups(metadata, file, context.table_schema, context.bound_filter))
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if number in wanted:
            position = first
            for batch in source.batches(number, columns, _batch_rows(group)):
                yield position, batch
                position += batch.num_rows
            if position - first != group.num_rows:
                msg = f"{source.location}: row group {number} has {position - first} rows, its footer says {group.num_rows}"
                raise IntegrityError(msg)
        first += group.num_rows


def _batch_rows(group: Any) -> int:
    """Rows in a batch: fewer when rows are wide, so that a batch stays near ``BATCH_BYTES``.

    The row group's size counts all its columns: pyarrow ends the process when asked about one that has a key of its own (case C-68).
    """
    width: int = group.total_byte_size // max(1, group.num_rows)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, width)))


def _finish(batch: pa.RecordBatch, first: int, projection: Projection, rows: RowFilter | None) -> pa.RecordBatch:
    mask = None if rows is None else rows.keep(batch)
    positions = pa.arange(first, first + batch.num_rows) if projection.needs_positions else None
    if mask is not None:
        batch = batch.filter(mask)
        positions = None if positions is None else positions.filter(mask)
    return projection.apply(batch, positions)


def _partition_values(context: ReadContext, task: ScanTask) -> dict[int, Any]:
    """Return the values of identity partition fields by source field id, which columns missing in the file take."""
    if not task.partition:
        return {}
    spec = context.specs.get(task.spec_id)
    if spec is None or len(spec.fields) != len(task.partition):
        msg = (
            f"{task.path} has {len(task.partition)} partition values, which do not fit partition spec {task.spec_id} of the table ({spec})"
        )
        raise FormatError(msg)
    return {
        field.source_id: value
        for field, value in zip(spec.fields, task.partition, strict=True)
        if isinstance(field.transform, IdentityTransform)
    }


_READERS: Final[Mapping[str, Callable[[ReadContext, ScanTask, KeyMetadata | None], Iterator[pa.RecordBatch]]]] = {"PARQUET": _read_parquet}
