"""The procedure ``create_changelog_view``. Source: Java's procedure of that name (1.12).

Unlike Java it takes tables with delete files, finds updates by row ids where neither the call nor the table names identifier columns,
and tells net changes with updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from icelock.errors import PolicyError
from icelock.spark.columns.changelog import Told
from icelock.spark.columns.types import quoted
from icelock.spark.driver.changelog import changelog_rows, changes_between
from icelock.spark.settings.catalogs import any_table_of
from icelock.spark.settings.options import TABLE, ReadOptions
from icelock.spark.statements.procedures.call import Call, Procedure


def _create_changelog_view(call: Call) -> Sequence[Sequence[Any]]:
    """Make a temporary view of the changes, as the table is now; return its name."""
    name = call.name
    table = any_table_of(call.session.catalog(call.catalog), name)
    changes = changes_between(table, ReadOptions.parse({TABLE: str(name), **(call["options"] or {})}))
    given = call["identifier_columns"]
    updates = call["compute_updates"] if call["compute_updates"] is not None else given is not None
    identifiers = tuple(given) if given is not None else tuple(sorted(table.schema().identifier_field_names())) if updates else ()
    unknown = [column for column in identifiers if column not in {field.name for field in changes.columns.fields}]
    if unknown:
        raise PolicyError(f"{call.procedure}: identifier column {unknown[0]!r} is no column of table {name}")
    told = Told(identifiers=identifiers, updates=updates, net=bool(call["net_changes"]))
    view = call["changelog_view"] if call["changelog_view"] is not None else quoted(f"{name.identifier[-1]}_changes")
    changelog_rows(call.session.spark, table, changes, str(name), told).createOrReplaceTempView(view)
    return [(view,)]


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "create_changelog_view": Procedure(
        description="Make a temporary view of the rows that changed between two snapshots",
        parameters={"table": "string"},
        optional={
            "changelog_view": "string",
            "options": "map<string, string>",
            "compute_updates": "boolean",
            "identifier_columns": "array<string>",
            "net_changes": "boolean",
        },
        result="changelog_view string not null",
        run=_create_changelog_view,
        changes=False,
    ),
}
