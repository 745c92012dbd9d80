"""Whether other writers' commits contradict ours: the validations of Iceberg's isolation levels, and of columns.

When a commit is retried, the snapshots between the one that an operation was planned on and the branch's head are examined (Java
MergingSnapshotProducer). A file concerns an operation if its partition and metrics do not rule out matching rows, or if it is in a
partition that the operation replaces.

    serializable   no new data files with rows that could match: with them the operation would have had another result
    both levels    new rows that replace others depend on those: no matching rows may have been deleted or moved

A compaction (operation ``replace``) moves rows and changes none. What can be worked out again on the files where they are now is; for other
changes it is a conflict, as in Java.

Data files that hold only older rows, as their row lineage shows, are not new rows: copy-on-write and compaction move rows.
A delete alone needs no second check, since it is worked out again on the present rows (``table.rows.delete``).

No value that was written for one version may be lost in a later one, or change its column (``check_still_fits``). Columns are identified by
field id. Columns that were added, renamed or widened meanwhile do not matter to older files, nor does another partition spec or sort order
(as in Java). Other changes are conflicts here; Java commits them too, and silently loses the values of dropped columns.

Not here: files to remove that no longer exist (``table.commit.row_delta``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg import types as ice
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import IsolationLevel, Operation, Snapshot, ancestors_between_ids
from pyiceberg.types import LongType

from icelock.errors import PolicyError
from icelock.metadata.metadata_columns import LAST_UPDATED
from icelock.metadata.schema_paths import child_fields
from icelock.metadata.sound_bounds import is_sound
from icelock.plan.delete_index import referenced_data_file
from icelock.plan.partition_set import PartitionSet
from icelock.plan.planner import Planner

MERGE_ISOLATION: Final = "write.merge.isolation-level"
_ADDS_ROWS: Final = (Operation.APPEND, Operation.OVERWRITE)
_REMOVES_ROWS: Final = (Operation.OVERWRITE, Operation.DELETE)
_MOVES_ROWS: Final = (Operation.REPLACE,)
_STRICTEST: Final = IsolationLevel.SERIALIZABLE.value


# Spec, "Schema Evolution": what a column may become.
_WIDER: Final = {
    ice.IntegerType: (ice.LongType,),
    ice.FloatType: (ice.DoubleType,),
    ice.DateType: (ice.TimestampType, ice.TimestampNanoType),
}


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

    def check_no_lost_rows(self, touches: Callable[[str], bool], *, follows: bool) -> None:
        """Refuse that others removed data files with matching rows, or added delete files that may concern such rows.

        Args:
            touches: whether rows of a data file, by path, were replaced or read; a deletion vector of another file is no conflict.
            follows: whether the change is worked out again where a compaction moved such rows to other files, so that this is no conflict.
        """
        for entry in self._entries(_REMOVES_ROWS, ManifestContent.DATA, ManifestEntryStatus.DELETED):
            self._refuse(entry, "removed rows that the filter may match")
        moved = False
        for entry in self._entries(_MOVES_ROWS, ManifestContent.DATA, ManifestEntryStatus.DELETED):
            if not follows:
                self._refuse(entry, "moved rows that the filter may match")
            moved = True  # a vector may be about a file that was there only before, or since
        for entry in self._entries(_REMOVES_ROWS, ManifestContent.DELETES, ManifestEntryStatus.ADDED):
            about = referenced_data_file(entry.data_file)
            if about is not None and not moved and not touches(about):
                continue
            self._refuse(entry, "deleted rows that the filter may match")

    def moved_files(self) -> set[str]:
        """Return the data files whose rows compactions moved to others."""
        return {entry.data_file.file_path for entry in self._entries(_MOVES_ROWS, ManifestContent.DATA, ManifestEntryStatus.DELETED)}

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


def check_still_fits(before: TableMetadata, now: TableMetadata, *, table: str) -> None:
    """Refuse, as a ValidationException, what was planned and written on ``before`` if it means something else on ``now``."""
    check_same_columns(before.schema(), now.schema(), table=table)
    spec = before.spec()
    if not any(known.spec_id == spec.spec_id and known.fields == spec.fields for known in now.partition_specs):
        raise ValidationException(
            f"table {table} no longer has partition spec {spec.spec_id}, with which this was written: nothing is committed; "
            "reload the table and retry"
        )


def check_same_columns(written: Schema, now: Schema, *, table: str) -> None:
    """Refuse a schema in which a column of ``written`` was dropped, or cannot hold the written values."""
    if written.as_struct() == now.as_struct():
        return
    changed = list(_changed(written.as_struct(), now.as_struct()))
    if changed:
        raise ValidationException(
            f"table {table} has other columns than when this was planned ({'; '.join(changed)}), so values would be lost: nothing is "
            "committed; reload the table and retry"
        )


def check_same_names(before: Schema, now: Schema, field_ids: Iterable[int], *, table: str) -> None:
    """Refuse renamed columns among those that are found by name: another column may have the name now."""
    for field_id in field_ids:
        name, found = before.find_column_name(field_id), now.find_column_name(field_id)
        if name != found:
            raise ValidationException(
                f"column {name!r} of table {table} is now called {found!r}: nothing is committed; reload the table and retry"
            )


def _changed(written: ice.IcebergType, now: ice.IcebergType, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Describe each written column that can no longer hold its values."""
    there = {field.field_id: field for field in child_fields(now)}
    for field in child_fields(written):
        name = f"{'.'.join((*above, field.name))!r} (id {field.field_id})"
        found = there.get(field.field_id)
        if found is None:
            yield f"{name} was dropped"
        elif not _takes(found.field_type, field.field_type):
            yield f"{name} was {_kind(field)} and is {_kind(found)}"
        else:
            if found.required and not field.required:
                yield f"{name} is now required"
            yield from _changed(field.field_type, found.field_type, (*above, field.name))


def _takes(now: ice.IcebergType, written: ice.IcebergType) -> bool:
    """Whether values of a type can be read as another; children are compared by ``_changed``."""
    if not isinstance(now, ice.PrimitiveType) or not isinstance(written, ice.PrimitiveType):
        return type(now) is type(written)
    if isinstance(written, ice.DecimalType) and isinstance(now, ice.DecimalType):
        return written.scale == now.scale and written.precision <= now.precision
    return written == now or isinstance(written, ice.UnknownType) or isinstance(now, _WIDER.get(type(written), ()))


def _kind(field: ice.NestedField) -> str:
    kind = field.field_type
    return str(kind) if isinstance(kind, ice.PrimitiveType) else type(kind).__name__.removesuffix("Type").lower()
