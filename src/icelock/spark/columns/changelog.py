"""From what files lost and gained to what changed, in Spark's expressions: the rules of ``table.changes``, for rows of any number.

1. A version of a row (row id and last update) that is lost and gained is no change.
2. A row id that is lost and gained otherwise is an update; one that changed no value is no change.
3. Other rows that are lost and gained with equal values are no change.
4. With identifier columns, in place of 2: a lost and a gained row of one identifier are an update.

All within one snapshot, or for net changes within all of them. Each is a window: Spark shuffles, sorts and, if rows do not fit into
memory, spills as for any query. Where no row has an id (before format version 3), 1 and 2 are left out. A window's first column is one
that tells rows apart, since Spark's sort compares its first eight bytes first. Equal values are as for ``arrow.row_texts``.

Not here: reading the rows (``spark.task.read_changes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql import types as sp

from icelock.metadata.metadata_columns import CHANGE_COLUMNS, ChangeType
from icelock.spark.columns.types import quoted
from icelock.table.changes.telling import Wanted

TYPE, ORDINAL, SNAPSHOT = (field.name for field in CHANGE_COLUMNS)
ROW_ID: Final = "_icelock_row_id"
UPDATED: Final = "_icelock_last_updated"
_PLACE: Final = "_icelock_place"
_PAIR: Final = "_icelock_pair"
_VALUES: Final = "_icelock_values"
_LOST: Final = "_icelock_lost"
_GAINED: Final = "_icelock_gained"
_NUMBER: Final = "_icelock_number"
_LEFT: Final = (Window.unboundedPreceding, Window.unboundedFollowing)


def changelog(rows: DataFrame, how: Wanted, *, numbered: bool = True) -> DataFrame:
    """Return the changes in rows that files lost and gained; both have the table's columns and those of a changelog.

    ``rows`` also have row ids and last updates, under the names here; if they are not ``numbered``, all of these are null.
    """
    names = [name for name in rows.columns if name not in {ROW_ID, UPDATED}]
    of_table = [field for field in rows.schema.fields if field.name in names and field.name not in {TYPE, ORDINAL, SNAPSHOT}]
    values = f.struct(*(_comparable(f.col(quoted(field.name)), field.dataType) for field in of_table))
    within = [] if how.net_changes else [f.col(ORDINAL)]
    place = f.coalesce(f.col(ROW_ID), f.xxhash64(values)) if numbered else f.xxhash64(values)
    found = rows.withColumn(_PLACE, place).repartition(*within, f.col(_PLACE)).withColumn(_VALUES, values)
    found = _paired(found, how) if numbered else found.withColumn(_PAIR, f.lit(None).cast("long"))
    # Equal rows that have an id may have two, and so stand at two places.
    equal = f.xxhash64(_VALUES) if numbered else f.col(_PLACE)
    found = _without_equal(found, [equal, *within, f.col(_PAIR), f.col(_VALUES)], only=f.col(_PAIR).isNull())
    if how.identifier_fields:
        found = _identified(found, within, how.identifier_fields, of_table)
    if how.updates:
        label = f.when(f.col(_PAIR).isNull(), f.col(TYPE)).when(_is_lost(), ChangeType.UPDATE_BEFORE.value)
        label = label.otherwise(ChangeType.UPDATE_AFTER.value)
        found = found.withColumn(TYPE, label)
    return found.select(*(quoted(name) for name in names))


def _paired(rows: DataFrame, how: Wanted) -> DataFrame:
    """Take out what row ids say is no change, and mark updates as pairs, unless identifier columns do."""
    version = [f.col(_PLACE), f.col(ROW_ID), f.col(UPDATED)]
    for snapshots in ([f.col(ORDINAL)], []) if how.net_changes else ([f.col(ORDINAL)],):  # within each, then of all
        rows = _without_equal(rows, [*version, *snapshots], only=f.col(ROW_ID).isNotNull())
    if how.identifier_fields:
        return rows.withColumn(_PAIR, f.lit(None).cast("long"))
    return _updated(rows, [f.col(_PLACE), f.col(ROW_ID), *([] if how.net_changes else [f.col(ORDINAL)])])


def _is_lost() -> Column:
    return f.col(TYPE) == ChangeType.DELETE.value


def _counted(rows: DataFrame, by: Sequence[Column]) -> DataFrame:
    """Add how many rows of a group were lost and gained, and each row's number: lost ones first, later snapshots first."""
    window = Window.partitionBy(*by).orderBy(f.col(TYPE), f.col(ORDINAL).desc())
    lost = f.sum(f.when(_is_lost(), 1).otherwise(0)).over(window.rowsBetween(*_LEFT))
    return rows.withColumns(
        {_LOST: lost, _GAINED: f.count("*").over(window.rowsBetween(*_LEFT)) - lost, _NUMBER: f.row_number().over(window)}
    )


