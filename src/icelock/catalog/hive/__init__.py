"""The Hive catalog."""

from icelock.catalog.hive.catalog import HiveCatalog

__all__ = ["HiveCatalog"]
