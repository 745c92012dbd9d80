"""The rows of plain Parquet files, for a table that takes them in encrypted.

Columns go by the files' field ids; in files without ids by the table's name mapping, or by the names of its columns. A column that the
table lacks is refused, as is a required one that a file lacks; an optional one is null, or its default. The files are only read.

Not here: writing the rows (``arrow.write``), the snapshot (``table.given_files``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from icelock.arrow.file_schema import FileField, file_fields
from icelock.arrow.read import ReadContext, read_task
from icelock.errors import PolicyError
from icelock.io.parquet import ParquetInput
from icelock.metadata.plan import ScanTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

    from icelock.table.staging import Staging


class PlainFiles:
    """Plain Parquet files that are to be read into a table."""

    def __init__(self, transaction: Staging, paths: Sequence[str], *, check_duplicates: bool, branch: str | None) -> None:
        """Take the paths; nothing is read."""
        metadata = transaction.encrypted_metadata()
        schema = metadata.schema()
        self._transaction = transaction
        self._paths = list(paths)
        self._check_duplicates = check_duplicates
        self._branch = branch
        self._tasks: list[ScanTask] = []
        self._context = ReadContext(
            schema=schema,
            table_schema=schema,
            specs={UNPARTITIONED_PARTITION_SPEC.spec_id: UNPARTITIONED_PARTITION_SPEC},
            name_mapping=metadata.name_mapping() or schema.name_mapping,
            io=transaction.current_io().inner,
            allow_plaintext=True,
        )

    def check(self) -> None:
        """Check all that can be without reading rows: the paths, and each file's footer.

        Raises:
            PolicyError: a file that is given twice, that the table has, or whose columns do not fit.
            FormatError: a file that is no plain Parquet file.
            FileNotFoundError: no such file.
        """
        twice = sorted({path for path in self._paths if self._paths.count(path) > 1})
        if twice:
            msg = f"each file can be given once: {', '.join(twice)}"
            raise PolicyError(msg)
        if self._check_duplicates:
            self._check_new()
        self._tasks = [self._task(path) for path in self._paths]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the checked files, one after another, in the table's schema."""
        for task in self._tasks:
            yield from read_task(self._context, task)

    def _check_new(self) -> None:
        scan = self._transaction.branch_scan(AlwaysTrue(), case_sensitive=True, branch=self._branch)
        known = set() if scan is None else {planned.file.file_path for planned in scan.plan_files()}
        ours = sorted(known.intersection(self._paths))
        if ours:
            msg = f"these files are the table's: {', '.join(ours)}; leave them out"
            raise PolicyError(msg)

    def _task(self, path: str) -> ScanTask:
        file = self._context.io.new_input(path)
        with ParquetInput(file, None) as source:
            fields = file_fields(source.schema, self._context.name_mapping, location=path)
            _check_columns(path, fields, self._context.schema)
            rows = source.metadata.num_rows
        return ScanTask(
            path=path,
            file_format="PARQUET",
            key_metadata=None,
            file_size=len(file),
            record_count=rows,
            spec_id=UNPARTITIONED_PARTITION_SPEC.spec_id,
            partition=(),
        )


def _check_columns(path: str, file: FileField, schema: Schema) -> None:
    known = set(schema.field_ids)
    extra = [".".join(names) for names, field in _walk(file) if field.field_id not in known]
    if extra:
        msg = f"{path} has columns that the table lacks: {', '.join(extra)}; add them with union_by_name, or write the file without them"
        raise PolicyError(msg)
    there = {field.field_id for field in file.children}
    lacking = [field.name for field in schema.fields if field.required and field.initial_default is None and field.field_id not in there]
    if lacking:
        msg = f"{path} lacks required columns: {', '.join(lacking)}"
        raise PolicyError(msg)


def _walk(field: FileField, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FileField]]:
    for child in field.children:
        names = (*above, child.name)
        yield names, child
        yield from _walk(child, names)
