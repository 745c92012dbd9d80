"""Parquet modular encryption through Arrow: the one place where Parquet files are opened and given their keys.

Form of an encrypted file (format.md, "Files"): AES_GCM_V1, encrypted footer (magic ``PARE``), every column under the footer
key = DEK, AAD prefix supplied and not stored, no key metadata in the file. Arrow keeps state in its property objects, so each
file gets fresh ones and no open reader is shared (cases C-18, C-19).

The parent's key metadata says whether a file is encrypted, never its bytes; those are looked at only to word an error. Arrow would
trust the file about its algorithm, whose bytes are not authenticated (ADR 0013). So the end of an encrypted file is read once, here,
checked by ``format.parquet_crypto``, and given to Arrow from memory; the page reader has no other key than the one that came with that
footer, and never reads the end on storage, which may have changed.

Not here: projection and filters (``arrow``), streams (``io.streams``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyiceberg.io import InputFile

from icelock import metrics
from icelock.errors import FormatError, IcelockError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.format import parquet_crypto as crypto
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.io.locations import has_scheme, split_location
from icelock.io.plain_input import key_is_missing
from icelock.io.raw import Source, read_up_to, size_of

MIN_PYARROW: Final = 25
_END_READ: Final = 1 << 16
"""What Arrow first reads of a file's end; smaller files are read whole."""
_WHOLE_READ: Final = 1 << 20
"""The same of files that are not on a local disk: up to here two requests more take longer than the bytes."""
# INT96 has nanoseconds in the file, but Iceberg reads it as timestamptz in microseconds.
_READER: Final[dict[str, Any]] = {"coerce_int96_timestamp_unit": "us", "arrow_extensions_enabled": False, "pre_buffer": True}
_MOST_SECONDS: Final = 2**63 // 1_000_000
_RESTORE: Final = "restore the file from a backup, or read a snapshot that does not need it"
# Arrow raises the storage's errors and its own as the same OSError; these are the storage's.
_STORAGE_ERROR: Final = re.compile(r"AWS Error|HTTP|curl|GCS|Azure|HDFS|[Cc]onnection|[Tt]imed? ?out")


def check_pyarrow(version: str = pa.__version__) -> None:
    """Check that Arrow takes a data key and an AAD prefix directly, as it does since version 25 (case C-28).

    Raises:
        PolicyError: an older pyarrow.
    """
    if int(version.split(".", 1)[0]) < MIN_PYARROW:
        raise PolicyError(f"pyarrow {version} cannot read or write encrypted Iceberg files: pip install 'pyarrow>={MIN_PYARROW}'")


def decryption_properties(key_metadata: KeyMetadata) -> pe.FileDecryptionProperties:
    """Return new properties that open one file, and refuse a plain one.

    Raises:
        PolicyError: pyarrow is older than 25.
    """
    check_pyarrow()
    return pe.create_decryption_properties(
        footer_key=key_metadata.dek.reveal(), aad_prefix=key_metadata.aad_prefix, allow_plaintext_files=False
    )


def encryption_properties(file_key: FileKey) -> pe.FileEncryptionProperties:
    """Return new properties to write one file: AES_GCM_V1, encrypted footer, AAD prefix not stored.

    Raises:
        PolicyError: pyarrow is older than 25.
    """
    check_pyarrow()
    return pe.create_encryption_properties(footer_key=file_key.dek.reveal(), aad_prefix=file_key.aad_prefix, store_aad_prefix=False)


