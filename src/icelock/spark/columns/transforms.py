"""Partition transforms as Spark columns, with Iceberg's values in any session time zone (spec, "Partition Transforms", Appendix B).

    bucket of whole numbers, dates, timestamptz    Spark's ``hash`` is murmur3 of 8 little-endian bytes too, with seed 42. It takes the
                                                   hash of one argument as the seed of the next: ``hash(SEED_OF_ZERO, value)`` has seed 0
    years, months, days, hours                     from days or microseconds since 1970 in UTC
    truncate                                       remainders, substrings by code points or bytes
    all others                                     an Arrow UDF over ``arrow.transforms``

Values of one partition are equal here; UUIDs are text in Spark, and taken in lower case.

Not here: their use (``spark.driver.distribution``).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyiceberg import transforms as tr
from pyiceberg import types as ice
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark
from pyspark.sql import types as sp
from pyspark.sql.pandas.functions import arrow_udf

SEED_OF_ZERO: Final = -1693959553
"""The int whose murmur3 hash with Spark's seed, 42, is 0."""

_POSITIVE: Final = 0x7FFFFFFF
_DAY: Final = 86_400_000_000
_HOUR: Final = 3_600_000_000
_HOURS: Final = 24
_MONTHS: Final = 12
_EPOCH_YEAR: Final = 1970
_BYTES: Final = (ice.BinaryType, ice.FixedType)


def spark_transform(column: Column, transform: tr.Transform[Any, Any], field: ice.NestedField) -> Column:
    """Return the transformed values of a column, which must be of a Spark type that the table's column (``field``) takes; nulls stay nulls.

    ``transform`` is that of a partition or sort field, but not ``void``.
    """
    kind = field.field_type
    if isinstance(transform, tr.IdentityTransform):
        return F.lower(column) if isinstance(kind, ice.UUIDType) else column
    found = _bucket(column, transform, kind) if isinstance(transform, tr.BucketTransform) else _of_time(column, transform, kind)
    if found is None and isinstance(transform, tr.TruncateTransform):
        found = _truncate(column, transform.width, kind)
    return _by_arrow(column, transform, field) if found is None else found


def _bucket(column: Column, transform: tr.BucketTransform[Any], kind: ice.IcebergType) -> Column | None:
    if isinstance(kind, (ice.IntegerType, ice.LongType)):
        number = column.cast("bigint")
    elif isinstance(kind, ice.DateType):
        number = F.unix_date(column).cast("bigint")
    elif isinstance(kind, ice.TimestamptzType):
        number = F.unix_micros(column)
    else:
        return None
    hashed = F.hash(F.lit(SEED_OF_ZERO).cast("int"), number).bitwiseAND(F.lit(_POSITIVE))
    return F.when(number.isNotNull(), hashed % F.lit(transform.num_buckets))


def _of_time(column: Column, transform: tr.Transform[Any, Any], kind: ice.IcebergType) -> Column | None:
    if isinstance(kind, ice.TimestamptzType):
        if isinstance(transform, tr.HourTransform):
            return _floor_divide(F.unix_micros(column), _HOUR)
        date = F.date_from_unix_date(_floor_divide(F.unix_micros(column), _DAY).cast("int"))
    elif isinstance(kind, (ice.DateType, ice.TimestampType)):
        date = column.cast("date")  # a timestamp without a zone has the same date everywhere
    else:
        return None
    if isinstance(transform, tr.HourTransform):
        return F.unix_date(date).cast("bigint") * F.lit(_HOURS) + F.hour(column)
    if isinstance(transform, tr.DayTransform):
        return F.unix_date(date)
    if isinstance(transform, tr.MonthTransform):
        return (F.year(date) - F.lit(_EPOCH_YEAR)) * F.lit(_MONTHS) + F.month(date) - F.lit(1)
    return F.year(date) - F.lit(_EPOCH_YEAR) if isinstance(transform, tr.YearTransform) else None


def _truncate(column: Column, width: int, kind: ice.IcebergType) -> Column | None:
    if isinstance(kind, (ice.IntegerType, ice.LongType)):
        number = column.cast("bigint")
        return F.try_subtract(number, F.pmod(number, F.lit(width).cast("bigint")))  # null for the least numbers, whose result overflows
    if isinstance(kind, (ice.StringType, *_BYTES)):
        return F.substring(column, 1, width)
    return None


def _floor_divide(number: Column, divisor: int) -> Column:
    by = F.lit(divisor).cast("bigint")
    return F.call_function("div", F.try_subtract(number, F.pmod(number, by)), by)


def _by_arrow(column: Column, transform: tr.Transform[Any, Any], field: ice.NestedField) -> Column:
    result = transform.result_type(field.field_type)
    kind = sp.DecimalType(result.precision, result.scale) if isinstance(result, ice.DecimalType) else sp.IntegerType()
    text, source = str(transform), field.model_dump_json()

    def run(values: pa.Array) -> pa.Array:
        from icelock.spark.columns.transforms import transformed

        return transformed(values, text, source)

    run.__annotations__ = {}  # Spark inspects them
    made: Column = arrow_udf(run, kind.simpleString())(column)  # type: ignore[call-overload]  # its overloads leave this one out
    return made


def transformed(values: pa.Array, transform: str, field: str) -> pa.Array:
    """Return the transformed values of a column in Spark's Arrow form; ``field`` is the table's column as Iceberg's JSON."""
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import parse_transform

    from icelock.arrow.transforms import array_transform
    from icelock.arrow.write.conform import InputPlan
    from icelock.arrow.write.schema import write_schema
    from icelock.metadata.column_types import field_from_json

    given = field_from_json(field)
    optional = ice.NestedField(given.field_id, "value", given.field_type, required=False)
    batch = pa.record_batch([values], names=["value"])
    stored = InputPlan(batch.schema, write_schema(Schema(optional))).apply(batch).column(0)
    return array_transform(parse_transform(transform), optional.field_type)(stored)  # type: ignore[arg-type]  # primitive, as checked
