"""The deletion vectors of a commit: all in one Puffin file, with an entry for each data file (format.md "Delete files").

Not here: which rows are deleted (``table.rows.delete``, ``table.rows.upsert``), the bytes (``io.puffin.write``).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent, FileFormat

from icelock.io.puffin.write import DeletionVector, Place, write_vectors
from icelock.metadata.manifest import DataFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icelock.io.files import EncryptedOutputFile
    from icelock.table.commit.staging import Staging


class VectorFile:
    """Writes the vectors of an attempt, unless they are those of the attempt before; ``entries`` are theirs."""

    def __init__(self, transaction: Staging) -> None:
        self.entries: tuple[DataFile, ...] = ()
        self._transaction = transaction
        self._vectors: list[DeletionVector] = []

    def write(self, files: Sequence[tuple[DataFile, DeletionVector]]) -> list[str]:
        """Write the vectors of data files; return the file of the attempt before if it is no longer needed."""
        vectors = [vector for _, vector in files]
        if len(vectors) == len(self._vectors) and all(one is other for one, other in zip(vectors, self._vectors, strict=True)):
            return []
        obsolete = sorted({file.file_path for file in self.entries})
        self._vectors, self.entries = vectors, ()
        if vectors:
            location = self._transaction.new_data_location(f"00000-0-{uuid.uuid4()}-00001-deletes.puffin")
            self._transaction.track(location)
            output = self._transaction.current_io().new_encrypted_output(location)
            places = write_vectors(output, vectors)
            self.entries = tuple(_entry(file, vector, place, output) for (file, vector), place in zip(files, places, strict=True))
        return obsolete


def _entry(file: DataFile, vector: DeletionVector, place: Place, output: EncryptedOutputFile) -> DataFile:
    entry = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=output.location,
        file_format=FileFormat.PUFFIN,
        partition=file.partition,
        record_count=vector.cardinality,
        file_size_in_bytes=len(output),
        key_metadata=output.key_metadata.encode(),
        referenced_data_file=file.file_path,
        content_offset=place.offset,
        content_size_in_bytes=place.length,
    )
    entry.spec_id = file.spec_id
    return entry
