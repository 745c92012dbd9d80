"""``StoredFile``: one data or delete file of a plan, with what is needed to open it; and the rows of an open file of any format.

Both kinds of files are refused for the same reasons: no key metadata in an encrypted table, damaged key metadata, an unsupported
format.

Not here: opening it (``arrow.read.open_file``), projection and filters (``arrow.read.task``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression

from icelock.arrow.read.file_schema import FileField
from icelock.errors import FormatError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.plain_input import plain_refused
from icelock.plan.task import DeleteFile, ScanTask

FORMATS: Final = ("PARQUET", "AVRO")
"""Formats whose rows are read."""
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 64 << 20


def batch_rows(rows: int, size: int) -> int:
    """Return the rows of a batch when ``rows`` rows take ``size`` bytes: fewer where a batch would be larger than ``BATCH_BYTES``."""
    width = size // max(1, rows)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, width)))


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
        """Return the file of a task, or one of its delete files; ``formats`` can be read (by default, those with rows).

        Raises:
            PolicyError: a plain file where none may be read, or an unsupported format.
            FormatError: key metadata that is damaged.
        """
        known = tuple(formats) or FORMATS
        file_format = planned.file_format.upper()
        if file_format not in known:
            raise PolicyError(f"{planned.path} is in {planned.file_format}, and only {', '.join(known)} can be read here; rewrite it")
        return cls(
            path=planned.path,
            file_format=file_format,
            key_metadata=_key_metadata(planned, allow_plaintext=allow_plaintext),
            record_count=planned.record_count,
        )


def _key_metadata(planned: ScanTask | DeleteFile, *, allow_plaintext: bool) -> KeyMetadata | None:
    if planned.key_metadata is not None:
        try:
            return KeyMetadata.decode(planned.key_metadata.reveal())
        except FormatError as e:
            raise FormatError(f"{planned.path}: the manifest entry's key metadata is damaged: {e}") from e
    if not allow_plaintext:
        raise plain_refused(f"{planned.path} has no key metadata")
    return None
