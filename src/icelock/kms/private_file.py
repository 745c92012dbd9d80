"""Files that only their owner may see, written through to the disk, and the lock under which they are replaced.

POSIX only (``fcntl``). Advisory locks over NFS are as good as the NFS server's.

Not here: what is in them.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from icelock.errors import FormatError, KmsError, KmsErrorKind

_LOCK_POLL_SECONDS: Final = 0.02


def write_new(path: Path, data: bytes) -> None:
    """Write a new file with mode 0600, through to the disk.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be written.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        to_disk(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Replace the file at ``path`` by an atomic rename, through to the disk.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        write_new(temporary, data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def to_disk(descriptor: int) -> None:
    """Write an open file through to the disk.

    On macOS ``fsync`` leaves the bytes in the drive's own cache, from which a power cut takes them; ``F_FULLFSYNC`` does not (fsync(2) of
    macOS). Storage that does not know it is asked by ``fsync``.

    Raises:
        OSError: it cannot be written.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Write a directory through to the disk, so that a rename in it lasts."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        to_disk(descriptor)
    finally:
        os.close(descriptor)


def lock_path(path: Path) -> Path:
    """Return the lock file that goes with a file."""
    return path.with_name(f"{path.name}.lock")


def take_lock(lock: Path, *, wait_seconds: float) -> int:
    """Wait for the exclusive ``flock`` on a lock file, which is created if needed; closing the returned descriptor releases it.

    Raises:
        TimeoutError: another process held it the whole time.
        OSError: it cannot be opened.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + wait_seconds
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as e:
                if time.monotonic() >= deadline:
                    raise TimeoutError(
                        f"lock file {lock}: another process has held it for {wait_seconds:.0f} s; end it or wait, then try again"
                    ) from e
                time.sleep(_LOCK_POLL_SECONDS)
            else:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def read_secret_line(path: Path) -> str:
    """Return the one line of a token or PIN file.

    Raises:
        OSError: it cannot be read.
        FormatError: it holds something else; the message does not show it.
    """
    data = path.read_bytes().strip()
    if not data or not data.isascii() or b"\n" in data:
        raise FormatError(f"{path}: expected one line of ASCII text, got {len(data)} bytes that are not; write the file again")
    return data.decode()


def check_there(path: Path, what: str, remedy: str) -> None:
    """Refuse a setting that names a file that is not there, before anything needs it; the file is not opened.

    Raises:
        KmsError: there is none (``MISSING``).
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as e:
        raise file_error(e, what, path, remedy) from e
    except OSError:
        return  # who uses it says why


def file_error(error: OSError, what: str, path: Path, remedy: str = "check the path and its permissions") -> KmsError:
    """Return the KmsError for a failed file operation.

    Waiting does not change missing permissions (``DENIED``) or a missing file (``MISSING``); any other cause may pass (``UNAVAILABLE``).
    """
    kind = KmsErrorKind.UNAVAILABLE
    if isinstance(error, PermissionError):
        kind = KmsErrorKind.DENIED
    elif isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
        kind = KmsErrorKind.MISSING
    return KmsError(f"{what} {path}: {error.strerror or type(error).__name__}; {remedy}", kind=kind, key_id="")
