"""``merge``: a ``MERGE INTO`` of Spark SQL, clause by clause, that returns what it did.

    changes = icelock.spark.merge(spark, "lake.shop.orders", rows, on="t.id = s.id")
    changes.when_matched_delete(condition="s.gone").when_matched_update().when_not_matched_insert().execute()

In conditions and values, which are SQL, ``t`` is the table and ``s`` the source. Clauses are tried in the order in which they are given.

Not here: the statement (``spark.statements``), updates by key without clauses (``upsert``).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from icelock.errors import PolicyError
from icelock.spark.arguments import checked
from icelock.spark.columns.types import quoted
from icelock.spark.driver.this_batch import with_offsets
from icelock.spark.settings.options import TableName
from icelock.spark.settings.session import is_classic, settings_of
from icelock.table.change_result import ChangeResult
from icelock.table.epochs import Epoch


@checked
def merge(spark: SparkSession, table: str, source: DataFrame, on: str | Sequence[str]) -> MergeBuilder:
    """Return a merge of a DataFrame into ``catalog.namespace.table``, to which clauses are added.

    Args:
        spark: a classic session that ``register`` was called with.
        table: the dotted name.
        source: the rows to merge, at most one for each row of the table.
        on: when a row of the source matches one of the table: SQL, such as ``"t.id = s.id"``, or names of columns that are equal in both.

    Raises:
        PolicyError: the session is not registered or is one of Spark Connect, nothing is named to match on, or the source is no DataFrame.
    """
    settings_of(spark)
    if not is_classic(spark):
        raise PolicyError("icelock.spark.merge needs a classic session, and this is a Spark Connect session: use icelock.spark.upsert")
    if not isinstance(on, str):
        on = " and ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in on)
    if not on.strip():
        raise PolicyError('merge needs to know which rows match: on="t.id = s.id", or names of columns')
    return MergeBuilder(spark, TableName.parse(table), source, on)


class MergeBuilder:
    """Clauses of a merge; ``execute`` runs it, in one commit."""

    def __init__(self, spark: SparkSession, table: TableName, source: DataFrame, on: str) -> None:
        self._spark = spark
        self._table = table
        self._source = source
        self._on = on
        self._clauses: list[str] = []
        self._evolves = False
        self._epoch: Epoch | None = None

    def when_matched_update(self, values: Mapping[str, str] | None = None, *, condition: str | None = None) -> Self:
        """Set columns of a row that matches: names and SQL; None: all columns, from those of the source."""
        return self._add("matched", condition, f"update set {_assignments(values)}")

    def when_matched_delete(self, *, condition: str | None = None) -> Self:
        """Delete a row that matches."""
        return self._add("matched", condition, "delete")

    def when_not_matched_insert(self, values: Mapping[str, str] | None = None, *, condition: str | None = None) -> Self:
        """Insert a row of the source that matches no row: names and SQL; None: all columns."""
        if values is None:
            return self._add("not matched", condition, "insert *")
        names = ", ".join(quoted(name) for name in values)
        return self._add("not matched", condition, f"insert ({names}) values ({', '.join(values.values())})")  # noqa: S608 - the user's

    def when_not_matched_by_source_update(self, values: Mapping[str, str], *, condition: str | None = None) -> Self:
        """Set columns of a row of the table that no row of the source matches."""
        return self._add("not matched by source", condition, f"update set {_assignments(values)}")

    def when_not_matched_by_source_delete(self, *, condition: str | None = None) -> Self:
        """Delete a row of the table that no row of the source matches."""
        return self._add("not matched by source", condition, "delete")

    def with_schema_evolution(self) -> Self:
        """Add the source's new columns to the table."""
        self._evolves = True
        return self

    def of_batch(self, query: str, number: int) -> Self:
        """Say which batch of which stream this is, for ``foreachBatch``: if the table has that batch, nothing is done."""
        self._epoch = Epoch.of(query, number)
        return self

    def execute(self) -> ChangeResult:
        """Run the merge.

        Raises:
            PolicyError: no clause.
            AnalysisException, SparkRuntimeException: Spark's own, such as two rows of the source for one of the table.
            ValidationException: another writer's commit conflicts with this one; nothing was changed.
        """
        if not self._clauses:
            raise PolicyError(f"the merge into {self._table} has no clause: add when_matched_update() or another one")
        from icelock.spark.statements.session import results_of

        view = f"icelock_merge_{uuid.uuid4().hex}"
        self._source.createOrReplaceTempView(view)
        evolution = " with schema evolution" if self._evolves else ""
        table = quoted(self._table.catalog, *self._table.identifier)
        statement = f"merge{evolution} into {table} as t using {view} as s on {self._on} {' '.join(self._clauses)}"
        try:
            return results_of(self._spark).of(lambda: self._spark.sql(statement).collect(), with_offsets(self._spark, self._epoch))
        finally:
            self._spark.catalog.dropTempView(view)

    def _add(self, when: str, condition: str | None, action: str) -> Self:
        also = "" if condition is None else f" and ({condition})"
        self._clauses.append(f"when {when}{also} then {action}")
        return self


def _assignments(values: Mapping[str, str] | None) -> str:
    return "*" if values is None else ", ".join(f"t.{quoted(name)} = {value}" for name, value in values.items())
