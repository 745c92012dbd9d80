"""The data files that a snapshot added, in an order that does not change: a position in it says up to where a stream has read.

The order is that of the snapshot's manifest list, and within a manifest that of its entries. A snapshot has the same list and the same
manifests for as long as it is there, and what later snapshots do with its files changes neither.

Not here: which snapshots a stream or a read of changes takes, and from where (``table.read.stream``).
"""

from __future__ import annotations

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from icelock.plan.task import ScanTask
from icelock.table.read.scan import AddedFiles


def added_files(metadata: TableMetadata, io: FileIO, snapshot_id: int, row_filter: BooleanExpression | None = None) -> list[ScanTask]:
    """Return the data files that a snapshot added, whatever its operation; without deletes, and without files that have no rows.

    Args:
        metadata: of the table, with the snapshot in it; a filter is of its current schema.
        io: the table's.
        snapshot_id: of the snapshot.
        row_filter: leaves out files that hold no matching row; the others stay in their order.

    Raises:
        IntegrityError: the manifest list or a manifest was changed.
        KeyUnavailableError: no KMS, or it refused.
    """
    scan = AddedFiles(table_metadata=metadata, io=io, row_filter=AlwaysTrue() if row_filter is None else row_filter)
    scan.by = frozenset([snapshot_id])
    return scan.scan_tasks()
