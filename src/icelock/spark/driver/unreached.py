"""Files of a write that no table has: those of failed jobs, of killed tasks and of earlier attempts. They are found by the write's id."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyiceberg.io import FileIO
from pyspark.sql.datasource import WriterCommitMessage

from icelock.arrow.write.context import WriteContext
from icelock.errors import IntegrityError
from icelock.io.listing import delete_files, list_files
from icelock.spark.sealed.job import Job
from icelock.spark.sealed.messages import SealedFiles

# Seconds before each listing. Other tasks of the job may still write when ``abort`` is called: Spark kills them, and destroys their Python
# workers 2 s later (spark.python.task.killTimeout).
_SWEEPS: Final = (0.0, 1.0, 1.5, 1.5)
_logger = logging.getLogger(__name__)


def sweep(context: WriteContext) -> None:
    """Delete all files of an operation, those that killed tasks may still write too."""
    for wait in _SWEEPS:
        time.sleep(wait)
        remove_all(context)


def remove(io: FileIO, locations: Iterable[str]) -> None:
    """Delete files; the debug log lists those that are left."""
    left = delete_files(io, locations)
    if left:
        _logger.debug("files of a failed write are left, they belong to no table: %s", ", ".join(left))


def remove_all(context: WriteContext) -> None:
    """Delete the files of a write, reported or not."""
    remove(context.io, files_of_write(context))


def remove_unreported(context: WriteContext, reported: Iterable[str]) -> None:
    """Delete the files of a write that no message reported: those of earlier attempts of its tasks."""
    known = set(reported)
    remove(context.io, (location for location in files_of_write(context) if location not in known))


def files_of_write(context: WriteContext) -> list[str]:
    """Return the files with a write's id, if the storage can list: killed tasks leave files that no message reports."""
    folder = context.properties.get("write.data.path", f"{context.location.rstrip('/')}/data")
    try:
        files = list_files(context.io, folder)
        return [file.location for file in files if context.operation_id in file.location.rpartition("/")[2]]
    except Exception as e:  # noqa: BLE001 - the job's own error matters more
        _logger.debug("could not list %s for files of a failed write: %s", folder, e)
        return []


def paths_in(job: Job, messages: Sequence[WriterCommitMessage | None]) -> Iterator[str]:
    """Yield the files of those messages that open."""
    recipient = job.recipient
    for task, message in enumerate(messages):
        if isinstance(message, SealedFiles):
            with contextlib.suppress(IntegrityError):
                yield from message.open(recipient, task=task).paths
