"""The REST catalog."""

from __future__ import annotations

from icelock.catalog.rest.catalog import RestCatalog

__all__ = ["RestCatalog"]
