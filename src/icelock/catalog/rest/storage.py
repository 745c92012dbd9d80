"""Storage access with credentials that a REST catalog's server vends for some minutes, renewed before they expire.

An open file keeps the credentials that it was opened with. Spark's executors get those that are valid when a job is planned.

Not here: asking for credentials (``catalog.rest.catalog``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.typedef import Properties

from icelock.io.listing import StoredFile, delete_files, list_files

logger = logging.getLogger(__name__)

# Renewed when so much is left; source: Java's VendedCredentialsProvider (S3), five minutes.
_EARLY_MS: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """Storage access, and when its credentials expire, in ms since 1970."""

    io: FileIO
    ends_ms: int | None


class VendedFileIO(FileIO):
    """A FileIO that is replaced when its credentials are about to expire. Safe to share between threads."""

    def __init__(self, first: Lent, *, lend: Callable[[], Lent], clock: Callable[[], int]) -> None:
        self._lent = first
        self._lend = lend
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def properties(self) -> Properties:  # type: ignore[override]  # PyIceberg's is an attribute
        """The settings of the present one."""
        return self._current().properties

    def new_input(self, location: str) -> InputFile:
        """Return a handle on a file."""
        return self._current().new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a handle on a file to write."""
        return self._current().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        self._current().delete(location)

    def list_prefix(self, location: str) -> Iterable[StoredFile]:
        """Yield every file below a folder."""
        return list_files(self._current(), location)

    def delete_files(self, locations: Iterable[str]) -> Iterable[str]:
        """Delete files; return those that could not be deleted."""
        return delete_files(self._current(), locations)

    def _current(self) -> FileIO:
        with self._lock:
            ends = self._lent.ends_ms
            if ends is not None and self._clock() >= ends - _EARLY_MS:
                try:
                    self._lent = self._lend()
                except Exception as e:
                    if self._clock() >= ends:
                        raise
                    logger.debug("storage credentials that expire at %d were not renewed: %s", ends, e)
            return self._lent.io
