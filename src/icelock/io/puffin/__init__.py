"""Puffin files, which hold deletion vectors: read and written."""
