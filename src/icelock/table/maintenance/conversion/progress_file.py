"""The file in which a long operation keeps what it has finished, on a disk of who runs it: text, a line for each record.

    {"icelock": "progress", "version": 1, "about": {...}, "key": {...}}     what the file is about, and the key of its records, wrapped
    base64(nonce (12) | ciphertext | tag (16))                             a record
    ...

The key is random, new with each call, and wrapped by the table's master key, as a KEK is (``keys.kek``). A record's AAD is the SHA-256 of
the first line and the record's number (8 bytes, the highest first): no record is good in another file, for another table, or at another
place. What a call finds is written to a new file under the new key, which takes the old one's place at once; records come behind it as they
are finished, and reach the disk in batches.

A last line without its end was being written when the process was killed: it is left out. Everything else that does not authenticate is an
error. Lines that are missing at the end cannot be told from records that were never written.

One process at a time has the file, by a lock on ``<file>.lock``. Both have mode 0600, and go with ``remove``. POSIX only.

Not here: what is in the records (``table.maintenance.conversion.kept_copies``).
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

from icelock.errors import FormatError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.format import aes_gcm
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.kek import mint_kek, unwrap_kek
from icelock.kms.ask import restated
from icelock.kms.private_file import lock_path, replace_file, take_lock, to_disk
from icelock.secret import SecretBytes
from icelock.table.encryption import TableEncryption

_KIND: Final = {"icelock": "progress", "version": 1}
_KEY_LENGTH: Final = 32
_BATCH: Final = 64  # records that reach the disk together
_BATCH_SECONDS: Final = 5.0
_ANEW: Final = "remove it, and what was written for it is written again (icelock leftovers then lists the first copies)"
_logger = logging.getLogger(__name__)


class ProgressFile:
    """The file, while a process has it; ``found`` are the records that it had before, the oldest first."""

    def __init__(self, path: Path, first_line: bytes, key: SecretBytes, encryption: TableEncryption, found: list[bytes]) -> None:
        self.path = path
        self.found = found
        self._cipher = _Records(first_line, key)
        self._entropy = encryption.entropy
        self._number = 0
        self._unsynced = 0
        self._synced_at = time.monotonic()
        replace_file(path, b"".join([first_line, *(self._next_line(record) for record in found)]))
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    def add(self, record: bytes) -> None:
        """Keep a record.

        Raises:
            PolicyError: the file cannot be written.
        """
        line = self._next_line(record)
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
            self._unsynced += 1
            if self._unsynced >= _BATCH or time.monotonic() - self._synced_at >= _BATCH_SECONDS:
                to_disk(self._descriptor)
                self._unsynced, self._synced_at = 0, time.monotonic()
        except OSError as e:
            raise _unusable(self.path, e) from e

    def _next_line(self, record: bytes) -> bytes:
        line = self._cipher.sealed(self._number, record, self._entropy.random_bytes(aes_gcm.NONCE_LENGTH))
        self._number += 1
        return line

    def close(self) -> None:
        """Leave the file to a later call; one without a record is removed."""
        if not self._number:
            self.path.unlink(missing_ok=True)
        else:
            with suppress(OSError):  # what came before this is an error already, and says more
                to_disk(self._descriptor)
        os.close(self._descriptor)

    def remove(self) -> None:
        """Remove the file: all is done. If that fails, it is told: the work that the file was for stands."""
        try:
            self.path.unlink()
        except OSError as e:
            _logger.warning("progress file %s is not needed any more, and could not be removed: %s", self.path, e.strerror)
        os.close(self._descriptor)


@contextmanager
def progress_file(path: str | os.PathLike[str], about: Mapping[str, str], encryption: TableEncryption) -> Iterator[ProgressFile]:
    """Have the file for a ``with`` block: it is made, or gone on with. It stays if the block fails, and is removed otherwise.

    Args:
        path: where it is, or will be.
        about: what its records are good for: the master key as ``key-id``, the table's ``location``, and what else must be the same.
        encryption: has the KMS.

    Raises:
        PolicyError: the file is about something else, is used by another process, lies at the table, or cannot be read or written.
        FormatError: it is no progress file.
        IntegrityError: it was damaged.
        KeyUnavailableError: the KMS does not give its key, or none.
    """
    place = _place(path, about["location"])
    with _locked(place):
        found = _found(place, about, encryption)
        entry, key = mint_kek(
            encryption.entropy, _KEY_LENGTH, kms=encryption.kms(), master_key_id=about["key-id"], now_ms=encryption.clock()
        )
        first = json.dumps({**_KIND, "about": about, "key": entry.to_json()}, sort_keys=True).encode() + b"\n"
        try:
            file = ProgressFile(place, first, key, encryption, found)
        except OSError as e:
            raise _unusable(place, e) from e
        try:
            yield file
        except BaseException:
            file.close()
            raise
        file.remove()


class _Records:
    """Seals and opens the records behind a first line."""

    def __init__(self, first_line: bytes, key: SecretBytes) -> None:
        self._digest = sha256(first_line).digest()
        self._key = key

    def sealed(self, number: int, record: bytes, nonce: bytes) -> bytes:
        """Return the line of a record."""
        return base64.b64encode(aes_gcm.encrypt(self._key.reveal(), nonce, record, self._aad(number))) + b"\n"

    def opened(self, number: int, line: bytes) -> bytes:
        """Return the record of a line; one that was changed is an IntegrityError or a ValueError."""
        data = base64.b64decode(line, validate=True)
        if base64.b64encode(data) != line:
            raise FormatError("base64 in another form")
        return aes_gcm.decrypt(self._key.reveal(), data, self._aad(number))

    def _aad(self, number: int) -> bytes:
        return self._digest + number.to_bytes(8, "big")


def _found(path: Path, about: Mapping[str, str], encryption: TableEncryption) -> list[bytes]:
    """Return the records of a file; none if there is no file, or an empty one."""
    if path.exists() and not path.is_file():
        raise PolicyError(f"progress file {path} is a folder, pipe or device, not a file: name another place")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as e:
        raise _unusable(path, e) from e
    if not data:
        return []
    first, *lines = data.split(b"\n")
    lines = lines[:-1]  # the last one has no end, or is what comes after the last end: nothing
    key = _key_of(path, first, about)
    try:
        records = _Records(first + b"\n", unwrap_kek(key, kms=encryption.kms()))
    except KeyUnavailableError as e:
        raise restated(e, f"progress file {path}: {e}") from e
    found = []
    for number, line in enumerate(lines):
        try:
            found.append(records.opened(number, line))
        except (IntegrityError, ValueError) as e:
            raise IntegrityError(
                f"progress file {path}: record {number + 1} of {len(lines)} does not authenticate: the file was changed or damaged; {_ANEW}"
            ) from e
    return found


def _key_of(path: Path, first: bytes, about: Mapping[str, str]) -> EncryptedKey:
    """Return the wrapped key of a first line, if the file is about the same."""
    try:
        header = _header(first)
        version = header["version"]
        key = EncryptedKey.from_json(header["key"]) if version == _KIND["version"] else None
    except (ValueError, KeyError) as e:
        raise FormatError(f"{path} is no progress file of version {_KIND['version']} ({e}): name another place, or {_ANEW}") from e
    if key is None:
        raise FormatError(
            f"progress file {path} is of version {version!r}, and this icelock has version {_KIND['version']}: go on with the icelock that "
            f"wrote it, name another place, or {_ANEW}"
        )
    known: dict[str, Any] = header["about"]
    other = [
        f"{name} {known.get(name)!r} instead of {about.get(name)!r}"
        for name in sorted({*known, *about})
        if known.get(name) != about.get(name)
    ]
    if other or key.encrypted_by_id != about["key-id"]:
        raise PolicyError(
            f"progress file {path} is of something else: {', '.join(other) or 'its key has another master key'}. Name another place, or, "
            f"if it is not needed any more, {_ANEW}"
        )
    return key


def _header(first: bytes) -> dict[str, Any]:
    """Return a first line's values, the version of which may be another one; a ValueError or KeyError if it is no progress file's."""
    header: Any = json.loads(first)
    if not isinstance(header, dict) or header.get("icelock") != _KIND["icelock"] or not isinstance(header["about"], dict):
        raise ValueError("its first line says something else")
    return header


def _place(path: str | os.PathLike[str], location: str) -> Path:
    """Return the path, which must not be at the table: who writes to its storage must not be able to put an older file back."""
    text = os.fspath(path)
    if "://" in text:
        raise PolicyError(f"progress file {text}: it has to be on a disk of this machine, where writers of the table have no access")
    place, table = Path(text).absolute(), urlparse(location)
    if table.scheme in {"", "file"} and place.resolve().is_relative_to(Path(table.path).resolve()):
        raise PolicyError(f"progress file {place} lies at the table, where its writers have access: name another place")
    return place


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Have the lock of a file, which is removed afterwards, while it is still held."""
    lock = lock_path(path)
    descriptor = _lock(path, lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path, lock: Path) -> int:
    while True:
        try:
            descriptor = take_lock(lock, wait_seconds=0)
        except TimeoutError as e:
            raise PolicyError(f"progress file {path} is used by another process, which has {lock}: wait, or name another file") from e
        except OSError as e:
            raise _unusable(lock, e) from e
        with suppress(FileNotFoundError):
            if lock.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # another process has removed it since


def _unusable(path: Path, error: OSError) -> PolicyError:
    return PolicyError(f"progress file {path} cannot be used: {error.strerror or error}; check the path, its permissions and the disk")
