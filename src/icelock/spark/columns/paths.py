"""How Spark's functions are told a column by the names that lead to it (``metadata.schema_paths``).

Not here: columns by the names that Spark asks for (``spark.columns.projection``), what filters call them (``spark.native.columns``).
"""

from __future__ import annotations


def quoted(*names: str) -> str:
    """Return a column's path as Spark's functions take it, whatever is in the names."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
