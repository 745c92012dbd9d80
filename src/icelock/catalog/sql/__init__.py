"""The SQL catalog."""

from icelock.catalog.sql.catalog import SqlCatalog

__all__ = ["SqlCatalog"]
