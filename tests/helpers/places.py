"""Where the repository is, and what a process that a test starts finds it by."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it
_ENOUGH: Final = 6 << 30


def python_path(*more: str | Path) -> str:
    """Return a PYTHONPATH with this package, icelock's sources, and the folders in ``more``."""
    return os.pathsep.join(map(str, (ROOT, ROOT / "src", *more)))


def use_memory() -> None:
    """Let temporary folders of this process, and of those that it starts, be in memory, if this machine has 6 GB of it to spare.

    SQLite and PostgreSQL wait for the disk at each commit. Only where programs may be started too: servers unpack libraries there.
    ``TMPDIR`` in the environment goes before it.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    there = os.statvfs(MEMORY)
    free = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    if there.f_flag & os.ST_NOEXEC or free is None or min(there.f_bavail * there.f_frsize, int(free[1]) << 10) < _ENOUGH:
        return
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
