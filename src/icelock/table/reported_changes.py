"""``append``, ``overwrite``, ``delete`` and the like of a table, which return what they did; PyIceberg's return nothing.

``upsert`` returns PyIceberg's ``UpsertResult``. Not here: what they do (``table.transaction``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.refs import MAIN_BRANCH

from icelock.table.change_result import ChangeResult

if TYPE_CHECKING:
    from icelock.table.transaction import EncryptedTransaction

_NONE: Mapping[str, str] = {}


class ReportedChanges:
    """The methods of a table that change its rows in one commit, with PyIceberg's arguments; errors as the transaction's."""

    def append(self, df: Any, snapshot_properties: Mapping[str, str] = _NONE, branch: str | None = MAIN_BRANCH) -> ChangeResult:
        """Add rows, and return what was done."""
        return self._changed(lambda tx: tx.append(df, dict(snapshot_properties), branch))

    def overwrite(
        self,
        df: Any,
        overwrite_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: Mapping[str, str] = _NONE,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> ChangeResult:
        """Replace the rows that match a filter, and return what was done."""
        return self._changed(lambda tx: tx.overwrite(df, overwrite_filter, dict(snapshot_properties), case_sensitive, branch))

    def dynamic_partition_overwrite(
        self, df: Any, snapshot_properties: Mapping[str, str] = _NONE, branch: str | None = MAIN_BRANCH
    ) -> ChangeResult:
        """Replace the partitions that get rows, and return what was done."""
        return self._changed(lambda tx: tx.dynamic_partition_overwrite(df, dict(snapshot_properties), branch))

    def delete(
        self,
        delete_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: Mapping[str, str] = _NONE,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> ChangeResult:
        """Delete the rows that match a filter, and return what was done."""
        return self._changed(lambda tx: tx.delete(delete_filter, dict(snapshot_properties), case_sensitive, branch))

    def add_files(
        self,
        file_paths: Sequence[str],
        snapshot_properties: Mapping[str, str] | None = None,
        check_duplicate_files: bool = True,
        branch: str | None = MAIN_BRANCH,
        *,
        reencrypt: bool = False,
    ) -> ChangeResult:
        """Append the rows of plain Parquet files, encrypted; see ``EncryptedTransaction.add_files``."""
        paths = list(file_paths)
        return self._changed(lambda tx: tx.add_files(paths, snapshot_properties, check_duplicate_files, branch, reencrypt=reencrypt))

    def _changed(self, change: Callable[[EncryptedTransaction], object]) -> ChangeResult:
        table: Any = self
        with table.transaction() as tx:
            change(tx)
            ids = [producer.snapshot_id for producer in tx.staged.producers]
        made = [found for found in map(table.metadata.snapshot_by_id, ids) if found is not None]
        return ChangeResult.of_snapshot(made[-1] if made else None, tx.rows_written)
