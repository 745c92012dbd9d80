"""PySpark on encrypted tables: ``register`` a session, then ``read``, ``sql``, ``write_to``, ``delete``, ``upsert`` ..."""

from icelock.spark.read_table import read
from icelock.spark.rows import add_files, delete, upsert
from icelock.spark.session import register
from icelock.spark.sql_tables import attach, sql
from icelock.spark.table_writer import write_to

__all__ = ["add_files", "attach", "delete", "read", "register", "sql", "upsert", "write_to"]
