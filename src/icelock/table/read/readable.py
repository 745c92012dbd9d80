"""What every table of icelock's catalogs gives readers, encrypted or plain: scans, changes, metadata tables, Polars.

All rows come through one reader (``arrow.read``), so a plain table has the same filters, columns, streams and errors as an encrypted one.

Not here: writing (``table.transaction``, ``table.plain``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from icelock.metadata.schema_paths import column_list
from icelock.metadata.table_metadata import is_encrypted
from icelock.plan.filters.text import parse_filter
from icelock.table.arguments import checked_flag, checked_id_or_none, checked_limit
from icelock.table.described import CATALOG
from icelock.table.metadata_tables.inspect import InspectTable
from icelock.table.moments import to_millis
from icelock.table.read.scan import DataScan, IncrementalAppendScan

if TYPE_CHECKING:
    import polars as pl

    from icelock.table.changes.changelog import Changes


class ReadableTable:
    """The methods of a table that read, with PyIceberg's arguments."""

    @abstractmethod
    def _at_once(self) -> tuple[TableMetadata, FileIO]:
        """Return the metadata, and storage access with its keys, of one and the same version."""

    @property
    def encrypted(self) -> bool:
        """Whether the table's files are encrypted, as this version of its metadata says."""
        return is_encrypted(self._at_once()[0])

    def scan(
        self,
        row_filter: str | BooleanExpression = ALWAYS_TRUE,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        snapshot_id: int | None = None,
        options: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> DataScan:
        """Return a scan of the table's current metadata, or of one snapshot.

        Raises:
            PolicyError: the filter is text that cannot be parsed.
        """
        table: Any = self
        metadata, io = self._at_once()
        return DataScan(
            table_metadata=metadata,
            io=io,
            row_filter=parse_filter(row_filter),
            selected_fields=column_list(selected_fields, argument="selected_fields"),
            case_sensitive=case_sensitive,
            snapshot_id=checked_id_or_none(snapshot_id, name="snapshot_id"),
            options={**(options or {}), **({} if table.catalog is None else {CATALOG: table.catalog.name})},
            limit=checked_limit(limit),
            catalog=None,
            table_identifier=table.name(),
        )

    def snapshot_as_of_timestamp(self, timestamp_ms: int | datetime, inclusive: bool = True) -> Snapshot | None:
        """Return the snapshot that was current at a time, if any: ms since 1970, or a ``datetime`` with a zone.

        Raises:
            PolicyError: a time without a zone.
        """
        at = to_millis(timestamp_ms, name="timestamp_ms")
        found: Snapshot | None = super().snapshot_as_of_timestamp(at, inclusive)  # type: ignore[misc]  # PyIceberg's table
        return found

    @property
    def inspect(self) -> InspectTable:
        """Tables of files, manifests, snapshots and entries, without keys."""
        return InspectTable(self)  # type: ignore[arg-type]  # a table

    def incremental_append_scan(
        self,
        *,
        from_snapshot_id_exclusive: int | None = None,
        to_snapshot_id_inclusive: int | None = None,
        row_filter: str | BooleanExpression = ALWAYS_TRUE,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        options: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> IncrementalAppendScan:
        """Return a scan of the rows that append snapshots added, after one snapshot and up to another.

        Raises:
            PolicyError: the filter is text that cannot be parsed.
        """
        metadata, io = self._at_once()
        return IncrementalAppendScan(
            table_metadata=metadata,
            io=io,
            row_filter=parse_filter(row_filter),
            selected_fields=column_list(selected_fields, argument="selected_fields"),
            case_sensitive=case_sensitive,
            from_snapshot_id=checked_id_or_none(from_snapshot_id_exclusive, name="from_snapshot_id_exclusive"),
            from_snapshot_inclusive=False,
            to_snapshot_id=checked_id_or_none(to_snapshot_id_inclusive, name="to_snapshot_id_inclusive"),
            options=dict(options or {}),
            limit=checked_limit(limit),
        )

    def changes(
        self,
        *,
        start_snapshot_id: int | None = None,
        end_snapshot_id: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        branch: str | None = None,
        row_filter: str | BooleanExpression = ALWAYS_TRUE,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        identifier_fields: Sequence[str] = (),
        updates: bool = True,
        net_changes: bool = False,
    ) -> Changes:
        """Return the rows that changed after one snapshot and up to another, see ``table.changes``.

        Args:
            start_snapshot_id: changes after this snapshot; without a start, since the oldest one that is left.
            end_snapshot_id: up to and with this one; without an end, the branch's last.
            start_timestamp: a time instead of a snapshot: ms since 1970, or a ``datetime`` with a zone.
            end_timestamp: likewise.
            branch: ``main`` if None.
            row_filter: changes of the rows that match; a row that no longer does was deleted.
            selected_fields: as of a scan; the columns of the changelog always follow.
            case_sensitive: as of a scan.
            identifier_fields: a deleted and an inserted row that are equal in these columns are an update; without any, rows of one row id.
            updates: whether there are UPDATE_BEFORE and UPDATE_AFTER, or each is a DELETE and an INSERT.
            net_changes: what is different at the end, instead of each snapshot's changes.

        Raises:
            PolicyError: what is asked for does not fit the table.
            ExpiredSnapshotError: the range begins before the oldest snapshot that is left.
        """
        from icelock.table.changes import bounds, changelog, telling  # noqa: PLC0415 - not with every table that is loaded

        scan = self.scan(row_filter, selected_fields, case_sensitive)
        between = bounds.Bounds(
            start=checked_id_or_none(start_snapshot_id, name="start_snapshot_id"),
            end=checked_id_or_none(end_snapshot_id, name="end_snapshot_id"),
            since=start_timestamp,
            until=end_timestamp,
            branch=branch,
        )
        wanted = telling.Wanted(
            identifier_fields=column_list(identifier_fields, argument="identifier_fields"),
            updates=checked_flag(updates, name="updates"),
            net_changes=checked_flag(net_changes, name="net_changes"),
        )
        return changelog.Changes(scan, between, wanted)

    def to_polars(self) -> pl.LazyFrame:
        """Return a Polars lazy frame of the table, see ``icelock.polars.scan``."""
        from icelock.table.read.polars_source import scan  # noqa: PLC0415 - an extra, and slow to import

        return scan(self)  # type: ignore[arg-type]  # a table
