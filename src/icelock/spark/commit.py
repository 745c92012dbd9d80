"""The end of a write, in the driver: one snapshot, or no file left.

``commit``  1 the ticket is redeemed: from here on this module answers for the files. 2 the table is loaded again and must be the same one.
            3 the messages' files are committed by the table's own transaction, which removes them when the commit certainly failed and
            leaves them when its outcome is unknown. 4 if a task was tried again, what its first attempt left is removed.
``abort``   Spark calls it when tasks failed, and after a failed commit too. Only a ticket that was never redeemed lets it remove files:
            those of the messages, and those of tasks that were killed, found by this write's id in their names.

Not here: how a snapshot is made (``table.transaction``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from icelock.errors import CommitError
from icelock.spark.messages import FilesWritten
from icelock.spark.options import TableName
from icelock.spark.tables import open_catalog, table_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from icelock.metadata.manifest import DataFile
    from icelock.spark.ticket import PlannedWrite, Ticket
    from icelock.spark.write import WritePlan
    from icelock.table.transaction import EncryptedTransaction

# Seconds before each look for files. Other tasks of the job may still write when ``abort`` is called; Spark destroys their Python workers
# 2 s after it killed the tasks (spark.python.task.killTimeout).
_SWEEPS: Final = (0.0, 1.0, 1.5, 1.5)
_logger = logging.getLogger(__name__)


def commit_write(plan: WritePlan, ticket: Ticket, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit the files of a write in one snapshot.

    Raises:
        CommitError: a message is missing, or the table was replaced by another.
        CommitFailedException: other writers won each time.
    """
    write = ticket.redeem()
    try:
        files = _files(messages)
        transaction = _begin(write)
        replaced = transaction.files_to_replace() if write.overwrite else []
    except BaseException:
        remove(plan.context().io, (path for message in messages if isinstance(message, FilesWritten) for path in message.paths))
        raise
    if write.overwrite:
        transaction.overwrite_data_files(files, replaced)
    else:
        transaction.append_data_files(files)
    transaction.commit_transaction()
    if any(message.retried for message in messages if isinstance(message, FilesWritten)):
        io = plan.context().io
        committed = {file.file_path for file in files}
        remove(io, (location for location in left_behind(io, plan) if location not in committed))


def abort_write(plan: WritePlan, ticket: Ticket, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Remove the files of a write whose commit never began."""
    if not ticket.discard():
        _logger.debug("the commit of write %s had begun: it took care of its files", plan.operation_id)
        return
    io = plan.context().io
    remove(io, (path for message in messages if isinstance(message, FilesWritten) for path in message.paths))
    for wait in _SWEEPS:
        time.sleep(wait)
        remove(io, left_behind(io, plan))


def remove(io: FileIO, locations: Iterable[str]) -> None:
    """Delete files, going on after errors; what is left is listed in the debug log."""
    left = []
    for location in locations:
        try:
            io.delete(location)
        except FileNotFoundError:
            continue
        except Exception as e:  # noqa: BLE001 - storage clients raise what they like; the rest still has to go
            _logger.debug("could not delete %s: %s", location, e)
            left.append(location)
    if left:
        _logger.debug("files of a failed write are left, they belong to no table: %s", ", ".join(left))


def left_behind(io: FileIO, plan: WritePlan) -> Iterator[str]:
    """Yield files of this write that no message names, where the storage can list: a task killed in its middle leaves them."""
    from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415

    if not isinstance(io, PyArrowFileIO):
        return
    folder = plan.properties.get("write.data.path", f"{plan.location.rstrip('/')}/data")
    scheme, netloc, path = PyArrowFileIO.parse_location(folder, io.properties)
    try:
        filesystem = io.fs_by_scheme(scheme, netloc)
        found = filesystem.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    except Exception as e:  # noqa: BLE001 - a listing is an extra; the job's own error matters more
        _logger.debug("could not list %s for files of a failed write: %s", folder, e)
        return
    for info in found:
        if info.type == FileType.File and plan.operation_id in info.base_name:
            yield folder + info.path[len(path) :]


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[DataFile]:
    files: list[DataFile] = []
    for message in messages:
        if not isinstance(message, FilesWritten):
            msg = f"expected the files of {len(messages)} tasks, got {type(message).__name__} from one: nothing is committed"
            raise CommitError(msg)
        files.extend(message.files)
    return files


def _begin(write: PlannedWrite) -> EncryptedTransaction:
    name = TableName(catalog=write.catalog, identifier=write.identifier)
    table = table_of(open_catalog(write.catalog, write.properties), name)
    if str(table.metadata.table_uuid) != write.table_uuid:
        msg = f"table {name} was replaced by another one while rows were written (uuid {write.table_uuid} before): nothing is committed"
        raise CommitError(msg)
    transaction = table.transaction()
    transaction.prepare_kek(write.keks)
    return transaction