def _without_equal(rows: DataFrame, by: Sequence[Column], *, only: Column) -> DataFrame:
    """Take out one lost row for each gained one of a group; of rows that are ``only``."""
    lost, gained, number = f.col(_LOST), f.col(_GAINED), f.col(_NUMBER)
    left = f.when(_is_lost(), number <= lost - gained).otherwise(number - lost <= gained - lost)
    return _counted(rows, by).filter(~only | left)


def _updated(rows: DataFrame, by: Sequence[Column]) -> DataFrame:
    """Mark the two rows of a row id as a pair; those with equal values are taken out."""
    window = Window.partitionBy(*by).orderBy(f.col(TYPE), f.col(ORDINAL).desc()).rowsBetween(*_LEFT)
    pair = f.col(ROW_ID).isNotNull() & (f.col(_LOST) > 0) & (f.col(_GAINED) > 0)
    same = f.first(_VALUES).over(window).eqNullSafe(f.last(_VALUES).over(window))
    counted = _counted(rows, by).withColumns({_PAIR: f.when(pair, f.col(ROW_ID)), _NUMBER: f.when(pair & same, 0).otherwise(1)})
    return counted.filter(f.col(_NUMBER) > 0)


def _identified(rows: DataFrame, within: Sequence[Column], identifiers: Sequence[str], of_table: Sequence[sp.StructField]) -> DataFrame:
    kinds = {field.name: field.dataType for field in of_table}
    counted = _counted(rows, [*(_comparable(f.col(quoted(name)), kinds[name]) for name in identifiers), *within])
    both = (f.col(_LOST) > 0) & (f.col(_GAINED) > 0)
    twice = f.raise_error(
        f"identifier columns ({', '.join(identifiers)}) do not tell rows apart: several rows with one identifier changed at once, so it is "
        "unknown which became which. Give columns that are unique, or none, which takes row ids"
    ).cast("long")
    return counted.withColumn(_PAIR, f.when(both & ((f.col(_LOST) > 1) | (f.col(_GAINED) > 1)), twice).when(both, f.lit(0)))


def _comparable(column: Column, kind: sp.DataType) -> Column:
    """Return a value that Spark compares and sorts: zeros of floats as texts too, since it takes -0.0 for 0.0; maps as their entries."""
    if isinstance(kind, (sp.FloatType, sp.DoubleType)):
        return f.struct(column.alias("value"), f.when(column == 0, column.cast("string")).alias("zero"))
    if isinstance(kind, sp.StructType):
        fields = [_comparable(column.getField(field.name), field.dataType).alias(f"f{number}") for number, field in enumerate(kind.fields)]
        return f.when(column.isNull(), f.lit(None)).otherwise(f.struct(*fields)) if fields else column
    if isinstance(kind, sp.ArrayType):
        return f.transform(column, lambda value: _comparable(value, kind.elementType))
    if isinstance(kind, sp.MapType):
        entries = sp.StructType([sp.StructField("key", kind.keyType), sp.StructField("value", kind.valueType)])
        return f.transform(f.map_entries(column), lambda entry: _comparable(entry, entries))
    return column
