"""What the first job of an operation leaves for the second: a sealed file that never leaves the driver's machine.

Like a ``spark.sealed.ticket``, but its path follows from the operation's id, so that the planning processes of another job find it. It
holds the new files with their keys and the rows that they replace, sealed under the operation's key. Folder 0700, file 0600.

Not here: its use (``spark.driver.commit``, ``spark.driver.plan_read``).
"""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from icelock.errors import CommitError
from icelock.format import aes_gcm
from icelock.format.encrypted_key import EncryptedKey
from icelock.spark.sealed.job import Job, Purpose, seal
from icelock.spark.sealed.messages import FilesWritten

_AAD: Final = b"icelock spark staged"
_NAME: Final = "staged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Uncommitted files; ``written.positions`` are the rows that they replace (empty: those of a filter). ``schema`` is Iceberg's JSON."""

    written: FilesWritten
    keks: tuple[EncryptedKey, ...]
    schema: str | None = None


def put(job: Job, staged: Staged) -> None:
    """Keep what a job staged for the next one."""
    path = _path(job)
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(seal(job.key, pickle.dumps(staged), _AAD))


def peek(job: Job) -> Staged | None:
    """Return what a job of this operation staged, if any."""
    try:
        sealed = _path(job).read_bytes()
    except FileNotFoundError:
        return None
    staged: Staged = pickle.loads(aes_gcm.decrypt(job.key, sealed, _AAD))  # noqa: S301 - authenticated
    return staged


def take(job: Job) -> Staged | None:
    """Return what was staged, and delete it: the caller becomes responsible for the files."""
    staged = peek(job)
    if staged is not None:
        path = _path(job)
        path.unlink()
        path.parent.rmdir()
    return staged


def check_staged(staged: Staged | None, job: Job) -> None:
    """Check that the second job of an operation has what the first left; a delete has one job.

    Else it is a CommitError: removing the old rows without the new ones would lose them.
    """
    if staged is None and job.purpose != Purpose.DELETE:
        raise CommitError(
            f"{_path(job)} is gone, so nothing is committed: the operation ended before, or the driver's temporary folder was emptied"
        )


def _path(job: Job) -> Path:
    return Path(tempfile.gettempdir()) / f"icelock-job-{job.operation_id}" / _NAME
