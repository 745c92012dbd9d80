"""Iceberg's metadata tables with the columns, types and rows of Java's; key metadata is always null (case J-05)."""
