"""Where a column is in a schema of structs, and how Spark's functions are told so.

Not here: columns by the names that Spark asks for (``spark.columns.projection``), what filters call them (``spark.native.columns``).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.types import NestedField, StructType


def quoted(*names: str) -> str:
    """Return a column's path as Spark's functions take it, whatever is in the names."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def path_of(fields: Iterable[NestedField], field_id: int) -> tuple[str, ...]:
    """Return the names that lead to a field through structs, none if it is not among the fields; names may have dots in them."""
    for field in fields:
        if field.field_id == field_id:
            return (field.name,)
        below = path_of(field.field_type.fields, field_id) if isinstance(field.field_type, StructType) else ()
        if below:
            return (field.name, *below)
    return ()
