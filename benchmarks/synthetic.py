"""Tables whose manifests list files that are not there: what planning and commits cost at a size that no disk here holds.

Ten columns with metrics, 1,000 partitions, sorted by partition, 10,000 files a manifest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg import types as ice
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from icelock.keys.entropy import SystemEntropy, mint_file_key
from icelock.metadata.manifest import DataFile
from icelock.table.commit.row_delta import Change

COLUMNS = {
    "id": ice.LongType(),
    "part": ice.IntegerType(),
    "ts": ice.TimestamptzType(),
    "name": ice.StringType(),
    "city": ice.StringType(),
    "price": ice.DoubleType(),
    "quantity": ice.IntegerType(),
    "day": ice.DateType(),
    "flag": ice.BooleanType(),
    "ref": ice.LongType(),
}
PARTITIONS = 1000
FILES_A_MANIFEST = 10_000
VECTORS_A_FILE = 1000
ROWS = 1000


def schema() -> Schema:
    return Schema(*(ice.NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(COLUMNS.items(), 1)))


def data_file(table: Any, number: int, files: int, *, plain: bool = False) -> Any:
    """An entry that looks like one of a sorted table, with a key of its own; there is no such file. ``plain``: PyIceberg's, without one."""
    part = number * PARTITIONS // files
    first, last = number * ROWS, number * ROWS + ROWS - 1
    numbers = range(1, len(COLUMNS) + 1)

    def bounds(row: int, letter: str, share: float) -> dict[int, bytes]:
        stamp = 1_700_000_000_000_000 + row * 1_000_000
        id_, day = struct.pack("<q", row), struct.pack("<i", 19_000 + row % 365)
        name, city = f"name-{row:010d}"[:16].encode(), f"town-{letter}".encode()
        values = (id_, struct.pack("<i", part), struct.pack("<q", stamp), name, city, struct.pack("<d", share * 99.5))
        return dict(zip(numbers, (*values, struct.pack("<i", int(share * 100)), day, bytes([int(share)]), id_), strict=True))

    size = 123_456 + number
    kind: Any = IcebergDataFile if plain else DataFile
    made = kind.from_args(
        content=DataFileContent.DATA,
        file_path=path_of(table, number, files),
        file_format=FileFormat.PARQUET,
        partition=Record(part),
        record_count=ROWS,
        file_size_in_bytes=size,
        column_sizes={column: 4000 + column for column in numbers},
        value_counts=dict.fromkeys(numbers, ROWS),
        null_value_counts=dict.fromkeys(numbers, 0),
        nan_value_counts={6: 0},
        lower_bounds=bounds(first, "a", 0),
        upper_bounds=bounds(last, "z", 1),
        key_metadata=None if plain else mint_file_key(SystemEntropy(), 16).closed(size).encode(),  # type: ignore[arg-type]
        split_offsets=[4],
        sort_order_id=0,
    )
    made.spec_id = table.spec().spec_id
    if not plain:
        made.fresh = True  # as one that was just written: nobody looks for it among those that are there
    return made


def path_of(table: Any, number: int, files: int) -> str:
    part = number * PARTITIONS // files
    return f"{table.location()}/data/part={part}/00000-{number}-0c6a8a5e-6a0b-4ed0-9f2b-0d9a3f1d0000-00001.parquet"


def vectors(table: Any, numbers: range, files: int) -> Iterator[DataFile]:
    """Entries of a deletion vector for each of some data files; there is no such Puffin file either."""
    keys: dict[int, bytes] = {}
    for number in numbers:
        group = number // VECTORS_A_FILE
        if group not in keys:
            keys[group] = mint_file_key(SystemEntropy(), 16).closed(60_000).encode()  # type: ignore[assignment]
        made = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=f"{table.location()}/data/00000-{group}-0c6a8a5e-6a0b-4ed0-9f2b-0d9a3f1d0001-00001.puffin",
            file_format=FileFormat.PUFFIN,
            partition=Record(number * PARTITIONS // files),
            record_count=3,
            file_size_in_bytes=60_000,
            key_metadata=keys[group],
            referenced_data_file=path_of(table, number, files),
            content_offset=4 + 50 * (number % VECTORS_A_FILE),
            content_size_in_bytes=50,
        )
        made.spec_id = table.spec().spec_id
        yield made


class Given:
    """A change that adds delete files (``table.commit.row_delta.RowChange``)."""

    def __init__(self, deletes: Sequence[DataFile]) -> None:
        self._deletes = deletes

    def resolve(self) -> Change:
        return Change(deletes=self._deletes)

    def obsolete(self) -> list[str]:
        return []

    def touches(self, data_file: str) -> bool:
        return bool(data_file)


def with_vectors(catalog: Any, name: str, files: int) -> Any:
    """Give each data file of a table that ``made_table`` made a vector."""
    table = catalog.load_table(name)
    for start in range(0, files, FILES_A_MANIFEST):
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as producer:
            producer.apply(Given(list(vectors(table, range(start, min(files, start + FILES_A_MANIFEST)), files))))
    return catalog.load_table(name)


def made_table(catalog: Any, name: str, files: int, *, plain: bool = False) -> Any:
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="part"))
    table = catalog.create_table(name, schema(), partition_spec=spec, properties={} if plain else {"encryption.key-id": "keyA"})
    for start in range(0, files, FILES_A_MANIFEST):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number in range(start, min(files, start + FILES_A_MANIFEST)):
                append.append_data_file(data_file(table, number, files, plain=plain))
    return catalog.load_table(name)
