"""Avro files: read by rows and by columns, checked block by block, and written."""

from __future__ import annotations

from icelock.io.avro.read import AvroFile, RowDecoder

__all__ = ["AvroFile", "RowDecoder"]
