"""``StoredFile``: one data or delete file of a plan, with what opens it; and the rows of an open file, whatever its format.

Both kinds of files go through here, so both are refused for the same reasons: no key metadata in an encrypted table, damaged key
metadata, a format that is not read.

Not here: the formats (``arrow.read.parquet_rows``, ``arrow.read.avro_rows``), projection and filters (``arrow.read.task``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol

from icelock.arrow.read.avro_rows import open_avro
from icelock.arrow.read.parquet_rows import open_parquet
from icelock.errors import FormatError, PolicyError
from icelock.format.key_metadata import KeyMetadata

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table.name_mapping import NameMapping

    from icelock.arrow.read.file_schema import FileField
    from icelock.plan.task import DeleteFile, ScanTask


class Rows(Protocol):
    """An open file: its ``fields``, and its rows in file order."""

    @property
    def fields(self) -> FileField:
        """The file's fields as children of a root."""

    def batches(self, leaves: Sequence[int], matching: BooleanExpression) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches that hold at least the leaf columns asked for, each with the position of its first row.

        Rows that cannot match a bound filter may be left out.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file to open; ``key_metadata`` None means a plain one, ``record_count`` is what the manifest says."""

    path: str
    file_format: str
    key_metadata: KeyMetadata | None
    record_count: int

    @classmethod
    def of(cls, planned: ScanTask | DeleteFile, *, allow_plaintext: bool, formats: Sequence[str] = ()) -> StoredFile:
        """Return the file of a task, or a delete file of one; ``formats`` are those that can be read (none given: those of rows).

        Raises:
            PolicyError: a plain file where none may be read, or a format that is not read.
            FormatError: key metadata that is damaged.
        """
        known = tuple(formats) or tuple(_FORMATS)
        file_format = planned.file_format.upper()
        if file_format not in known:
            msg = f"{planned.path} is in {planned.file_format}, which is not read here: {', '.join(known)} are; rewrite it"
            raise PolicyError(msg)
        return cls(
            path=planned.path,
            file_format=file_format,
            key_metadata=_key_metadata(planned, allow_plaintext=allow_plaintext),
            record_count=planned.record_count,
        )

    def open(self, io: FileIO, *, schema: Schema, name_mapping: NameMapping | None) -> AbstractContextManager[Rows]:
        """Return the file's rows; ``schema`` is the table's, ``io`` the storage's own FileIO.

        Raises:
            IntegrityError: the file fails authentication, or is not as long as its key metadata says.
            FormatError: the bytes are not of the file's format, or have no field ids and no names that stand for them.
            KeyUnavailableError: the file is encrypted, and there is no key metadata.
        """
        return _FORMATS[self.file_format](self, io, schema, name_mapping)


def _key_metadata(planned: ScanTask | DeleteFile, *, allow_plaintext: bool) -> KeyMetadata | None:
    if planned.key_metadata is not None:
        try:
            return KeyMetadata.decode(planned.key_metadata.reveal())
        except FormatError as e:
            msg = f"{planned.path}: the manifest entry's key metadata is damaged: {e}"
            raise FormatError(msg) from e
    if not allow_plaintext:
        msg = (
            f"{planned.path} has no key metadata, but its table is encrypted: refused to read a plain file; "
            "set the catalog property icelock.plaintext-files=allow-unkeyed if the table was converted from a plain one"
        )
        raise PolicyError(msg)
    return None


_Open = Callable[[StoredFile, "FileIO", "Schema", "NameMapping | None"], AbstractContextManager[Rows]]
_FORMATS: Final[Mapping[str, _Open]] = {"PARQUET": open_parquet, "AVRO": open_avro}
