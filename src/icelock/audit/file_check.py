"""``check_file``: one file, opened with its key; ``check_files``: many of them, in threads.

Both are functions of their arguments alone, so that a task of Spark can call them too (``spark.task.check_files``). Not here: which files
there are (``audit.walk``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol

from pyiceberg.io import FileIO

from icelock.audit.fault import Fault
from icelock.audit.parquet import check_modules, open_footer
from icelock.audit.read_ahead import Reader
from icelock.audit.storage import StoredBytes
from icelock.audit.streams import Ags1Blocks
from icelock.format.key_metadata import KeyMetadata

_STREAMS: Final = frozenset({"AVRO", "PUFFIN"})
_WAITING: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """A file to open: its format, rows (None if they are not the file's own number, as with deletion vectors), key, and how deep."""

    path: str
    format: str
    records: int | None
    key: KeyMetadata
    every_byte: bool


class Checked(NamedTuple):
    """What was found: ``code`` of a finding, None if the file could not be looked at; ``sentence`` is empty for a sound file."""

    path: str
    code: str | None = None
    sentence: str = ""


class CheckFiles(Protocol):
    """What opens files: in threads of this process (``check_files``), or in Spark's tasks (``spark.driver.audit_here``)."""

    def __call__(self, io: FileIO, tasks: Iterable[FileTask], *, threads: int) -> Iterator[Checked]:
        """Yield what was found in each file, in any order; of ``tasks`` only some are taken before the first is yielded."""
        ...


def check_files(io: FileIO, tasks: Iterable[FileTask], *, threads: int) -> Iterator[Checked]:
    """Yield what was found in each file, in any order. Few files wait at a time, however many there are."""
    running: set[Future[Checked]] = set()
    with ExitStack() as open_ones:
        readers: SimpleQueue[Reader] = SimpleQueue()
        for _ in range(threads):
            readers.put(open_ones.enter_context(Reader()))
        pool = ThreadPoolExecutor(threads, thread_name_prefix="icelock-audit")
        open_ones.callback(pool.shutdown, cancel_futures=True)
        for task in tasks:
            running.add(pool.submit(_checked, io, task, readers))
            if len(running) >= threads * _WAITING:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        yield from (one.result() for one in running)


def _checked(io: FileIO, task: FileTask, readers: SimpleQueue[Reader]) -> Checked:
    reader = readers.get()
    try:
        check_file(io, task, reader)
    except Fault as e:
        return Checked(task.path, e.code, e.sentence)
    except Exception as e:  # noqa: BLE001 - whatever it is, the other files are looked at, and it is said
        return Checked(task.path, None, f"{type(e).__name__}: {e}")
    finally:
        readers.put(reader)
    return Checked(task.path)


def check_file(io: FileIO, task: FileTask, reader: Reader) -> None:
    """Open a data or delete file.

    Raises:
        Fault: what is wrong with it.
        OSError: the storage failed.
    """
    try:
        with StoredBytes(io, task.path) as stored:
            if task.format == "PARQUET":
                _parquet(stored, task, reader)
            elif task.format in _STREAMS:
                blocks = Ags1Blocks(stored, task.key)
                if task.every_byte:
                    blocks.check_all(reader)
                else:
                    blocks.check_ends()
            else:
                raise Fault("format-not-encryptable", f"files of format {task.format} cannot be encrypted")
    except FileNotFoundError as e:
        raise Fault("file-missing", "a snapshot needs it, and storage does not have it") from e


def _parquet(stored: StoredBytes, task: FileTask, reader: Reader) -> None:
    footer = open_footer(stored, task.key)
    if task.records is not None and footer.rows != task.records:
        raise Fault("record-count-differs", f"its footer says {footer.rows} rows, and its entry {task.records}")
    if task.every_byte:
        check_modules(stored, task.key, footer, reader)
