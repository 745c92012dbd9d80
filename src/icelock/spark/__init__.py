"""PySpark on encrypted tables: ``register`` a session, then ``format("icelock")``, ``write_to``, ``delete``, ``upsert``, ``add_files``."""

from icelock.spark.rows import add_files, delete, upsert
from icelock.spark.session import register
from icelock.spark.write_to import write_to

__all__ = ["add_files", "delete", "register", "upsert", "write_to"]
