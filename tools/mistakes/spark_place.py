"""Where mistakes in Spark are run: the lake of ``place``, known to a classic session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from tools.mistakes.mistake import Mistake
from tools.mistakes.place import SCHEMA, Place, orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkPlace:
    """A place with a session; ``spark`` knows its catalog as ``lake``, and ``stopped`` is one that was stopped, or looks like it."""

    def __init__(self, place: Place, spark: SparkSession, stopped: Any = None) -> None:
        import icelock.spark  # noqa: PLC0415 - needs PySpark

        self._place = place
        self._spark = spark
        self._stopped = stopped or SimpleNamespace(createDataFrame=None, conf=None, sparkContext=SimpleNamespace(_jsc=None))
        icelock.spark.register(spark, {"lake": place.settings})
        place.catalog.create_namespace("passing")
        passing: Any = place.catalog.create_table("passing.orders", SCHEMA, properties={"encryption.key-id": "lake-key"})
        passing.append(orders())

    @classmethod
    @contextlib.contextmanager
    def started(cls, place: Place) -> Iterator[Self]:
        """Start a session, and stop it afterwards."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - likewise

        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        stopped = builder.getOrCreate()
        stopped.stop()
        spark = builder.getOrCreate()
        try:
            yield cls(place, spark, stopped)
        finally:
            spark.stop()

    def message(self, mistake: Mistake) -> str:
        """Run a mistake and return what is printed."""
        rows = self._spark.createDataFrame([(1, "Oslo", None)], "id bigint, city string, at timestamp")
        return self._place.message(mistake, {"spark": self._spark, "stopped": self._stopped, "df": rows})
