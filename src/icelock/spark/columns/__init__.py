"""Spark's types, columns and conditions, and Iceberg's."""
