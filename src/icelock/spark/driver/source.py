"""The data source "icelock": one class for the processes of the driver, and none of it for executors.

Spark creates the source object in one Python process of the driver (``schema``), plans reads in another (``reader``, ``partitions``), and
writes in a third (``writer``). A stream has two more (``streamReader``, ``streamWriter``). The class is pickled by value, as it is made in
a function, so its settings come along.

Spark also puts the source object into the function that it sends to executors (pyspark ``plan_data_source_read.py``, free variable
``data_source``), which would send the class, its settings and the KMS's keys. So an object is pickled with its class only on its way to
planning, before it was unpickled or used; afterwards its pickle is a ``SpentSource``, without settings.

Not here: planning (``spark.driver.plan_read``), writing (``spark.driver.plan_write``), streams (``stream_source``, ``stream_sink``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource

from icelock.errors import PolicyError
from icelock.spark.settings.options import ReadOptions
from icelock.spark.settings.session import Settings
from icelock.spark.settings.stream_options import schema_read
from icelock.spark.settings.write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from icelock.spark.driver.loaded import Loaded
    from icelock.spark.sealed.job import Job

NAME = "icelock"


class SpentSource(DataSource):
    """What executors get of a source object: its name."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        super().__init__(dict(options or {}))

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> NoReturn:
        """Refused: this object has no settings."""
        raise PolicyError("this copy of the icelock data source was used for planning and has no settings")


class IcelockSource(DataSource):
    """The data source in the driver; ``data_source`` returns the class to register."""

    settings: ClassVar[Settings] = Settings()

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._loaded: Loaded | None = None
        self._spent = False

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> StructType:
        """Return the schema that the options ask for; no key is needed."""
        from icelock.spark.driver.plan_read import job_schema
        from icelock.spark.sealed.job import Job

        found, self._loaded = job_schema(self.settings, self._given_job() or Job.of_read(schema_read(self.options)))
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one scan."""
        from icelock.spark.driver.plan_read import job_reader

        self._spent = True
        return job_reader(self.settings, self._read_job(), schema, self._loaded)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return the writer of one job."""
        from icelock.spark.driver.plan_write import plan_write
        from icelock.spark.sealed.job import Job

        self._spent = True
        job = self._given_job() or Job.of_write(WriteOptions.parse(self.options, overwrite=overwrite), overwrite=overwrite)
        return plan_write(self.settings, job, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        from icelock.spark.driver.stream_source import stream_source

        self._spent = True
        return stream_source(self.settings, self.options, schema, self._loaded)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 - Spark's signature
        """Return what plans the write of a batch; in the process that Spark sends this object to, what commits it."""
        from icelock.spark.driver.stream_sink import BatchCommit, plan_batch

        if self._spent:
            return BatchCommit(self.settings)
        self._spent = True
        return plan_batch(self.settings, self.options, schema, overwrite=overwrite)

    def _read_job(self) -> Job:
        from icelock.spark.sealed.job import Job

        return self._given_job() or Job.of_read(ReadOptions.parse(self.options))

    def _given_job(self) -> Job | None:
        """Return the job that ``read``, ``write_to``, ``delete`` or ``upsert`` put into the options, if any."""
        from icelock.spark.sealed.job import JOB, Job

        sealed = self.options.get(JOB)
        return None if sealed is None else Job.open(self.settings, sealed)

    def __reduce__(self) -> Any:
        if self._spent:
            return SpentSource, ()
        return _restored, (type(self), dict(self.options), self._loaded)


def _restored(cls: type[IcelockSource], options: Mapping[str, str], loaded: Loaded | None) -> IcelockSource:
    """Return the object from a pickle; its own pickle has no settings."""
    source = cls(options)
    source._loaded = loaded
    source._spent = True
    return source


def data_source(given: Settings) -> type[DataSource]:
    """Return the class to register; as a local class it is pickled by value, with its settings."""

    class Icelock(IcelockSource):
        settings = given

    return Icelock
