"""The driver's side of a write between planning and commit: a sealed file that never leaves the driver's machine.

Spark pickles one writer object for all executors, and for ``commit`` or ``abort`` in another Python process of the driver. So what the
commit needs (the catalog's properties, KMS settings included) can be neither in the writer nor in memory. It is in a file of mode 0600, in
a new folder of mode 0700 in the driver's temporary folder, encrypted with AES-GCM under a key for this one write:

    writer, so executors too:  the file's path and key       driver's disk:  the file

An executor on another machine does not have the file; who finds the file (a crash leaves it) does not have the key. On the driver's machine
Spark's user can have both, and has the configuration anyway.

The file also shows how far the write came: ``redeem`` deletes it before the commit begins. Spark calls ``abort`` after a failed commit too;
without the file, ``abort`` must keep data files, because the commit deleted them itself or its outcome is unknown.

A batch of a stream has no such file: what its commit needs, apart from the catalog's properties, travels with the tasks' messages, sealed
under the session's key (``sealed_write``).

Not here: what is committed (``spark.driver.commit``).
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from icelock.errors import CommitError
from icelock.format import aes_gcm

if TYPE_CHECKING:
    from icelock.format.encrypted_key import EncryptedKey
    from icelock.keys.entropy import Entropy
    from icelock.spark.sealed.job import Job
    from icelock.spark.task.write import WritePlan

_NAME: Final = "write"
_KEY_LENGTH: Final = 32
_AAD: Final = b"icelock spark write"
_STREAM_AAD: Final = b"icelock spark stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWrite:
    """What a commit needs.

    Args:
        job: what to do.
        properties: of the catalog as given to ``register``; None: PyIceberg's configuration has them.
        table_uuid: of the table that the files were written for; None for a new one.
        keks: KEK entries that were minted at planning (wrapped), so that the commit does not wrap again.
        staged_table: metadata of a new table.
        schema: of the rows, as Spark's JSON, for a table to replace.
    """

    job: Job
    properties: Mapping[str, str] | None
    table_uuid: str | None
    keks: tuple[EncryptedKey, ...] = ()
    staged_table: bytes | None = None
    schema: str | None = None

    def __repr__(self) -> str:
        return f"PlannedWrite({self.job.action} {self.job.table})"


class Ticket:
    """The path of a planned write's file, and its key."""

    def __init__(self, path: str, key: bytes) -> None:
        self._path = path
        self._key = key

    @classmethod
    def issue(cls, write: PlannedWrite, entropy: Entropy) -> Ticket:
        """Put a planned write into a file on this machine."""
        key = entropy.random_bytes(_KEY_LENGTH)
        path = Path(tempfile.mkdtemp(prefix="icelock-write-")) / _NAME  # made with mode 0700
        sealed = aes_gcm.encrypt(key, entropy.random_bytes(aes_gcm.NONCE_LENGTH), pickle.dumps(write), _AAD)
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(sealed)
        return cls(str(path), key)

    def redeem(self) -> PlannedWrite:
        """Return the planned write and delete the file: from here on the commit is responsible for the data files.

        Raises:
            CommitError: no such file: this write was committed or aborted before, or this is another machine.
        """
        try:
            sealed = Path(self._path).read_bytes()
        except OSError as e:
            raise CommitError(
                f"{self._path} is gone, so nothing is committed: the write ended before, or the driver's temporary folder was emptied"
            ) from e
        self.discard()
        write: PlannedWrite = pickle.loads(aes_gcm.decrypt(self._key, sealed, _AAD))  # noqa: S301 - authenticated
        return write

    def discard(self) -> bool:
        """Delete the file; return whether it existed."""
        path = Path(self._path)
        try:
            path.unlink()
            path.parent.rmdir()
        except FileNotFoundError:
            return False
        return True

    def __repr__(self) -> str:
        return f"Ticket({self._path})"


def sealed_write(session_key: bytes, plan: WritePlan, write: PlannedWrite, entropy: Entropy) -> bytes:
    """Return a planned write, without the catalog's properties, sealed for processes of the driver."""
    plain = pickle.dumps((plan, replace(write, properties=None)))
    return aes_gcm.encrypt(session_key, entropy.random_bytes(aes_gcm.NONCE_LENGTH), plain, _STREAM_AAD)


def opened_write(session_key: bytes, sealed: bytes) -> tuple[WritePlan, PlannedWrite]:
    """Return what ``sealed_write`` was given; what another session sealed, or was changed, is an IntegrityError."""
    opened: tuple[WritePlan, PlannedWrite] = pickle.loads(aes_gcm.decrypt(session_key, sealed, _STREAM_AAD))  # noqa: S301 - authenticated
    return opened
