"""The SQL catalog."""

from __future__ import annotations

from icelock.catalog.sql.catalog import SqlCatalog

__all__ = ["SqlCatalog"]
