"""The producer that replaces the partitions of the files that it is given (Java ReplacePartitions).

Partitions are compared by spec and tuple, under any transform. All data files and delete files of these partitions are removed; files of
an older spec are in none of them and stay. Conflicts are detected in the same partitions: new data files under isolation level
serializable, removed data files and new delete files under both. The summary has ``replace-partitions``, and the operation is always
``overwrite``.

Not here: which partition a row is in (``arrow.write.partition``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table.snapshots import Operation

from icelock.errors import PolicyError
from icelock.plan.partition_set import PartitionSet
from icelock.table.commit.conflicts import Conflicts, Window
from icelock.table.commit.row_delta import Change, EncryptedOverwrite

if TYPE_CHECKING:
    from typing import Self

    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec

    from icelock.table.state import Version

REPLACES: Final = "replace-partitions"


class EncryptedReplacePartitions(EncryptedOverwrite):
    """Adds files, and removes everything else in their partitions."""

    def __init__(self, operation: Operation, transaction: Any, io: Any, **arguments: Any) -> None:
        super().__init__(operation, transaction, io, **arguments)
        self._isolation_operation = Operation.OVERWRITE
        self.snapshot_properties = {**self.snapshot_properties, REPLACES: "true"}
        self._partitions = PartitionSet()

    def append_data_file(self, data_file: DataFile) -> Self:
        """Add a file, whose partition is replaced; refused without one, as all files of its spec would be removed."""
        check_partitioned(self.spec(data_file.spec_id))
        self._partitions.add(data_file)
        super().append_data_file(data_file)
        return self

    def _own_change(self) -> Change:
        return replace(super()._own_change(), partitions=self._partitions)

    def _what_it_does(self) -> Operation:
        return Operation.OVERWRITE

    def _conflicts(self, table: Version, commits: Window) -> Conflicts:
        return Conflicts(table.metadata, table.io, commits, None, case_sensitive=True, partitions=self._partitions)


def check_partitioned(spec: PartitionSpec) -> None:
    """Refuse a spec without partitions to replace: unpartitioned, or with void fields only."""
    if spec.is_unpartitioned() or all(str(field.transform) == "void" for field in spec.fields):
        raise PolicyError(
            f"partition spec {spec.spec_id} is unpartitioned: there are no partitions to replace; use overwrite, or delete and append"
        )
