"""The REST catalog."""

from icelock.catalog.rest.catalog import RestCatalog

__all__ = ["RestCatalog"]
