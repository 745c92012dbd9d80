"""What an executor does where deletes become vectors: it finds the deleted rows of data files. Neither catalog nor KMS is imported.

Not here: which files (``table.rows.delete_rewrite``), the work itself (``arrow.write.row_rewrite``), jobs
(``spark.driver.find_deleted_here``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icelock.spark.sealed.hpke import Sender
from icelock.spark.sealed.messages import FilesWritten, SealedFiles
from icelock.spark.sealed.splits import open_splits
from icelock.spark.task.imports import settle_imports
from icelock.spark.task.read import ReadPlan

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPlan:
    """What all tasks of the job share."""

    read: ReadPlan
    sender: Sender


def find_sealed(plan: FindPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Return the positions of the deleted rows of the files in sealed splits; errors are those of ``deleted_rows``, and of the splits."""
    from icelock.arrow.write.row_rewrite import deleted_rows

    settle_imports()
    read = plan.read.context()
    found = {task.path: deleted_rows(read, task).serialize() for split in open_splits(key, rows) for task in split.tasks}
    return SealedFiles.of(FilesWritten(positions=found), plan.sender)
