"""The Glue catalog."""

from __future__ import annotations

from icelock.catalog.glue.catalog import GlueCatalog

__all__ = ["GlueCatalog"]
