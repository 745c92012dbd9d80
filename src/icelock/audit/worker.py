"""What a process of ``audit.processes`` does: it opens the files that it is given, with their keys, and says what it found.

It has neither catalog nor KMS, and ends with the process that began it: as soon as that lets go of ``control``, whatever is being read.

Not here: how it begins, and what it is given (``audit.processes``).
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from pyarrow.fs import FileSystem, LocalFileSystem

from icelock.audit.file_check import FileTask, LaneHere, PlainTask
from icelock.io.regular import check_regular

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

# File systems that were not sent before, by number; the number of that of each file, its path there, and what to do with it.
Request = tuple[Mapping[int, FileSystem], Sequence[tuple[int, str, PlainTask]]]
READY = b"ready"
ALIVE = b"alive"


class _File:
    def __init__(self, location: str, place: tuple[FileSystem, str]) -> None:
        self._location, self.place = location, place

    def open(self) -> Any:
        """Open the file as ``io.storage`` does, whose import takes several times as long as this process without it."""
        storage, path = self.place
        try:
            if isinstance(storage, LocalFileSystem):
                check_regular(path, location=self._location)
            return storage.open_input_file(path)
        except Exception:  # noqa: BLE001 - raised again below, as in one process
            from icelock.io.storage import ArrowFile  # noqa: PLC0415 - see above

            return ArrowFile(self._location, path, storage).open()


class _Files:
    """What ``StoredBytes`` asks of a FileIO."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[FileSystem, str]] = {}

    def new_input(self, location: str) -> _File:
        """Return a handle to read a file of ``places``."""
        return _File(location, self.places[location])


def work(control: Connection, lanes: Sequence[Connection]) -> None:
    """Serve each lane in a thread of its own, and answer whoever asks for it in this one; does not return."""
    for lane in lanes:
        Thread(target=_serve, args=(lane,), daemon=True).start()
    try:
        while control.recv_bytes() == ALIVE:
            control.send_bytes(ALIVE)
    except (EOFError, OSError):
        os._exit(0)
    os._exit(1)


def _serve(lane: Connection) -> None:
    try:
        with LaneHere() as here:
            files, filesystems = _Files(), dict[int, FileSystem]()
            lane.send_bytes(READY)
            while True:
                new, asked = cast("Request", pickle.loads(lane.recv_bytes()))  # noqa: S301 - of the process that began this one
                filesystems.update(new)
                files.places = {plain[0]: (filesystems[number], path) for number, path, plain in asked}
                tasks = [FileTask.of_plain(plain) for _, _, plain in asked]
                del new, asked  # raw keys
                found = here.check(cast("FileIO", files), tasks)
                # No pickle on the way back: this process reads files that anybody may have made.
                lane.send_bytes(json.dumps([[one.code, one.sentence] for one in found]).encode())
    finally:
        os._exit(1)  # also where the reason is a fault: a lane that nobody serves would be waited for
