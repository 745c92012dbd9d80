"""The end of a transaction: commit, retry on fresh metadata, and what becomes of its files.

On a conflict PyIceberg refreshes the table and every snapshot is made again on fresh metadata, after the failed attempt's key entries were
dropped from the update list: exactly one manifest-list key of a commit survives its retries. A commit that certainly failed deletes its
files; one whose outcome is unknown deletes nothing.

Not here: what a transaction can do (``table.transaction``), the producers (``table.producer``, ``table.row_delta``).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Transaction

from icelock.errors import IcelockError
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate

if TYPE_CHECKING:
    from icelock.table.table import Table

logger = logging.getLogger(__name__)


class CommitProtocol(Transaction):
    """PyIceberg's ``Transaction`` with a commit that knows the files that were written for it."""

    _table: Table

    def __init__(self, table: Table, autocommit: bool = False) -> None:  # noqa: FBT001, FBT002 - PyIceberg's signature
        super().__init__(table, autocommit)
        self._data_files: list[str] = []
        self._rebuilding = False

    def track(self, *locations: str) -> None:
        """Remember files that were written for this transaction: they are deleted if its commit certainly fails."""
        self._data_files.extend(locations)

    def commit_transaction(self) -> Table:
        """Commit what is staged.

        Raises:
            CommitFailedException: other writers won each time; the files of this transaction were deleted.
            PolicyError: an update would break a rule of encrypted tables; nothing was committed.
        """
        self._drop_idle_producers()
        try:
            super().commit_transaction()
        except (CommitFailedException, ValidationException, IcelockError) as e:
            if getattr(e, "outcome_known", True):
                self._discard()
            raise
        except Exception as e:
            if self._rebuilding:
                self._discard()  # the attempt before certainly failed, and this one did not get to the catalog
            elif self._data_files:
                e.add_note(f"The outcome of the commit is unknown; these data files were left in place: {', '.join(self._data_files)}")
            raise
        finally:
            self._data_files = []
        return self._table

    def _rebuild_snapshot_updates(self) -> None:
        keys = (AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate)
        self._updates = tuple(update for update in self._updates if not isinstance(update, keys))
        self._rebuilding = True
        super()._rebuild_snapshot_updates()
        self._rebuilding = False
        self._drop_idle_producers()

    def _drop_idle_producers(self) -> None:
        """Forget deletes that found nothing to do: PyIceberg tells by the producers' snapshots whether a lost commit landed."""
        if self._updates:
            self._snapshot_producers = [producer for producer in self._snapshot_producers if not getattr(producer, "idle", False)]

    def _discard(self, *, files: int = 0, producers: int = 0) -> None:
        """Delete what was written for this transaction, but for the first ``files`` files and ``producers`` snapshots."""
        for producer in self._snapshot_producers[producers:]:
            producer._clean_all_uncommitted()  # noqa: SLF001 - PyIceberg does it for two kinds of errors only
        del self._snapshot_producers[producers:]
        for path in self._data_files[files:]:
            try:
                self._table.storage.delete(path)
            except FileNotFoundError:
                continue
            except OSError as e:  # the first error matters more; the file is listed by it
                logger.debug("left behind: %s (%s)", path, e)
        del self._data_files[files:]


class Cleanup:
    """Deletes what was written inside the ``with`` block when staging a snapshot fails, and forgets its producer."""

    def __init__(self, transaction: CommitProtocol) -> None:
        self._transaction = transaction

    def __enter__(self) -> None:
        self._files = len(self._transaction._data_files)  # noqa: SLF001
        self._producers = len(self._transaction._snapshot_producers)  # noqa: SLF001

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._transaction._discard(files=self._files, producers=self._producers)  # noqa: SLF001
