"""One encrypted Avro data file while it is written: AGS1 around an Avro container (format.md "Avro data files").

The same interface as ``arrow.write.parquet_file.EncryptedParquetFile``: rows come as sorted tables of the stored schema. They become Avro
rows a few at a time, so memory is bounded by the given table and one Avro block. An Avro file has no metrics and no split offsets, as in
Java.

Invariant: after `close` the file's bytes are on storage, their number is what AGS1 makes of the plain bytes, and they begin with
``AGS1``. After an error or `abort` the stream is closed and nothing more is written; the caller deletes the file
(``arrow.write.data_file``).

Not here: when files begin and end (``arrow.write.partition_writer``).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO

from icelock.arrow.write.avro_schema import avro_data_schema
from icelock.arrow.write.avro_values import AvroRows
from icelock.arrow.write.options import WriteOptions
from icelock.arrow.write.schema import WriteSchema
from icelock.arrow.write.sizes import used_bytes
from icelock.format import ags1
from icelock.format.ags1 import PlaintextLength
from icelock.format.key_metadata import FileKey
from icelock.io.avro.write import BLOCK_BYTES, SYNC_LENGTH, AvroWriter
from icelock.io.files import EncryptedOutputFile
from icelock.io.stored import ClosedFile, check_stored
from icelock.keys.entropy import Entropy
from icelock.metadata.canonical_json import dumps, schema_object

_MOST_ROWS: Final = 1024


class EncryptedAvroFile:
    """Writes rows to a new file under a new file key."""

    parts: Final = 0
    """Avro has no row groups to number."""

    def __init__(  # noqa: PLR0913 - a file's six ingredients
        self, io: FileIO, location: str, target: WriteSchema, options: WriteOptions, file_key: FileKey, entropy: Entropy
    ) -> None:
        """Create the file.

        Raises:
            PolicyError: a type that Avro files do not have.
            FileExistsError: the location has a file.
        """
        schema = avro_data_schema(target.fields)
        self.location = location
        self._io = io
        self._rows = AvroRows(target.fields)
        self._output = EncryptedOutputFile(io.new_output(location), file_key, entropy)
        self._stream = self._output.create()
        try:
            self._writer = AvroWriter(
                self._stream,
                location=location,
                schema=schema,
                codec=options.avro_codec,
                header={"iceberg.schema": dumps(schema_object(target.schema))},
                sync=entropy.random_bytes(SYNC_LENGTH),
            )
        except BaseException:
            self.abort()
            raise

    @property
    def stored_bytes(self) -> int:
        """Bytes given to storage so far, without an open block."""
        return ags1.encrypted_length(PlaintextLength(self._stream.tell()))

    def write(self, table: pa.Table) -> None:
        """Write a table of the stored schema."""
        rows = max(1, min(_MOST_ROWS, BLOCK_BYTES * table.num_rows // max(1, used_bytes(table))))
        for batch in table.to_batches(max_chunksize=rows):
            self._writer.write(self._rows.of(batch))

    def close(self) -> ClosedFile:
        """Finish the file and check what is stored.

        Raises:
            IntegrityError: storage does not have the bytes that were written, or they are not encrypted.
        """
        self._writer.finish()
        self._stream.close()
        key_metadata = self._output.key_metadata
        size = len(self._output)
        check_stored(self._io, self.location, size=size, magic=ags1.MAGIC)
        return ClosedFile(size=size, rows=self._writer.rows, footer=None, key_metadata=key_metadata)

    def abort(self) -> None:
        """Stop writing; the file is to be deleted."""
        self._output.abort()