class ParquetInput:
    """One open Parquet file; use it as a context manager, in one thread at a time.

    ``key_metadata`` None means a plain file; the caller knows that it is allowed. ``schema`` is the file's Arrow schema and
    ``metadata`` its footer. Whatever Arrow raises for bad bytes becomes an icelock error that names the file; errors of the
    storage pass through.

    Raises:
        IntegrityError: wrong key or AAD prefix, bytes changed, cut or swapped, a length other than in the key metadata, or a
            plain file where an encrypted one is expected.
        FormatError: the bytes are not a Parquet file.
        KeyUnavailableError: the file is encrypted, but has no key metadata; or a column has a key of its own (case C-68).
    """

    def __init__(self, source: InputFile, key_metadata: KeyMetadata | None) -> None:
        self.location = source.location
        self._source = source
        self._key_metadata = key_metadata
        self._stream = source.open()
        try:
            size = self._checked_size(None if key_metadata is None else key_metadata.encrypted_length)
            self._file = pq.ParquetFile(self._stream, **_READER) if key_metadata is None else self._encrypted_file(key_metadata, size)
            self.schema: pa.Schema = self._file.schema_arrow
            self.metadata: pq.FileMetaData = self._file.metadata
            metrics.add(files_read=1, bytes_read=size)
        except BaseException as e:
            mapped = self._mapped(e)
            self._stream.close()
            if mapped is None:
                raise
            raise mapped from e

    def leaf_paths(self, leaves: Sequence[int]) -> list[str]:
        """Return the names under which Arrow selects leaf columns; leaves count depth first over the whole schema."""
        schema = self.metadata.schema
        return [schema.column(leaf).path for leaf in leaves]

    def batches(self, row_group: int, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield a row group's rows in file order, with the columns that ``leaf_paths`` named.

        Memory is bounded by one row group's stored bytes, read ahead in few requests, and a batch. Columns with equal dotted paths
        come together, so look columns up by name.

        Raises:
            IntegrityError: bytes of the file were changed.
            KeyUnavailableError: a column has a key of its own.
            FormatError: a plain file is damaged, or an INT96 timestamp does not fit into 64 bits of microseconds.
        """
        try:
            self._check_instants(row_group, columns, batch_rows)
            yield from self._file.iter_batches(batch_rows, row_groups=[row_group], columns=list(columns))
        except (pa.ArrowException, OSError) as e:
            mapped = self._mapped(e)
            if mapped is None:
                raise
            raise mapped from e

    @property
    def int96_leaves(self) -> frozenset[int]:
        """The indices of the leaf columns that are INT96 timestamps."""
        schema = self.metadata.schema
        return frozenset(leaf for leaf in range(len(schema)) if schema.column(leaf).physical_type == "INT96")

    @cached_property
    def _int96(self) -> tuple[str, ...]:
        """The paths of the INT96 columns; looked up once, as a file may have many columns and row groups."""
        return tuple(self.leaf_paths(sorted(self.int96_leaves)))

    def _check_instants(self, row_group: int, columns: Sequence[str], batch_rows: int) -> None:
        """Check the INT96 timestamps among some columns: Arrow lets too large ones overflow, without an error."""
        paths = [path for path in self._int96 if path in columns]
        if not paths:
            return
        with self._source.open() as stream:
            seconds = pq.ParquetFile(stream, metadata=self.metadata, **{**_READER, "coerce_int96_timestamp_unit": "s"})
            for batch in seconds.iter_batches(batch_rows, row_groups=[row_group], columns=paths):
                for array in batch.columns:
                    _check_seconds(array, f"{self.location}: column {', '.join(paths)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()
        self._stream.close()

    def _encrypted_file(self, key_metadata: KeyMetadata, size: int) -> pq.ParquetFile:
        """Return Arrow's page reader, which uses the footer that was checked, including its algorithm."""
        end = self._read(0 if size <= (_END_READ if _is_local(self.location) else _WHOLE_READ) else size - _END_READ, size)
        whole = len(end) == size
        self._check_magic(
            end[: len(crypto.ENCRYPTED_MAGIC)] if whole else self._read(0, len(crypto.ENCRYPTED_MAGIC)), end[-len(crypto.ENCRYPTED_MAGIC) :]
        )
        length = crypto.footer_length(end[-crypto.END_LENGTH :], size, self.location) + crypto.END_LENGTH
        if length > len(end):
            end = self._read(size - length, size - len(end)) + end
        footer = end[-length:]
        check = crypto.check_encrypted_footer if footer.endswith(crypto.ENCRYPTED_MAGIC) else crypto.check_signed_footer
        check(footer[: -crypto.END_LENGTH], self.location)
        metadata = pq.read_metadata(pa.BufferReader(footer), decryption_properties=decryption_properties(key_metadata))
        return pq.ParquetFile(pa.BufferReader(end) if whole else self._stream, metadata=metadata, **_READER)

    def _checked_size(self, expected: int | None) -> int:
        found = size_of(self._stream)
        if expected is not None and found != expected:
            raise IntegrityError(
                f"{self.location} has {found} bytes on storage, its key metadata says {expected}: "
                f"the file was cut, extended or replaced; {_RESTORE}"
            )
        return found

    def _read(self, start: int, end: int) -> bytes:
        """Return a range of the file, shorter where the file ends."""
        self._stream.seek(start)
        view = memoryview(bytearray(end - start))
        return bytes(view[: read_up_to(cast("Source", self._stream), view)])

    def _check_magic(self, first: bytes, last: bytes) -> None:
        """Check both ends: Arrow checks the last four bytes only. A file with a signed plaintext footer has PAR1 at both."""
        if first not in (crypto.ENCRYPTED_MAGIC, crypto.PLAIN_MAGIC):
            raise IntegrityError(_no_parquet(self.location, first))
        if first != last:
            what = f"it begins with {first!r} and ends with {last!r}"
            raise IntegrityError(f"{self.location} failed authentication: {what}; bytes were changed or cut; {_RESTORE}")

    def _mapped(self, error: BaseException) -> IcelockError | None:
        """Return the icelock error for what Arrow raised on this file's bytes, or None for an error of the storage."""
        if not is_arrows(error):
            return None
        if isinstance(error, NotImplementedError):
            return FormatError(f"{self.location} uses a Parquet feature that Arrow lacks: {error}; rewrite it with another engine")
        try:
            self._stream.seek(0)
            first = bytes(self._stream.read(4))
        except Exception:  # noqa: BLE001 - the storage failed again, so its first error is the one to show
            return None
        if self._key_metadata is None:
            return _plain_error(self.location, first, error)
        return _encrypted_error(self.location, first, str(error), created_by=self._created_by())

    def _created_by(self) -> str:
        metadata = getattr(self, "metadata", None)
        return "" if metadata is None else str(metadata.created_by)


def _check_seconds(array: pa.Array, where: str) -> None:
    """Check that timestamps in seconds, at any depth, fit into 64 bits of microseconds."""
    kind = array.type
    if pa.types.is_struct(kind):
        for child in array.flatten():
            _check_seconds(child, where)
    elif pa.types.is_map(kind):
        _check_seconds(array.keys, where)
        _check_seconds(array.items, where)
    elif pa.types.is_nested(kind):
        _check_seconds(array.flatten(), where)
    elif pa.types.is_timestamp(kind):
        ends = pc.min_max(array.cast(pa.int64())).as_py()
        if ends["min"] is not None and max(-ends["min"], ends["max"]) >= _MOST_SECONDS:
            raise FormatError(
                f"{where} has INT96 timestamps from {ends['min']} to {ends['max']} s from 1970, and Iceberg ends in the year 294247"
            )


def is_arrows(error: BaseException) -> bool:
    """Whether Arrow's decoder raised it; the storage's errors have another class, an errno, or a known text."""
    if isinstance(error, MemoryError):
        return False
    if isinstance(error, pa.ArrowException):
        return True
    return type(error) is OSError and error.errno is None and not _STORAGE_ERROR.search(str(error))


def _is_local(location: str) -> bool:
    return not has_scheme(location) or split_location(location).scheme == "file"


def _plain_error(location: str, first: bytes, error: BaseException) -> IcelockError:
    if first == crypto.ENCRYPTED_MAGIC:
        return key_is_missing(location, "Parquet file (PARE)")
    if first != crypto.PLAIN_MAGIC:
        return FormatError(f"{location} is not a Parquet file: expected first bytes PAR1, got {first!r}; {_RESTORE}")
    return FormatError(f"{location} is a damaged plain Parquet file ({str(error).strip()}); {_RESTORE}")


def _no_parquet(location: str, first: bytes) -> str:
    return f"{location} is not PARE (encrypted Parquet): expected first bytes PARE, got {first!r}; {_RESTORE}"


def _encrypted_error(location: str, first: bytes, text: str, *, created_by: str) -> IcelockError:
    if "plaintext file" in text:
        return IntegrityError(
            f"{location} is a plain Parquet file (PAR1), but its key metadata says that it is encrypted: the file was replaced; {_RESTORE}"
        )
    if "AAD prefix used for file encryption, but not stored" in text:
        return IntegrityError(f"{location} needs an AAD prefix, but its key metadata has none: the manifest entry belongs to another file")
    if "AAD Prefix in file and in properties is not the same" in text:
        return IntegrityError(f"{location} has a different AAD prefix than its key metadata: the file was swapped; {_RESTORE}")
    if "Wrong key length: 0" in text:
        return KeyUnavailableError(
            f"{location} has columns under keys of their own, which Iceberg does not support: "
            "select other columns, or rewrite the file with one key"
        )
    if first not in (crypto.ENCRYPTED_MAGIC, crypto.PLAIN_MAGIC):
        return IntegrityError(_no_parquet(location, first))
    cause = "bytes were changed or cut" if "decryption" not in text else "wrong key or AAD prefix, or bytes were changed or swapped"
    if "parquet-mr" in created_by and "ciphertext length" in text:
        cause += "; or it has data pages of version 2 (write.parquet.page-version=v2), which Arrow cannot decrypt: rewrite it with v1"
    return IntegrityError(f"{location} failed authentication ({' '.join(text.split())}): {cause}; {_RESTORE}")
