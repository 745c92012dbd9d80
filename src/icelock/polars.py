"""Polars: encrypted tables as lazy sources, ``scan(table)`` (``table.read.polars_source``)."""

from icelock.table.read.polars_source import scan

__all__ = ["scan"]
