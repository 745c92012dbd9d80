"""PySpark data source for encrypted tables: ``register`` a session, then ``format("icelock")``."""

from icelock.spark.session import register

__all__ = ["register"]
