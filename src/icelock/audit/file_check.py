"""``check_file``: one file, opened with its key. A function of its arguments alone, so that it can run in a thread or a task.

Not here: which files there are (``audit.table``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO

from icelock.audit.fault import Fault
from icelock.audit.parquet import check_modules, open_footer
from icelock.audit.storage import StoredBytes
from icelock.audit.streams import Ags1Blocks
from icelock.format.key_metadata import KeyMetadata

_STREAMS: Final = frozenset({"AVRO", "PUFFIN"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """A file to open: its format, rows (None if they are not the file's own number, as with deletion vectors), key, and how deep."""

    path: str
    format: str
    records: int | None
    key: KeyMetadata
    every_byte: bool


def check_file(io: FileIO, task: FileTask) -> None:
    """Open a data or delete file.

    Raises:
        Fault: what is wrong with it.
        OSError: the storage failed.
    """
    try:
        with StoredBytes(io, task.path) as stored:
            if task.format == "PARQUET":
                _parquet(stored, task)
            elif task.format in _STREAMS:
                Ags1Blocks(stored, task.key).check(every=task.every_byte)
            else:
                raise Fault("format-not-encryptable", f"files of format {task.format} cannot be encrypted")
    except FileNotFoundError as e:
        raise Fault("file-missing", "a snapshot needs it, and storage does not have it") from e


def _parquet(stored: StoredBytes, task: FileTask) -> None:
    footer = open_footer(stored, task.key)
    if task.records is not None and footer.rows != task.records:
        raise Fault("record-count-differs", f"its footer says {footer.rows} rows, and its entry {task.records}")
    if task.every_byte:
        check_modules(stored, task.key, footer)
