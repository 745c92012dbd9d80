"""What an executor does for a read: the files of one split become Spark's batches. Importing this module loads no catalog and no KMS.

All tasks of a scan share a ``ReadPlan``. It is plain data without keys; each split has those of its own files.

Not here: planning (``spark.driver.plan_read``), reading a file (``arrow.read.task``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from icelock.errors import PolicyError
from icelock.spark.task.imports import forget_folders_in_zips
from icelock.spark.task.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

    from icelock.arrow.read.context import ReadContext
    from icelock.plan.task import ScanTask


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """A scan without its files; schemas, specs and the name mapping are Iceberg's JSON, ``spark_schema`` is Spark's."""

    spark_schema: str
    schema: str
    table_schema: str
    row_filter: BooleanExpression
    specs: Mapping[int, str]
    name_mapping: str | None
    storage: Mapping[str, str]
    location: str
    allow_plaintext: bool

    @classmethod
    def of(cls, context: ReadContext, spark_schema: StructType, storage: Mapping[str, str], location: str) -> ReadPlan:
        """Return the plan of a scan; ``storage`` are the FileIO's properties that executors may have."""
        from icelock.metadata.canonical_json import schema_json, spec_json

        return cls(
            spark_schema=spark_schema.json(),
            schema=schema_json(context.schema),
            table_schema=schema_json(context.table_schema),
            row_filter=context.row_filter,
            specs={spec_id: spec_json(spec) for spec_id, spec in context.specs.items()},
            name_mapping=None if context.name_mapping is None else context.name_mapping.model_dump_json(),
            storage=dict(storage),
            location=location,
            allow_plaintext=context.allow_plaintext,
        )

    def context(self) -> ReadContext:
        """Return the scan's context, with a new FileIO."""
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.table.name_mapping import NameMapping

        from icelock.arrow.read.context import ReadContext
        from icelock.io.storage import open_storage
        from icelock.metadata.column_types import schema_from_json

        return ReadContext(
            schema=schema_from_json(self.schema),
            table_schema=schema_from_json(self.table_schema),
            row_filter=self.row_filter,
            specs={spec_id: PartitionSpec.model_validate_json(spec) for spec_id, spec in self.specs.items()},
            name_mapping=None if self.name_mapping is None else NameMapping.model_validate_json(self.name_mapping),
            io=open_storage(dict(self.storage), self.location),
            allow_plaintext=self.allow_plaintext,
        )


class ExecutorReader(DataSourceReader):
    """A reader on executors: its splits were planned in the driver."""

    def partitions(self) -> Any:
        """Refuse: only the driver plans."""
        raise PolicyError("an executor does not plan")


class TaskReader(ExecutorReader):
    """The reader of a scan on executors."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split's files that the plan's filter keeps, in exactly Spark's Arrow form; errors as ``read_task``."""
        tasks = partition.tasks if isinstance(partition, Split) else []
        if not tasks:
            return
        from icelock.arrow.read.task import read_task
        from icelock.spark.columns.batches import spark_batch
        from icelock.spark.columns.types import arrow_schema

        forget_folders_in_zips()
        context = self._plan.context()
        schema = arrow_schema(StructType.fromJson(json.loads(self._plan.spark_schema)))
        for task in tasks:
            for batch in read_task(context, task):
                yield spark_batch(batch, schema)


class StreamSplit(Split):
    """The data files of one task of a stream's batch, with what their reader needs: Spark plans a reader once for all batches."""

    def __init__(self, tasks: Sequence[ScanTask], plan: ReadPlan | None) -> None:
        super().__init__(tasks)
        self.plan = plan


class StreamTaskReader(DataSourceStreamReader):
    """The reader of a stream on executors."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split, as ``TaskReader``."""
        plan = partition.plan if isinstance(partition, StreamSplit) else None
        return iter(()) if plan is None else TaskReader(plan).read(partition)
