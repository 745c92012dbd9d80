"""What a task needs to write data files: plain values that can be sent to other processes, and no key.

A task mints only the keys of its own files; the context holds no KMS client, no KEK and no DEK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from icelock.errors import PolicyError
from icelock.properties import DATA_KEY_LENGTHS

MAX_OPEN_FILES: Final = 64
MAX_BUFFERED_BYTES: Final = 512 << 20
ROW_GROUP_ROWS: Final = 1 << 17
"""Most rows of a row group that plain Python writes, if the table does not say (``write.parquet.row-group-limit``).

Arrow decodes the row groups of a file side by side, and those that a filter rules out are not read. Spark reads a file's row groups one
after the other, and full scans take a tenth longer, so its tasks write Java's: as many rows as have 128 MiB.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContext:
    """A table's state for writing, from one version of its metadata; it can be pickled.

    Args:
        schema: the schema of the rows.
        spec: the partition spec to write with.
        sort_order: the order of rows inside files.
        location: the table's location.
        properties: the table's properties.
        io: the storage's own FileIO, which does not encrypt.
        data_key_length: bytes of a DEK: 16, 24 or 32.
        operation_id: a uuid that all tasks of one write share; it is part of file names.
        max_open_files: how many files may be open at once when rows of many partitions are mixed.
        max_buffered_bytes: how many Arrow bytes may wait for their row groups to fill, over all partitions.
        row_group_rows: most rows of a row group, if the table does not say; None: as many as its bytes allow.
        downcast_ns: round nanoseconds down for microsecond columns (PyIceberg's ``downcast-ns-timestamp-to-us-on-write``).
    """

    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    location: str
    properties: Mapping[str, str]
    io: FileIO
    data_key_length: int
    operation_id: str
    max_open_files: int = MAX_OPEN_FILES
    max_buffered_bytes: int = MAX_BUFFERED_BYTES
    row_group_rows: int | None = None
    downcast_ns: bool = False

    def __post_init__(self) -> None:
        if self.data_key_length not in DATA_KEY_LENGTHS:
            raise PolicyError(f"the data key length is {self.data_key_length}; it must be 16, 24 or 32")
        if self.max_open_files < 1 or self.max_buffered_bytes < 1:
            raise PolicyError(f"max_open_files ({self.max_open_files}) and max_buffered_bytes ({self.max_buffered_bytes}) must be above 0")
        object.__setattr__(self, "properties", dict(self.properties))
