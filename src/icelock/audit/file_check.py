"""``check_file``: one file, opened with its key; ``check_files``: many of them, in threads.

Both are functions of their arguments alone, so that a task of Spark can call them too (``spark.task.check_files``). Not here: which files
there are (``audit.walk``), other processes (``audit.processes``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from icelock.audit.fault import Fault
from icelock.audit.parquet import check_modules, open_footer
from icelock.audit.read_ahead import Reader
from icelock.audit.storage import StoredBytes
from icelock.audit.streams import Ags1Blocks
from icelock.format.key_metadata import KeyMetadata

if TYPE_CHECKING:  # other processes open files, and its import takes longer than all others of theirs
    from pyiceberg.io import FileIO

_STREAMS: Final = frozenset({"AVRO", "PUFFIN"})
_WAITING: Final = 4
PlainTask = tuple[str, str, int | None, bytes, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """A file to open: its format, rows (None if they are not the file's own number, as with deletion vectors), key, and how deep."""

    path: str
    format: str
    records: int | None
    key: KeyMetadata
    every_byte: bool

    def plain(self) -> PlainTask:
        """Return plain values for another process, with the raw key: they are sealed, or go where nobody else reads."""
        return self.path, self.format, self.records, self.key.encode(), self.every_byte

    @classmethod
    def of_plain(cls, plain: PlainTask) -> FileTask:
        """Return the task of such values."""
        path, kind, records, key, every_byte = plain
        return cls(path=path, format=kind, records=records, key=KeyMetadata.decode(key), every_byte=every_byte)


class Checked(NamedTuple):
    """What was found: ``code`` of a finding, None if the file could not be looked at; ``sentence`` is empty for a sound file."""

    path: str
    code: str | None = None
    sentence: str = ""


class CheckFiles(Protocol):
    """What opens files: threads of this process (``check_files``), others too (``audit.processes``), or Spark's tasks."""

    def __call__(self, io: FileIO, tasks: Iterable[FileTask], *, threads: int) -> Iterator[Checked]:
        """Yield what was found in each file, in any order; of ``tasks`` only some are taken before the first is yielded."""
        ...


class Lane(Protocol):
    """What opens files one after another, for one thread at a time."""

    def check(self, io: FileIO, tasks: Sequence[FileTask]) -> list[Checked]:
        """Return what was found in each file, in their order."""
        ...


class LaneHere:
    """Opens files in this process. A context manager."""

    def __init__(self) -> None:
        self._reader = Reader()

    def check(self, io: FileIO, tasks: Sequence[FileTask]) -> list[Checked]:
        """Return what was found in each file."""
        return [_checked(io, task, self._reader) for task in tasks]

    def __enter__(self) -> Self:
        self._reader.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.__exit__(kind, error, trace)


def check_files(io: FileIO, tasks: Iterable[FileTask], *, threads: int) -> Iterator[Checked]:
    """Yield what was found in each file, in any order. Few files wait at a time, however many there are."""
    with ExitStack() as open_ones:
        lanes = [open_ones.enter_context(LaneHere()) for _ in range(threads)]
        yield from by_lanes(io, ([task] for task in tasks), lanes)


def by_lanes(
    io: FileIO, batches: Iterable[Sequence[FileTask]], lanes: Sequence[Lane], *, let_go: Callable[[], None] = lambda: None
) -> Iterator[Checked]:
    """Yield what was found in each file of batches, each of which goes to the next lane that is free.

    ``let_go`` is called when nobody wants the rest any more, before lanes are waited for.
    """
    free: SimpleQueue[Lane] = SimpleQueue()
    for lane in lanes:
        free.put(lane)
    running: set[Future[list[Checked]]] = set()
    pool = ThreadPoolExecutor(len(lanes), thread_name_prefix="icelock-audit")
    try:
        for batch in batches:
            running.add(pool.submit(_by_next, free, io, batch))
            if len(running) >= len(lanes) * _WAITING:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    yield from one.result()
        for one in as_completed(running):
            yield from one.result()
    except BaseException:
        let_go()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _by_next(free: SimpleQueue[Lane], io: FileIO, tasks: Sequence[FileTask]) -> list[Checked]:
    lane = free.get()
    try:
        return lane.check(io, tasks)
    finally:
        free.put(lane)


def _checked(io: FileIO, task: FileTask, reader: Reader) -> Checked:
    try:
        check_file(io, task, reader)
    except Fault as e:
        return Checked(task.path, e.code, e.sentence)
    except Exception as e:  # noqa: BLE001 - whatever it is, the other files are looked at, and it is said
        return Checked(task.path, None, f"{type(e).__name__}: {e}")
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
