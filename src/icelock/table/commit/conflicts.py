"""Whether other writers' commits contradict ours: the validations of Iceberg's isolation levels (Java MergingSnapshotProducer).

When a commit is retried, the snapshots between the one that an operation was planned on and the branch's head are examined. A file
concerns an operation if its partition and metrics do not rule out matching rows, or if it is in a partition that the operation replaces.

    serializable   no new data files with rows that could match: with them the operation would have had another result
    both levels    new rows that replace others depend on those: no matching rows may have been deleted or moved

Data files that hold only older rows, as their row lineage shows, are not new rows: copy-on-write and compaction move rows.
A delete alone needs no second check, since it is worked out again on the present rows (``table.rows.delete``).

Not here: files to remove that no longer exist (``table.commit.row_delta``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import IsolationLevel, Operation, Snapshot, ancestors_between_ids
from pyiceberg.types import LongType

from icelock.errors import PolicyError
from icelock.metadata.metadata_columns import LAST_UPDATED
from icelock.metadata.sound_bounds import is_sound
from icelock.plan.delete_index import referenced_data_file
from icelock.plan.partition_set import PartitionSet
from icelock.plan.planner import Planner

MERGE_ISOLATION: Final = "write.merge.isolation-level"
_ADDS_ROWS: Final = (Operation.APPEND, Operation.OVERWRITE)
_REMOVES_FILES: Final = (Operation.OVERWRITE, Operation.REPLACE, Operation.DELETE)
_STRICTEST: Final = IsolationLevel.SERIALIZABLE.value
_ADDS_DELETES: Final = (Operation.OVERWRITE, Operation.DELETE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """The snapshot after which other writers' commits are examined; None: from the first one on."""

    snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The commits of other writers: after ``base`` (None: since the table was empty) up to and including ``head``."""

    base: Snapshot | None
    head: Snapshot

    def snapshots(self, metadata: TableMetadata) -> Iterator[Snapshot]:
        """Yield them, newest first.

        Raises:
            ValidationException: ``base`` is no longer an ancestor of ``head``, so the commits between them are unknown.
        """
        base_id = None if self.base is None else self.base.snapshot_id
        oldest: Snapshot | None = None
        for snapshot in ancestors_between_ids(base_id, self.head.snapshot_id, metadata):
            oldest = snapshot
            yield snapshot
        if oldest is not None and oldest.parent_snapshot_id != base_id:
            raise ValidationException(
                f"snapshot {base_id}, on which the change was planned, is no longer an ancestor of {self.head.snapshot_id}; "
                "reload the table and plan it again"
            )

    def check(self, metadata: TableMetadata) -> None:
        """Check that ``head`` comes after ``base``: it does not if the branch was rolled back or replaced; see ``snapshots``."""
        for _ in self.snapshots(metadata):
            pass


class Conflicts:
    """Finds files of other commits that concern an operation: by its ``row_filter``, or by the ``partitions`` that it replaces."""

    def __init__(
        self,
        metadata: TableMetadata,
        io: FileIO,
        window: Window,
        row_filter: BooleanExpression | None,
        *,
        case_sensitive: bool,
        partitions: PartitionSet | None = None,
    ) -> None:
        self._metadata = metadata
        self._io = io
        self._window = window
        self._partitions = partitions
        # Planner's evaluators: which manifests and files may hold matching rows.
        self._planner = Planner(
            table_metadata=metadata, io=io, row_filter=row_filter if row_filter is not None else AlwaysTrue(), case_sensitive=case_sensitive
        )
        self._may_match = self._planner._build_metrics_evaluator()
        self._in_manifest: dict[int, Callable[[Any], bool]] = {}
        self._in_partition: dict[int, Callable[[Any], bool]] = {}

    def check_no_new_rows(self, *, moved_rows: bool) -> None:
        """Refuse data files with matching rows that others added; ``moved_rows``: but allow files whose rows are all older."""
        known = 0 if self._window.base is None else self._window.base.sequence_number or 0
        for entry in self._entries(_ADDS_ROWS, ManifestContent.DATA, ManifestEntryStatus.ADDED):
            if moved_rows and _only_older_rows(entry.data_file, known):
                continue
            self._refuse(entry, "added rows that the filter may match")

    def check_no_lost_rows(self, touches: Callable[[str], bool]) -> None:
        """Refuse that others removed data files with matching rows, or added delete files that may concern such rows.

        ``touches`` says whether rows of a data file, by path, were replaced or read; a deletion vector of another file is no conflict.
        """
        for entry in self._entries(_REMOVES_FILES, ManifestContent.DATA, ManifestEntryStatus.DELETED):
            self._refuse(entry, "removed rows that the filter may match")
        for entry in self._entries(_ADDS_DELETES, ManifestContent.DELETES, ManifestEntryStatus.ADDED):
            about = referenced_data_file(entry.data_file)
            if about is not None and not touches(about):
                continue
            self._refuse(entry, "deleted rows that the filter may match")

    def _entries(self, operations: tuple[Operation, ...], content: ManifestContent, status: ManifestEntryStatus) -> Iterator[ManifestEntry]:
        for snapshot in self._window.snapshots(self._metadata):
            # A snapshot without summary may have done anything.
            if snapshot.summary is not None and snapshot.summary.operation not in operations:
                continue
            for manifest in snapshot.manifests(self._io):
                if manifest.content != content or manifest.added_snapshot_id != snapshot.snapshot_id or not self._manifest(manifest):
                    continue
                for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=False):
                    if entry.status == status and entry.snapshot_id == snapshot.snapshot_id and self._file(entry.data_file):
                        yield entry

    def _manifest(self, manifest: Any) -> bool:
        if self._partitions is not None:
            return self._partitions.may_hold(manifest, self._metadata)
        spec_id = manifest.partition_spec_id
        if spec_id not in self._in_manifest:
            self._in_manifest[spec_id] = self._planner._build_manifest_evaluator(spec_id)
        return self._in_manifest[spec_id](manifest)

    def _file(self, file: DataFile) -> bool:
        if self._partitions is not None:
            return file in self._partitions
        if file.spec_id not in self._in_partition:
            self._in_partition[file.spec_id] = self._planner._build_partition_evaluator(file.spec_id)
        return self._in_partition[file.spec_id](file) and self._may_match(file)

    def _refuse(self, entry: ManifestEntry, what: str) -> None:
        raise ValidationException(
            f"conflict: snapshot {entry.snapshot_id} of another writer {what} (in {entry.data_file.file_path}); reload the table and retry"
        )


def isolation_level(metadata: TableMetadata, operation: Operation, name: str | None = None) -> IsolationLevel:
    """Return the isolation level of a ``DELETE`` or ``OVERWRITE``, or that of the property ``name``.

    Raises:
        PolicyError: the property is neither serializable nor snapshot.
    """
    try:
        return metadata.isolation_level(operation) if name is None else IsolationLevel(metadata.properties.get(name, _STRICTEST))
    except ValueError as e:
        which = name or "write.delete.isolation-level and write.update.isolation-level"
        raise PolicyError(f"{which} must be serializable or snapshot: {e}") from e


def _only_older_rows(file: DataFile, sequence_number: int) -> bool:
    """Whether a file's metrics show that each of its rows was last changed at or before a sequence number."""
    nulls = (file.null_value_counts or {}).get(LAST_UPDATED.field_id)
    newest = (file.upper_bounds or {}).get(LAST_UPDATED.field_id)
    if nulls != 0 or newest is None or not is_sound(LongType(), newest):
        return False
    return int(from_bytes(LongType(), newest)) <= sequence_number
