"""One encrypted Parquet file while it is written.

Form: ``io.parquet``. One file key, one properties object, one file; data pages of version 1; field ids, no Arrow schema in the
file; decimals as integers where they fit. Each table given becomes one row group.

Invariant: after `close` the file's bytes are on storage, their number is what the sink counted, and they begin with ``PARE``. After an
error or `abort` the sink is closed and nothing more is written; the caller deletes the file (``arrow.write.data_file``).

Not here: row group sizes (``arrow.write.partition_writer``), metrics (``arrow.write.metrics``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from icelock.arrow.write.options import MAX_PARTS, PAGE_BYTES, PAGE_ROWS, ROW_GROUP_BYTES, WriteOptions
from icelock.errors import IntegrityError, PolicyError
from icelock.format.key_metadata import FileKey
from icelock.format.parquet_crypto import ENCRYPTED_MAGIC
from icelock.io.parquet import encryption_properties
from icelock.io.stored import ClosedFile, check_stored

_OUT_OF_NUMBERS: Final = ("Encrypted Parquet files can't have more than", "row groups in an encrypted file")


class EncryptedParquetFile:
    """Writes row groups to a new file under a new file key."""

    def __init__(  # noqa: PLR0913 - what a file is made of
        self, io: FileIO, location: str, schema: pa.Schema, options: WriteOptions, file_key: FileKey, dictionaries: Sequence[str]
    ) -> None:
        """Create the file; ``dictionaries`` are the paths of the columns with a dictionary.

        Raises:
            FileExistsError: the location has a file.
        """
        self.location = location
        self.parts = 0
        self._io = io
        self._file_key = file_key
        self._sink: Any = io.new_output(location).create()
        try:
            properties = encryption_properties(file_key)
            self._writer = pq.ParquetWriter(
                self._sink, schema, encryption_properties=properties, use_dictionary=list(dictionaries) or False, **_arguments(options)
            )
        except BaseException:
            self._close_sink()
            raise

    @property
    def stored_bytes(self) -> int:
        """Bytes given to storage so far."""
        return int(self._sink.tell())

    def write(self, table: pa.Table) -> None:
        """Write a table of the file's schema as one row group.

        Raises:
            PolicyError: Parquet cannot number the pages or row groups of an encrypted file; names the table property to change.
        """
        try:
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as e:
            if not any(text in str(e) for text in _OUT_OF_NUMBERS):
                raise
            raise PolicyError(
                f"{self.location} would have more than {MAX_PARTS} pages in a column chunk, or row groups, which an encrypted Parquet file "
                f"cannot number: raise {PAGE_ROWS} and {PAGE_BYTES}, or lower {ROW_GROUP_BYTES} (pages), or raise it (row groups)"
            ) from e
        self.parts += 1

    def close(self) -> ClosedFile:
        """Finish the file and check what is stored.

        Raises:
            IntegrityError: storage does not have the bytes that were written, they are not encrypted, or the footer lacks row groups.
        """
        self._writer.close()
        size = self.stored_bytes
        self._sink.close()
        check_stored(self._io, self.location, size=size, magic=ENCRYPTED_MAGIC)
        footer = self._writer.writer.metadata
        if footer.num_row_groups != self.parts:
            raise IntegrityError(
                f"{self.location} has {footer.num_row_groups} row groups in its footer, {self.parts} were written: do not commit it"
            )
        return ClosedFile(size=size, rows=footer.num_rows, footer=footer, key_metadata=self._file_key.closed(size))

    def abort(self) -> None:
        """Stop writing; errors are not raised, since the file is to be deleted."""
        self._writer.is_open = False  # otherwise its destructor writes a footer into the closed sink
        self._close_sink()

    def _close_sink(self) -> None:
        with contextlib.suppress(Exception):
            self._sink.close()


def _arguments(options: WriteOptions) -> dict[str, Any]:
    return {
        "version": "2.6",
        "data_page_version": "1.0",
        "compression": options.codec,
        "compression_level": options.level,
        "data_page_size": options.page_bytes,
        "max_rows_per_page": options.page_rows,
        "write_batch_size": options.batch_values,
        "dictionary_pagesize_limit": options.dictionary_bytes,
        "store_schema": False,
        "store_decimal_as_integer": True,
        "use_compliant_nested_type": True,
    }
