"""Avro files: read by rows and by columns, checked block by block, and written."""
