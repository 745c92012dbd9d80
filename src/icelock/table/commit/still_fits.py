"""Whether what was written for one version of a table can be committed to a later one: no value may be lost or change its column.

Columns are identified by field id. Columns that were added, renamed or widened meanwhile do not matter to older files, nor does another
partition spec or sort order (as in Java). Other changes are conflicts here; Java commits them too, and silently loses the values of
dropped columns.

Not here: what other writers did to rows (``table.commit.conflicts``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyiceberg import types as ice
from pyiceberg.exceptions import ValidationException
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from icelock.metadata.schema_paths import child_fields

# Spec, "Schema Evolution": what a column may become.
_WIDER: Final = {
    ice.IntegerType: (ice.LongType,),
    ice.FloatType: (ice.DoubleType,),
    ice.DateType: (ice.TimestampType, ice.TimestampNanoType),
}


def check_still_fits(before: TableMetadata, now: TableMetadata, *, table: str) -> None:
    """Refuse, as a ValidationException, what was planned and written on ``before`` if it means something else on ``now``."""
    check_same_columns(before.schema(), now.schema(), table=table)
    spec = before.spec()
    if not any(known.spec_id == spec.spec_id and known.fields == spec.fields for known in now.partition_specs):
        raise ValidationException(
            f"table {table} no longer has partition spec {spec.spec_id}, with which this was written: nothing is committed; "
            "reload the table and retry"
        )


def check_same_columns(written: Schema, now: Schema, *, table: str) -> None:
    """Refuse a schema in which a column of ``written`` was dropped, or cannot hold the written values."""
    if written.as_struct() == now.as_struct():
        return
    changed = list(_changed(written.as_struct(), now.as_struct()))
    if changed:
        raise ValidationException(
            f"table {table} has other columns than when this was planned ({'; '.join(changed)}), so values would be lost: nothing is "
            "committed; reload the table and retry"
        )


def check_same_names(before: Schema, now: Schema, field_ids: Iterable[int], *, table: str) -> None:
    """Refuse renamed columns among those that are found by name: another column may have the name now."""
    for field_id in field_ids:
        name, found = before.find_column_name(field_id), now.find_column_name(field_id)
        if name != found:
            raise ValidationException(
                f"column {name!r} of table {table} is now called {found!r}: nothing is committed; reload the table and retry"
            )


def _changed(written: ice.IcebergType, now: ice.IcebergType, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Describe each written column that can no longer hold its values."""
    there = {field.field_id: field for field in child_fields(now)}
    for field in child_fields(written):
        name = f"{'.'.join((*above, field.name))!r} (id {field.field_id})"
        found = there.get(field.field_id)
        if found is None:
            yield f"{name} was dropped"
        elif not _takes(found.field_type, field.field_type):
            yield f"{name} was {_kind(field)} and is {_kind(found)}"
        else:
            if found.required and not field.required:
                yield f"{name} is now required"
            yield from _changed(field.field_type, found.field_type, (*above, field.name))


def _takes(now: ice.IcebergType, written: ice.IcebergType) -> bool:
    """Whether values of a type can be read as another; children are compared by ``_changed``."""
    if not isinstance(now, ice.PrimitiveType) or not isinstance(written, ice.PrimitiveType):
        return type(now) is type(written)
    if isinstance(written, ice.DecimalType) and isinstance(now, ice.DecimalType):
        return written.scale == now.scale and written.precision <= now.precision
    return written == now or isinstance(written, ice.UnknownType) or isinstance(now, _WIDER.get(type(written), ()))


def _kind(field: ice.NestedField) -> str:
    kind = field.field_type
    return str(kind) if isinstance(kind, ice.PrimitiveType) else type(kind).__name__.removesuffix("Type").lower()
