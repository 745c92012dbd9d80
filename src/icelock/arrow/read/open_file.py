"""Opening a stored file for its rows, by its format.

Not here: the formats (``parquet_rows``, ``avro_rows``), whether a file may be read (``stored_file``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from icelock.arrow.read.avro_rows import open_avro
from icelock.arrow.read.parquet_rows import open_parquet
from icelock.arrow.read.stored_file import FORMATS, Rows, StoredFile

_Open = Callable[["StoredFile", "FileIO", "Schema", "NameMapping | None"], AbstractContextManager["Rows"]]
_OPEN: Final[Mapping[str, _Open]] = dict(zip(FORMATS, (open_parquet, open_avro), strict=True))


def open_file(file: StoredFile, io: FileIO, *, schema: Schema, name_mapping: NameMapping | None) -> AbstractContextManager[Rows]:
    """Return a file's rows; ``schema`` is the table's, ``io`` the storage's own FileIO.

    Raises:
        IntegrityError: the file fails authentication, or is not as long as its key metadata says.
        FormatError: the bytes are not of the file's format, or there are neither field ids nor mapped names.
        KeyUnavailableError: the file is encrypted, but has no key metadata.
    """
    return _OPEN[file.file_format](file, io, schema, name_mapping)
