"""The Glue catalog."""

from icelock.catalog.glue.catalog import GlueCatalog

__all__ = ["GlueCatalog"]
