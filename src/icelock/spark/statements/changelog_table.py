"""The table ``catalog.namespace.table.changes``: the rows that snapshots inserted and deleted, with Java's columns.

Which snapshots, options of the read say, as for what was appended; updates and net changes are options too. Java's table also has rows that
were only moved, and refuses snapshots with delete files.

Not here: the rows (``spark.driver.changelog``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from icelock.errors import PolicyError
from icelock.spark.columns.types import quoted
from icelock.spark.driver.changelog import changelog_rows
from icelock.spark.driver.plan_changes import changelog_schema, changes_of, wanted_of
from icelock.spark.settings.options import CHANGES, TABLE, ReadOptions, TableName
from icelock.spark.statements.asked import Asked, StatementSession
from icelock.table.plain import AnyTable


def load_changes(session: StatementSession, table: AnyTable, name: TableName, at: ReadOptions) -> dict[str, Any]:
    """Return what Spark has to know of the table of changes; of a version is a PolicyError."""
    if any(given is not None for given in (at.snapshot_id, at.as_of_ms, at.tag)):
        raise PolicyError(f"{name}.{CHANGES} has what lies between snapshots: give start-snapshot-id and end-snapshot-id, not one version")
    whole = f"{name}.{CHANGES}"
    table = table.at_one_version()
    shown = changelog_schema(changes_of(table, at), whole)

    def rows(asking: StatementSession, asked: Asked) -> int:
        given: Mapping[str, str] = asked["options"]
        options = ReadOptions.parse({TABLE: str(name), **given}) if given else at
        options = replace(options, columns=None)  # Spark asks for those that it wants, and rows are compared whole
        changes = changes_of(table, options)
        if changelog_schema(changes, whole) != shown:
            raise PolicyError(f"the columns of {name} were others at the end of these changes: read them by create_changelog_view")
        found = changelog_rows(asking.spark, table, changes, whole, wanted_of(table, options))
        return asking.give(found.select(*(quoted(column) for column in asked["columns"])))

    return {
        "target": session.target({"rows": rows}),
        "name": whole,
        "schema": shown.json(),
        "properties": {},
        "partitioning": [],
        "metadata_columns": [],
        "key": f"{table.metadata.table_uuid} {table.metadata_location} {CHANGES} {at}",
        "writable": False,
    }
