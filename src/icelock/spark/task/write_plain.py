"""What an executor does for a write to a plain table: the rows of one task become PyIceberg's data files, without keys.

Not here: the commit, and whether the table may take rows (``spark.statements.plain_tables``), encrypted files (``spark.task.write``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pyspark import TaskContext

from icelock.spark.sealed.hpke import Sender
from icelock.spark.sealed.messages import FilesWritten, RowCounts, SealedFiles
from icelock.spark.task.imports import settle_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWritePlan:
    """A write without its rows: the table's metadata as JSON without history, and the FileIO's properties that executors may have."""

    metadata: str
    storage: Mapping[str, str]
    sender: Sender

    @classmethod
    def of(cls, metadata: TableMetadata, storage: Mapping[str, str], *, sender: Sender) -> Self:
        """Return the plan of a write to a table that is like this now."""
        from icelock.metadata.table_metadata import without_history

        return cls(metadata=without_history(metadata).model_dump_json(), storage=dict(storage), sender=sender)


def write_plain_rows(plan: PlainWritePlan, rows: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Write the rows of one task; errors as ``arrow.write.plain_file.data_files``."""
    from pyiceberg.table.metadata import TableMetadataUtil

    from icelock.arrow.write.plain_file import data_files
    from icelock.io.storage import open_storage

    task = TaskContext.get()
    if task is not None:
        settle_imports()
    metadata = TableMetadataUtil.parse_raw(plan.metadata)
    made = data_files(metadata, open_storage(dict(plan.storage), metadata.location), rows)
    retried = task is not None and task.attemptNumber() > 0
    counts = RowCounts(inserted=sum(int(file.record_count) for file in made))
    return SealedFiles.of(FilesWritten(made, retried=retried, counts=counts), plan.sender)  # type: ignore[arg-type]  # PyIceberg's files
