"""The summary of a snapshot, as Java's ``SnapshotSummary`` counts (format.md "metadata.json, more").

Sizes are bytes on storage; of a deletion vector only its blob counts, since one file holds many. Records are rows of data files,
including deleted ones. Totals continue the parent's; a total that the parent lacks, or that is not a number, is left out.

Partition values are left out: metadata.json is plain.

Not here: what a snapshot adds and removes (``table.commit.producer``, ``table.commit.row_delta``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries

from icelock.metadata.json_values import is_long
from icelock.plan.delete_index import is_vector
from icelock.plan.partition_set import identity_of

# name when added, name when removed, in Java's order
_NAMES: Final = (
    ("data-files", "added-data-files", "deleted-data-files"),
    ("equality-delete-files", "added-equality-delete-files", "removed-equality-delete-files"),
    ("position-delete-files", "added-position-delete-files", "removed-position-delete-files"),
    ("delete-files", "added-delete-files", "removed-delete-files"),
    ("dvs", "added-dvs", "removed-dvs"),
    ("records", "added-records", "deleted-records"),
    ("files-size", "added-files-size", "removed-files-size"),
    ("position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)
_TOTALS: Final = tuple(
    f"total-{name}" for name in ("data-files", "delete-files", "records", "files-size", "position-deletes", "equality-deletes")
)
_NO_TOTAL: Final = "-1"  # PyIceberg, like Java, leaves out a total that would continue one below 0


def snapshot_summary(
    operation: Operation,
    *,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    properties: Mapping[str, str],
    parent: Mapping[str, str] | None,
) -> Summary:
    """Return the summary of a snapshot that adds and removes these data and delete files.

    ``properties`` are the writer's own entries (``table.guard.snapshots.check_summary``); ``parent`` is the parent's summary, if there is
    one.
    """
    added, removed = list(added), list(removed)
    counts = [_count(added), _count(removed)]
    found = {names[1 + side]: str(count[names[0]]) for names in _NAMES for side, count in enumerate(counts) if count[names[0]]}
    partitions = {(file.spec_id or 0, identity_of(file.partition._data)) for file in (*added, *removed)}
    if partitions:
        found["changed-partition-count"] = str(len(partitions))
    known = parent and {name: parent[name] if is_long(parent.get(name)) else _NO_TOTAL for name in _TOTALS}
    # PyIceberg counts totals for the operations that it has; ``replace`` is none of them.
    counted = Operation.OVERWRITE if operation == Operation.REPLACE else operation
    return Summary(operation, **update_snapshot_summaries(Summary(counted, **{**properties, **found}), known).additional_properties)


def _count(files: Iterable[DataFile]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for file in files:
        if is_vector(file):
            size: Any = getattr(file, "content_size_in_bytes", None)
            counts.update({"dvs": 1, "delete-files": 1, "position-deletes": file.record_count, "files-size": size or 0})
        elif file.content == DataFileContent.POSITION_DELETES:
            counts.update({"position-delete-files": 1, "delete-files": 1, "position-deletes": file.record_count})
        elif file.content == DataFileContent.EQUALITY_DELETES:
            counts.update({"equality-delete-files": 1, "delete-files": 1, "equality-deletes": file.record_count})
        else:
            counts.update({"data-files": 1, "records": file.record_count})
        if not is_vector(file):
            counts["files-size"] += file.file_size_in_bytes
    return counts
