"""Changing rows that are there: delete, overwrite, upsert, and taking in files."""
