"""Where an operation is tried: an encrypted table with history, and what storage and catalog have before and after.

The table is partitioned by city and has three appends, a tag ``first`` and a branch ``side`` on the first of them, and files of a write
that was never committed. Its rows hold values that occur nowhere else, so that plain bytes are seen whatever file they are in.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

import icelock
from tests.lakes.sqlite import KEYED, TestLake, people

BY_CITY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
# Values would be in paths otherwise, which is no plain file but would be found in metadata of the storage.
PROPERTIES = {**KEYED, "write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
VALUES = (b"canary-", b"town-")
METADATA = ".metadata.json"
MAGIC = (b"AGS1", b"PARE")


@dataclass(frozen=True)
class State:
    """Files by path with what tells that they were not touched, and the catalog's rows as text."""

    files: dict[str, tuple[int, int, int]]
    catalog: str


class Place:
    """One table of a lake with a SQL catalog."""

    _numbers = count()

    def __init__(self, lake: TestLake, namespace: str = "db", *, metadata: str | None = None) -> None:
        self.lake = lake
        self.namespace = namespace
        self.name = f"{namespace}.t{next(self._numbers)}"
        self.empty = f"empty_{self.name.rpartition('.')[2]}"
        self.catalog = lake.catalog()
        self.catalog.create_namespace(self.empty)
        if metadata is None:
            self._make()
        else:
            self.catalog.register_table(self.name, metadata)

    def twin(self) -> Place:
        """Return a table of the same files under another name: enough for what deletes none of them."""
        return type(self)(self.lake, self.namespace, metadata=self.table.metadata_location)

    def _make(self) -> None:
        table = self.catalog.create_table(self.name, people().schema, partition_spec=BY_CITY, properties=PROPERTIES)
        table.append(people())
        first = table.current_snapshot().snapshot_id
        table.manage_snapshots().create_tag(first, "first").create_branch(first, "side").commit()
        table.append(people(10))
        table.append(people(20))
        self.written(self.table.transaction())

    @property
    def table(self) -> Any:
        """The table as the catalog has it now."""
        return self.catalog.load_table(self.name)

    @property
    def first(self) -> int:
        """The id of the first snapshot."""
        return int(self.table.snapshots()[0].snapshot_id)

    @cached_property
    def plain_file(self) -> str:
        """A plain Parquet file outside of the table."""
        path = self.lake.folder / "plain.parquet"
        if not path.exists():
            pq.write_table(people(70), path)
        return str(path)

    def other(self, start: int = 90) -> pa.Table:
        """Rows that the table does not have."""
        return people(start, 3)

    def written(self, transaction: Any, rows: pa.Table | None = None) -> list[Any]:
        """Data files as a writer of this table makes them."""
        return list(transaction._write(self.other() if rows is None else rows))

    def state(self) -> State:
        """Return what is there now."""
        files = {}
        for path in sorted(self.lake.warehouse.rglob("*")):
            if path.is_file():
                stat = path.stat()
                files[str(path)] = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        return State(files=files, catalog=self._catalog_rows())

    def _catalog_rows(self) -> str:
        connection = sqlite3.connect(self.lake.folder / "catalog.db")
        try:
            return "\n".join(connection.iterdump())
        finally:
            connection.close()


class StaticPlace:
    """A place whose table was loaded from its metadata file."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def table(self) -> Any:
        return icelock.StaticTable.from_metadata(self._place.table.metadata_location, self._place.lake.properties())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)


def plain_files(paths: set[str]) -> list[str]:
    """Return which of the files are neither encrypted nor a metadata.json without values of rows."""
    found = []
    for path in sorted(paths):
        data = Path(path).read_bytes()
        right = path.endswith(METADATA) or data.startswith(MAGIC)
        if not right or any(value in data for value in VALUES):
            found.append(path)
    return found
