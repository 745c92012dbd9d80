"""The data source "icelock": three driver processes, one class, and nothing of it for executors.

Spark makes the source object in one Python process of the driver (``schema``), plans in another (``reader``, ``partitions``), and
plans writes in a third (``writer``). The class travels to them by value, because it is made in a function: so its settings come along.

Spark also puts the source object into the function that it sends to executors (pyspark ``plan_data_source_read.py``, free variable
``data_source``), and with it would go the class, its settings, the KMS's keys. So an object is pickled with its class only on its way to
planning, that is before it was unpickled or used; afterwards it is pickled as a ``SpentSource``, which knows nothing.

Not here: planning (``spark.driver.plan_read``), writing (``spark.driver.plan_write``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from pyspark.sql.datasource import DataSource

from icelock.errors import PolicyError
from icelock.spark.settings.options import ReadOptions, WriteOptions
from icelock.spark.settings.session import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceReader, DataSourceWriter
    from pyspark.sql.types import StructType

    from icelock.spark.driver.plan_read import Loaded
    from icelock.spark.sealed.job import Job

NAME = "icelock"


class SpentSource(DataSource):
    """What executors get of a source object: its name, for messages."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        super().__init__(dict(options or {}))

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> NoReturn:
        """Refused: this object has no settings."""
        raise PolicyError("this copy of the icelock data source was used for planning already and holds no settings")


class IcelockSource(DataSource):
    """The data source in the driver; ``data_source`` makes the class that is registered."""

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
        """Return the schema of what the options ask for; no key is needed.

        Raises:
            PolicyError: wrong options, or a type that Spark has no exact type for.
        """
        job = self._job()
        if job is not None:
            from icelock.spark.driver.plan_job import job_schema

            found, self._loaded = job_schema(self.settings, job)
            return found
        from icelock.spark.driver.plan_read import load

        found, self._loaded = load(self.settings, ReadOptions.parse(self.options))
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one scan.

        Raises:
            PolicyError: wrong options, or columns that are not the table's.
        """
        self._spent = True
        job = self._job()
        if job is not None:
            from icelock.spark.driver.plan_job import job_reader

            return job_reader(self.settings, job, schema, self._loaded)
        from icelock.spark.driver.plan_read import plan_read

        return plan_read(self.settings, ReadOptions.parse(self.options), schema, self._loaded)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return the writer of one job; everything that can be refused is refused here.

        Raises:
            PolicyError: wrong options, a plain table, or rows that do not fit it.
            KeyUnavailableError: no KMS, or it refused.
        """
        from icelock.spark.driver.plan_write import plan_write

        self._spent = True
        job = self._job()
        if job is None:
            job = WriteOptions.parse(self.options, overwrite=overwrite).job(overwrite=overwrite)
        return plan_write(self.settings, job, schema)

    def _job(self) -> Job | None:
        """Return the job that ``write_to``, ``delete`` or ``upsert`` put into the options."""
        from icelock.spark.sealed.job import JOB, Job

        sealed = self.options.get(JOB)
        return None if sealed is None else Job.open(self.settings, sealed)

    def __reduce__(self) -> Any:
        if self._spent:
            return SpentSource, ()
        return _restored, (type(self), dict(self.options), self._loaded)

    @classmethod
    def restore(cls, options: Mapping[str, str], loaded: Loaded | None) -> Self:
        """Return the object on the other side of a pickle; it is not pickled with its settings again."""
        source = cls(options)
        source._loaded = loaded
        source._spent = True
        return source


def _restored(cls: type[IcelockSource], options: Mapping[str, str], loaded: Loaded | None) -> IcelockSource:
    return cls.restore(options, loaded)


def data_source(given: Settings) -> type[DataSource]:
    """Return the class to register; being local, it is pickled by value, settings included."""

    class Icelock(IcelockSource):
        settings = given

    return Icelock
