"""What an executor does for a large metadata table of files or entries: the manifests of its task become rows, without keys.

Not here: whether a table is large (``spark.statements.metadata_tables``), columns and rows (``table.metadata_tables``), partitions and
position deletes, which take two steps (``spark.task.list_parts``).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from icelock.spark.sealed.splits import open_splits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.metadata import TableMetadata

_BATCH_ROWS: Final = 2048
# What reading a manifest needs of its row in the manifest list.
_NEEDED: Final = (
    "manifest_path",
    "manifest_length",
    "partition_spec_id",
    "content",
    "sequence_number",
    "min_sequence_number",
    "added_snapshot_id",
    "key_metadata",
    "first_row_id",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPlan:
    """What all tasks share: which table, metadata of the table without history and keys, Spark's schema, storage settings."""

    kind: str
    metadata: str
    schema: str
    storage: Mapping[str, str]

    @classmethod
    def of(cls, kind: str, metadata: TableMetadata, schema: str, storage: Mapping[str, str]) -> Self:
        """Return the plan for columns (``schema`` is Spark's JSON) of the metadata table ``kind``."""
        from icelock.metadata.table_metadata import without_history

        return cls(kind=kind, metadata=without_history(metadata).model_dump_json(), schema=schema, storage=dict(storage))

    def open(self) -> tuple[TableMetadata, FileIO]:
        """Return the table's metadata, and its storage."""
        from icelock.io.storage import open_storage
        from icelock.metadata.table_metadata import parse_metadata

        metadata = parse_metadata(self.metadata, location="the metadata that the driver sent")
        return metadata, open_storage(dict(self.storage), metadata.location)

    def batches(self, rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        """Yield rows in exactly Spark's Arrow form."""
        import pyarrow as pa

        schema = self.arrow_schema
        return (pa.RecordBatch.from_pylist(some, schema=schema) for some in chunks(rows))

    @property
    def arrow_schema(self) -> pa.Schema:
        """Spark's schema as Arrow has it."""
        from pyspark.sql.types import StructType

        from icelock.spark.columns.types import arrow_schema

        return arrow_schema(StructType.fromJson(json.loads(self.schema)))


def manifest_split(manifest: ManifestFile) -> dict[str, Any]:
    """Return a manifest as plain values, its key metadata too."""
    return {name: getattr(manifest, name) for name in _NEEDED}


def list_files(plan: ListPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the sealed manifests of one task, as ``rows_of_manifests`` makes them; same errors."""
    from icelock.table.metadata_tables.rows import rows_of_manifests

    metadata, io = plan.open()
    for manifest in open_manifests(key, rows):
        yield from plan.batches(rows_of_manifests(plan.kind, metadata, io, [manifest]))


def open_manifests(key: bytes, rows: Iterable[pa.RecordBatch]) -> Iterator[ManifestFile]:
    """Yield the manifests of sealed rows; one that was changed is an IntegrityError."""
    from icelock.metadata.manifest import ManifestFile

    for split in open_splits(key, rows):
        yield ManifestFile.from_args(**split)


def chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield some rows at a time."""
    left = iter(rows)
    while some := list(itertools.islice(left, _BATCH_ROWS)):
        yield some
