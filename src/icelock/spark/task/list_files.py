"""What an executor does for a large metadata table of files or entries: the manifests of its task become rows, without keys.

Not here: whether a table is large (``spark.statements.metadata_tables``), columns and rows (``table.metadata_tables``).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from icelock.spark.sealed.splits import open_split

if TYPE_CHECKING:
    import pyarrow as pa
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


def manifest_split(manifest: ManifestFile) -> dict[str, Any]:
    """Return a manifest as plain values, its key metadata too."""
    return {name: getattr(manifest, name) for name in _NEEDED}


def list_files(plan: ListPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the sealed manifests of one task, as ``rows_of_manifests`` makes them; same errors."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from icelock.io.storage import open_storage
    from icelock.metadata.manifest import ManifestFile
    from icelock.metadata.table_metadata import parse_metadata
    from icelock.spark.columns.types import arrow_schema
    from icelock.table.metadata_tables.rows import rows_of_manifests

    metadata = parse_metadata(plan.metadata, location="the metadata that the driver sent")
    io = open_storage(dict(plan.storage), metadata.location)
    schema = arrow_schema(StructType.fromJson(json.loads(plan.schema)))
    for sealed in (value.as_py() for batch in rows for value in batch.column(0)):
        manifest = ManifestFile.from_args(**open_split(key, sealed))
        for some in _chunks(rows_of_manifests(plan.kind, metadata, io, [manifest])):
            yield pa.RecordBatch.from_pylist(some, schema=schema)


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    left = iter(rows)
    while some := list(itertools.islice(left, _BATCH_ROWS)):
        yield some
