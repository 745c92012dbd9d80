"""The Hive catalog."""

from __future__ import annotations

from icelock.catalog.hive.catalog import HiveCatalog

__all__ = ["HiveCatalog"]
