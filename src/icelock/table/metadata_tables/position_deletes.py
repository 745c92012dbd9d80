"""The rows of ``position_deletes``: every deleted position of a snapshot, by delete file and data file.

Source: Java ``PositionDeletesTable``. Not here: reading delete files (``arrow.read.deletes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import deleted_positions
from icelock.plan.task import DeleteFile, TaskBuilder
from icelock.table.metadata_tables.rows import FileRows, Row, read_entries

_BATCH_ROWS: Final = 1 << 16


def delete_manifests(manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the manifests that may list position delete files."""
    return [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]


def position_delete_files(metadata: TableMetadata, io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[tuple[Row, DeleteFile]]:
    """Yield the position delete files of delete manifests, with what all rows of each share.

    Raises:
        KeyUnavailableError, IntegrityError, PolicyError, FormatError, OSError: a manifest cannot be read.
    """
    shown, builder = FileRows(metadata), TaskBuilder(metadata.schemas)
    for entry in read_entries(io, manifests, live=True):
        file = entry.data_file
        if file.content != DataFileContent.POSITION_DELETES:
            continue
        (delete,) = builder.deletes([file])
        row = {
            "row": None,
            "partition": shown.partition(file),
            "spec_id": file.spec_id,
            "delete_file_path": file.file_path,
            "content_offset": getattr(file, "content_offset", None),
            "content_size_in_bytes": getattr(file, "content_size_in_bytes", None),
        }
        yield row, delete


def position_delete_rows(context: ReadContext, row: Row, delete: DeleteFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a row for each position of a delete file, in columns of ``schema``; the deleted row itself is null.

    Raises:
        IntegrityError, PolicyError, FormatError, OSError: the file cannot be read.
    """
    index = schema.get_field_index("pos")
    for path, found in deleted_positions(context, delete).items():
        positions = pa.array(found.to_array(), pa.uint64()).cast(pa.int64())
        one = pa.RecordBatch.from_pylist([{**row, "file_path": path, "pos": 0}], schema=schema)
        for start in range(0, len(positions), _BATCH_ROWS):
            some = positions.slice(start, _BATCH_ROWS)
            many = one.take(pa.repeat(pa.scalar(0), len(some)))
            yield many if index < 0 else many.set_column(index, schema.field(index), some)
