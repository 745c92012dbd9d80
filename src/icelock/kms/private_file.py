"""Files that only their owner may see, written through to the disk.

Not here: what is in them.
"""

from __future__ import annotations

import os
from pathlib import Path

from icelock.errors import FormatError, KmsError, KmsErrorKind


def write_new(path: Path, data: bytes) -> None:
    """Write a new file with mode 0600, through to the disk.

    Raises:
        FileExistsError: there is a file of this name.
        OSError: it cannot be written.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Write a directory through to the disk, so that a rename in it lasts."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_secret_line(path: Path) -> str:
    """Return the one line that a file of a token or PIN holds.

    Raises:
        OSError: it cannot be read.
        FormatError: it holds something else, which is not shown.
    """
    data = path.read_bytes().strip()
    if not data or not data.isascii() or b"\n" in data:
        msg = f"{path}: expected one line of ASCII text, got {len(data)} bytes that are not; write the file again"
        raise FormatError(msg)
    return data.decode()


def file_error(error: OSError, what: str, path: Path, remedy: str = "check the path and its rights") -> KmsError:
    """Return the KmsError for a failed file operation: ``DENIED`` for lacking rights, else ``UNAVAILABLE``."""
    kind = KmsErrorKind.DENIED if isinstance(error, PermissionError) else KmsErrorKind.UNAVAILABLE
    reason = error.strerror or type(error).__name__
    return KmsError(f"{what} {path}: {reason}; {remedy}", kind=kind, key_id="")
