"""``CheckByProcesses``: files are opened by this process and, once there is enough to read, by others beside it, one for each CPU.

AES-GCM holds Python's global lock, so threads verify no faster than one. The others are new interpreters that import what opens files and
no more: neither the user's script, which would run twice, nor catalog and KMS. They are given raw keys of the files that they open, some at
a time, over pairs of sockets that no other process has and no path leads to; nothing of it is in arguments, environment or files.

What one of them was reading when it ended is reported as not looked at; then, and if it does not begin, its lanes work in this process.
A storage may take as long as it likes: a process is alive as long as a thread of it answers that does nothing else. One that is stopped,
or that the system does not let run, does not, and is ended after some minutes.

Not here: what such a process does (``audit.worker``), how a file is checked (``audit.file_check``).
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

from icelock.audit.cpus import usable_cpus
from icelock.audit.file_check import Checked, FileTask, LaneHere, by_lanes, check_files
from icelock.audit.findings import CODES
from icelock.audit.worker import ALIVE, READY
from icelock.io.storage import ArrowFile, ArrowFileIO

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyiceberg.io import FileIO

_LOG: Final = logging.getLogger(__name__)
WORTH: Final = 1 << 30  # bytes: a process more takes 0.3 s before its first file, in which this one authenticates half as much
_OPENING: Final = 1 << 20  # of which opening a file takes as much CPU
_NEAR: Final = 2  # threads of a process for large local files: four took a fifth longer, since what they work on is in no cache
_BATCH: Final = 16 << 20
_BEGINS: Final = 60.0  # seconds
_ENDS: Final = 5.0
_ASKED: Final = 60.0  # seconds without a result, after which it is asked whether it is there
# Seconds, and how often: whoever was stopped together with it, as a container is, finds one of these over, and it has the others.
_ANSWERS: Final = 5.0
_TIMES: Final = 12
_REMEDY: Final = "audit again, and if it comes again with threads=1 (--threads 1), which needs no other process"
_KINDS: Final = frozenset({"local", "s3", "gcs", "abfs"})
# The other interpreter takes this one's path, as it could be started by any program.
_BEGIN: Final = """\
import pickle, sys
from multiprocessing.connection import Connection
control = Connection(int(sys.argv[1]))
sys.path[:], sys.dont_write_bytecode = pickle.loads(control.recv_bytes())
from icelock.audit.worker import work
work(control, [Connection(int(each)) for each in sys.argv[2:]])
"""


class CheckByProcesses:
    """``CheckFiles`` for one audit, by at most so many processes, this one with them. A context manager: on leaving it they have ended.

    ``worth`` are the bytes, about, from which it begins others.
    """

    def __init__(self, *, processes: int | None = None, worth: int = WORTH) -> None:
        self._most = usable_cpus() if processes is None else processes
        self._worth = worth
        self._seen = 0
        self.others: list[OtherProcess] = []

    def __call__(self, io: FileIO, tasks: Iterable[FileTask], *, threads: int) -> Iterator[Checked]:
        """Yield what was found in each file; see ``CheckFiles``. ``threads`` are those of all processes."""
        number = min(self._most, threads)
        if number == 1 or type(io) is not ArrowFileIO or not _python_can_begin():
            yield from check_files(io, tasks, threads=threads)
            return
        left, first = iter(tasks), list[FileTask]()
        while self._seen < self._worth and (task := next(left, None)) is not None:
            first.append(task)
            self._seen += _cost(task)
        if self._seen < self._worth:
            yield from check_files(io, first, threads=threads)
        else:
            each = -(-threads // number)
            each = min(each, _NEAR) if _large_and_near(io, first) else each
            yield from self._by_all(io, chain(first, left), each, number - 1)

    def _by_all(self, io: FileIO, tasks: Iterable[FileTask], threads: int, others: int) -> Iterator[Checked]:
        """Check files in this process and others, by so many threads of each."""
        while len(self.others) < others and (other := _other(threads)) is not None:
            self.others.append(other)
        with ExitStack() as open_ones:
            here = [open_ones.enter_context(LaneHere()) for _ in range(threads)]
            by_turns = zip(here, *(other.lanes for other in self.others), strict=False)
            yield from by_lanes(io, _batches(tasks), list(chain.from_iterable(by_turns)), let_go=self._end)

    def _end(self) -> None:
        """End the others, whatever they do."""
        others, self.others = self.others, []
        for other in others:
            other.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()


class OtherProcess:
    """Another process that opens files, in so many threads, and the lanes to it.

    Raises:
        OSError: there are not enough file descriptors left.
    """

    def __init__(self, threads: int) -> None:
        pairs = [Pipe() for _ in range(threads + 1)]
        numbers = [theirs.fileno() for _, theirs in pairs]
        self._control, *ours = (one for one, _ in pairs)
        self._process: subprocess.Popen[bytes] | None = None
        self._why = ""
        self._asking = Lock()
        self._told = False
        try:
            # In a group of its own: Ctrl-C is for the process that began it, which ends it then.
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-I", "-c", _BEGIN, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=numbers,
                process_group=0,
            )
            self._control.send_bytes(pickle.dumps(([one for one in sys.path if isinstance(one, str)], sys.dont_write_bytecode)))
        except OSError as e:
            self._why = str(e)
        finally:
            for _, theirs in pairs:
                theirs.close()
        self.lanes = [_LaneThere(self, one) for one in ours]

    def fate(self) -> str:
        """Return how it ended."""
        if self._process is None:
            return self._why
        try:
            code = self._process.wait(_ENDS)
        except subprocess.TimeoutExpired:
            return "does not answer"
        return self._why or _ended(code)

    def answers(self) -> bool:
        """Whether it is there, however long the files take that it has. Any thread may ask."""
        with self._asking:
            try:
                self._control.send_bytes(ALIVE)
                if any(self._control.poll(_ANSWERS) for _ in range(_TIMES)):
                    return self._control.recv_bytes() == ALIVE
            except (EOFError, OSError):
                return False
            self._why = self._why or f"did not answer for {_ANSWERS * _TIMES:.0f} s (it was stopped, or the machine has no time for it)"
            return False

    @property
    def pid(self) -> int:
        """Its process id, 0 if it did not begin."""
        return 0 if self._process is None else self._process.pid

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            self._process.kill()

    def give_up(self, why: str) -> None:
        """End it as one that did not begin, for this reason (empty: however it ended), which is told once."""
        with self._asking:
            self._why = self._why or why
            self.kill()
            if not self._told:
                _LOG.warning("a process of the audit did not begin (it %s): the others have its work", self.fate())
            self._told = True

    def end(self) -> None:
        """End it, and let go of what belongs to it; no lane is in use, or its answer is not wanted."""
        self._told = True  # that it did not begin, if it has no time to
        self.kill()
        self._control.close()
        self.fate()


class _LaneThere:
    """Has another process open files, and does it itself where there is none.

    ``works``: whether there is one, None until the first file.
    """

    def __init__(self, process: OtherProcess, pipe: Connection) -> None:
        self._process, self._pipe = process, pipe
        self.works: bool | None = None
        self._sent: dict[int, FileSystem] = {}

    def check(self, io: FileIO, tasks: Sequence[FileTask]) -> list[Checked]:
        """Return what was found in each file."""
        if self.works is None:
            self.works = self._has_begun()
        request = self._request(io, tasks) if self.works else None
        if request is None:
            with LaneHere() as here:
                return here.check(io, tasks)
        try:
            self._pipe.send_bytes(request)
            del request  # raw keys
            found = json.loads(self._answer())
            return [_understood(task, *one) for task, one in zip(tasks, found, strict=True)]
        except (EOFError, OSError, ValueError, TypeError, RecursionError):
            self.works = False
            return self._lost(tasks)

    def _has_begun(self) -> bool:
        why = ""
        try:
            if not self._pipe.poll(_BEGINS):
                why = f"said nothing for {_BEGINS:.0f} s"
            elif self._pipe.recv_bytes() == READY:
                return True
        except (EOFError, OSError):
            pass
        self._process.give_up(why)
        return False

    def _answer(self) -> bytes:
        while not self._pipe.poll(_ASKED):
            if not self._process.answers():
                raise TimeoutError
        return self._pipe.recv_bytes()

    def _request(self, io: FileIO, tasks: Sequence[FileTask]) -> bytes | None:
        """Return what the process is told of files, None if one of them is nothing for another process."""
        new: dict[int, FileSystem] = {}
        asked = []
        try:
            for task in tasks:
                filesystem, path = cast("ArrowFile", io.new_input(task.path)).place
                if filesystem.type_name not in _KINDS:
                    return None
                number = id(filesystem)
                if number not in self._sent:
                    new[number] = self._sent[number] = filesystem
                asked.append((number, path, task.plain()))
            return pickle.dumps((new, asked))
        except Exception:  # noqa: BLE001 - it is raised again, and said, where this process opens the file
            for number in new:
                del self._sent[number]
            return None

    def _lost(self, tasks: Sequence[FileTask]) -> list[Checked]:
        self._process.kill()  # if it is there, and what it said is not to be understood
        sentence = f"the process that opened it {self._process.fate()}; {_REMEDY}"
        return [Checked(task.path, None, sentence) for task in tasks]


def _other(threads: int) -> OtherProcess | None:
    """Return another process, None if this one has no file descriptors for it."""
    try:
        return OtherProcess(threads)
    except OSError as e:
        _LOG.warning("a process of the audit did not begin (%s): this one has its work", e)
        return None


def _ended(code: int) -> str:
    """Return how a process ended that has this code, as ``Popen.returncode``."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # one of the real-time signals, which have no names
        name = f"signal {-code}"
    return f"was ended by {name}" + (" (memory ran out, or somebody ended it)" if -code == signal.SIGKILL else "")


