"""One encrypted Parquet file while it is written.

Form: ``io.parquet``. One file key, one properties object, one file; data pages of version 1; field ids, no Arrow schema in the
file; decimals as integers where they fit. Each table given becomes one row group.

Columns get a dictionary where it makes the file smaller, as in Java; those below lists and maps always. Java (parquet-mr,
``FallbackValuesWriter``) compares after the first page, and continues without a dictionary if indices and dictionary take more than the
values themselves. Arrow continues until the dictionary is full, so a column of distinct values is hashed in vain and its first megabytes
are stored twice as large (measured: 0.39 s of CPU and 44.2 MB against 0.24 s and 41.1 MB). So the comparison is made here, on the rows of
a first page, before the file is opened.

Invariant: after `close` the file's bytes are on storage, their number is what the sink counted, and they begin with ``PARE``. After an
error or `abort` the sink is closed and nothing more is written; the caller deletes the file (``arrow.write.data_file``).

Not here: row group sizes (``arrow.write.fanout``), metrics (``arrow.write.metrics``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pat
from pyiceberg.io import FileIO

from icelock import metrics
from icelock.arrow.write.options import MAX_PARTS, PAGE_BYTES, PAGE_ROWS, ROW_GROUP_BYTES, WriteOptions
from icelock.arrow.write.schema import WriteSchema
from icelock.errors import IntegrityError, PolicyError
from icelock.format.key_metadata import FileKey
from icelock.format.parquet_crypto import ENCRYPTED_MAGIC
from icelock.io.parquet import encryption_properties
from icelock.io.stored import ClosedFile, check_stored

FIRST_PAGE_ROWS: Final = 20_000
_LENGTH_BYTES: Final = 4
_OUT_OF_NUMBERS: Final = ("Encrypted Parquet files can't have more than", "row groups in an encrypted file")


class EncryptedParquetFile:
    """Writes row groups to a new file under a new file key."""

    def __init__(  # noqa: PLR0913 - what a file is made of
        self, io: FileIO, location: str, target: WriteSchema, options: WriteOptions, file_key: FileKey, first: pa.Table
    ) -> None:
        """Create the file; its ``first`` rows say which columns get a dictionary.

        Raises:
            FileExistsError: the location has a file.
        """
        self.location = location
        self.parts = 0
        self._io = io
        self._file_key = file_key
        self._sink: Any = io.new_output(location).create()
        try:
            self._writer = pq.ParquetWriter(
                self._sink,
                target.arrow,
                encryption_properties=encryption_properties(file_key),
                use_dictionary=_dictionary_paths(target, first) or False,
                **_arguments(options),
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
        metrics.add(files_written=1, bytes_written=size)
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


def _dictionary_paths(target: WriteSchema, first: pa.Table) -> list[str]:
    """Return the Parquet paths of the columns that get a dictionary."""
    page = first.slice(0, FIRST_PAGE_ROWS)
    paths = [path for field in target.arrow for path in _paths(field.type, field.name)]
    return [path for leaf, path in zip(target.leaves, paths, strict=True) if leaf.repeated or is_smaller(leaf.column_of(page))]


def is_smaller(values: pa.ChunkedArray) -> bool:
    """Whether a dictionary and indices take fewer bytes than the values; true without values."""
    found = values.drop_null()
    if isinstance(found.type, pa.BaseExtensionType):
        found = found.cast(found.type.storage_type)
    if not len(found):
        return True
    if pat.is_boolean(found.type):
        return False  # Parquet has no dictionaries for them
    distinct = pc.unique(found)
    indices = len(found) * max(1, (len(distinct) - 1).bit_length()) // 8
    return indices + _bytes(distinct) < _bytes(found)


def _bytes(values: pa.Array | pa.ChunkedArray) -> int:
    """Return the bytes of values in a plain page."""
    kind = values.type
    if pat.is_fixed_size_binary(kind) or pat.is_decimal(kind):
        return len(values) * int(kind.byte_width)
    if pat.is_primitive(kind):
        return len(values) * int(kind.bit_width) // 8
    return len(values) * _LENGTH_BYTES + int(pc.sum(pc.binary_length(values)).as_py() or 0)


def _paths(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the paths of a column's leaves in the order of the file."""
    if pat.is_struct(kind):
        for child in kind:
            yield from _paths(child.type, f"{path}.{child.name}")
    elif pat.is_map(kind):
        yield from _paths(kind.key_type, f"{path}.key_value.key")
        yield from _paths(kind.item_type, f"{path}.key_value.value")
    elif pat.is_list(kind):
        yield from _paths(kind.value_type, f"{path}.list.element")
    else:
        yield path
