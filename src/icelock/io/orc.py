"""``OrcInput``: one open plain ORC file, read stripe by stripe by Arrow's reader. Iceberg cannot encrypt ORC, so there is no key here.

Arrow gives timestamps in nanoseconds, and refuses those before 1677 and after 2262. ORC has no checksums: bytes that were changed may make
other values, as in any plain file.

Not here: Iceberg's field ids and types (``arrow.read.orc_types``), rows (``arrow.read.stored_file``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyarrow import orc
from pyiceberg.io import InputFile

from icelock.errors import FormatError
from icelock.io.parquet import is_arrows

_HINT: Final = "restore the file, or write it again as Parquet with Java"


class OrcInput:
    """One open ORC file; use it as a context manager, in one thread at a time. ``rows`` is what its footer says.

    Raises:
        FormatError: the bytes are not an ORC file, or one that Arrow cannot read; errors of the storage pass through.
    """

    def __init__(self, source: InputFile) -> None:
        self.location = source.location
        self._stream = source.open()
        try:
            self._file = orc.ORCFile(pa.PythonFile(self._stream, mode="r"))
            self.schema: pa.Schema = self._file.schema
            self.rows: int = self._file.nrows
        except BaseException as e:
            self._stream.close()
            raise self._mapped(e) from e

    def stripes(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each stripe with some columns, at least one; memory is bounded by a stripe.

        Raises:
            FormatError: the file is damaged, or has a timestamp that does not fit into 64 bits of nanoseconds.
        """
        dotted = any("." in name for name in self.schema.names)  # a dot means a field of a struct to Arrow
        for number in range(self._file.nstripes):
            try:
                batch: pa.RecordBatch = self._file.read_stripe(number, columns=None if dotted else list(columns))
            except Exception as e:
                raise self._mapped(e) from e
            yield batch.select(list(columns))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stream.close()

    def _mapped(self, error: BaseException) -> BaseException:
        if not is_arrows(error):
            return error
        return FormatError(f"{self.location} is not an ORC file that can be read ({' '.join(str(error).split())}); {_HINT}")
