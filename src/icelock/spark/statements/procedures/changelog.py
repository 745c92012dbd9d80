"""The procedure ``create_changelog_view``. Source: Java's procedure of that name (1.12).

Unlike Java it takes tables with delete files, finds updates by row ids where neither the call nor the table names identifier columns,
and tells net changes with updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from icelock.spark.columns.types import quoted
from icelock.spark.driver.changelog import changelog_rows
from icelock.spark.driver.plan_changes import changes_of, wanted_of
from icelock.spark.settings.catalogs import any_table_of
from icelock.spark.settings.options import TABLE, ReadOptions
from icelock.spark.statements.procedures.call import Call, Procedure


def _create_changelog_view(call: Call) -> Sequence[Sequence[Any]]:
    """Make a temporary view of the changes, as the table is now; return its name."""
    name = call.name
    table = any_table_of(call.session.catalog(call.catalog), name)
    options = _options(call)
    changes = changes_of(table, options)
    view = call["changelog_view"] if call["changelog_view"] is not None else quoted(f"{name.identifier[-1]}_changes")
    changelog_rows(call.session.spark, table, changes, str(name), wanted_of(table, options)).createOrReplaceTempView(view)
    return [(view,)]


def _options(call: Call) -> ReadOptions:
    """Return the options of the call, with those that are arguments."""
    options = ReadOptions.parse({TABLE: str(call.name), **(call["options"] or {})})
    if call["compute_updates"] is not None:
        options = replace(options, updates=call["compute_updates"])
    if call["identifier_columns"] is not None:
        options = replace(options, identifiers=tuple(call["identifier_columns"]))
    return replace(options, columns=None, net=options.net if call["net_changes"] is None else call["net_changes"])


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
