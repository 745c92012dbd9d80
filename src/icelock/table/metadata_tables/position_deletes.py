"""The rows of ``position_deletes``: every deleted position of a snapshot, by delete file and data file.

Source: Java ``PositionDeletesTable``. Not here: reading delete files (``arrow.read.deletes``).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from icelock.arrow.read.deletes import deleted_positions
from icelock.plan.task import TaskBuilder
from icelock.table.metadata_tables.rows import FileRows, Row, read_entries
from icelock.table.plain import AnyTable, engine_scan


def position_delete_rows(table: AnyTable, snapshot: Snapshot | None) -> Iterator[tuple[Row, pa.Array]]:
    """Yield rows without ``pos``, each with the positions that it has; the deleted row itself is null.

    Raises:
        KeyUnavailableError, IntegrityError, PolicyError, FormatError, OSError: a manifest or delete file cannot be read.
    """
    if snapshot is None:
        return
    context = engine_scan(table).read_context(Schema())
    shown, builder = FileRows(table.metadata), TaskBuilder(table.metadata.schemas)
    manifests = [manifest for manifest in snapshot.manifests(table.io) if manifest.content == ManifestContent.DELETES]
    for entry in read_entries(table.io, manifests, live=True):
        file = entry.data_file
        if file.content != DataFileContent.POSITION_DELETES:
            continue
        (delete,) = builder.deletes([file])
        for path, positions in deleted_positions(context, delete).items():
            row = {
                "file_path": path,
                "row": None,
                "partition": shown.partition(file),
                "spec_id": file.spec_id,
                "delete_file_path": file.file_path,
                "content_offset": getattr(file, "content_offset", None),
                "content_size_in_bytes": getattr(file, "content_size_in_bytes", None),
            }
            yield row, pa.array(positions.to_array(), pa.uint64()).cast(pa.int64())
