"""Puffin files, which hold deletion vectors: read and written."""

from __future__ import annotations

from icelock.io.puffin.read import decode_deletion_vector

__all__ = ["decode_deletion_vector"]
