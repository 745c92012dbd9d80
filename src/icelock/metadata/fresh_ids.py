"""Ids for the schema, partition spec and sort order of a table that is created or replaced (Java TableMetadata.buildReplacement).

A column keeps the id of the former column with its full name; others get ids that the table never used. Partition fields keep theirs by
source column and transform. Columns keep their defaults.

Not here: whether a change is allowed (``table.guard.rules``), the updates (``table.new_table``).
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Iterable

from pyiceberg.partitioning import PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema, _SetFreshIDs, pre_order_visit
from pyiceberg.types import IcebergType, StructType


def fresh_schema(schema: Schema, base: Schema | None = None, last_column_id: int = 0) -> Schema:
    """Return a schema with new ids.

    Args:
        schema: its ids only tell its fields apart.
        base: the table's current schema, if there is one.
        last_column_id: the highest id that the table ever used.
    """
    known = {} if base is None else {base.find_column_name(field_id): field_id for field_id in base.field_ids}
    # PyIceberg's visitor returns a schema for a schema, but its types do not say so.
    return pre_order_visit(schema, _FreshIds(schema, known, last_column_id))  # type: ignore[return-value]


def fresh_spec(
    spec: PartitionSpec, given: Schema, fresh: Schema, earlier: Iterable[PartitionSpec] = (), last_field_id: int = 999
) -> PartitionSpec:
    """Return a spec on the columns of ``fresh``, with the field ids of ``earlier`` specs where source and transform are equal.

    Raises:
        ValueError: a source column that ``given`` lacks, or a name that is taken (PyIceberg's errors).
    """
    named = assign_fresh_partition_spec_ids(spec, given, fresh)
    known = {(field.source_id, str(field.transform)): field.field_id for before in earlier for field in before.fields}
    ids = itertools.count(last_field_id + 1)
    found = [known.get((field.source_id, str(field.transform))) or next(ids) for field in named.fields]
    fields = (field.model_copy(update={"field_id": field_id}) for field, field_id in zip(named.fields, found, strict=True))
    return PartitionSpec(*fields, spec_id=named.spec_id)


class _FreshIds(_SetFreshIDs):
    """PyIceberg's visitor, with ids by name, and with the defaults that it drops."""

    def __init__(self, schema: Schema, known: dict[str | None, int], last_column_id: int) -> None:
        super().__init__(itertools.count(last_column_id + 1).__next__)
        self._given = schema
        self._known = known

    def _get_and_increment(self, current_id: int) -> int:
        known = self._known.get(self._given.find_column_name(current_id))
        self.old_id_to_new_id[current_id] = self.next_id_func() if known is None else known
        return self.old_id_to_new_id[current_id]

    def struct(self, struct: StructType, field_results: builtins.list[Callable[[], IcebergType]]) -> StructType:
        plain = super().struct(struct, field_results)
        pairs = zip(plain.fields, struct.fields, strict=True)
        defaults = ("initial_default", "write_default")
        return StructType(*(made.model_copy(update={name: getattr(given, name) for name in defaults}) for made, given in pairs))