def _understood(task: FileTask, code: object, sentence: object) -> Checked:
    """Return what another process found.

    Raises:
        ValueError: it is nothing that a process finds.
    """
    if not isinstance(sentence, str) or not (code is None or (code in CODES and sentence)):
        raise ValueError("another process does not say what it found")
    return Checked(task.path, code, sentence)


def _python_can_begin() -> bool:
    """Whether this process's program is a Python interpreter, and not one that has Python inside, which would begin again as itself."""
    named = Path(sys.executable or "").name.startswith(("python", "pypy"))
    return os.name == "posix" and named and not getattr(sys, "frozen", False)


def _large_and_near(io: FileIO, tasks: Sequence[FileTask]) -> bool:
    """Whether many threads would hide no latency, as there is little for so many bytes."""
    if sum(map(_cost, tasks)) < len(tasks) * _BATCH or not tasks:
        return False
    try:
        filesystem, _ = cast("ArrowFile", io.new_input(tasks[0].path)).place
    except Exception:  # noqa: BLE001 - said where the file is opened
        return False
    return bool(filesystem.type_name == "local")


def _batches(tasks: Iterable[FileTask]) -> Iterator[list[FileTask]]:
    """Yield small files together, so that messages cost little."""
    batch, cost = list[FileTask](), 0
    for task in tasks:
        batch.append(task)
        cost += _cost(task)
        if cost >= _BATCH:
            yield batch
            batch, cost = [], 0
    if batch:
        yield batch


def _cost(task: FileTask) -> int:
    """Return about how many bytes could be authenticated in the time that a file takes."""
    return _OPENING + ((task.key.encrypted_length or 0) if task.every_byte else 0)
