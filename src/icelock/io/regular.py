"""Only regular local files are opened for reading: a named pipe waits for a writer forever, a device has no end."""

from __future__ import annotations

import os
import stat
from typing import Final

from icelock.errors import FormatError

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check_regular(path: str, *, location: str) -> None:
    """Check that a local path is a regular file. A missing one is left for the opening to report.

    Raises:
        FormatError: it is a directory, named pipe, socket or device.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a path of bytes that storage gave
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in _KINDS if test(mode)), "not a regular file")
        raise FormatError(f"{location} is {kind}, expected a file: it was not opened; restore the file from a backup")
