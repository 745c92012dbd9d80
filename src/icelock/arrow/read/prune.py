"""Which row groups of a file may hold rows that match a filter, by the statistics in its footer.

The footer of an encrypted file is authenticated, so its statistics are as reliable as its rows. Bounds of physical values become
Iceberg's single values, and PyIceberg's own evaluator judges them. Bounds say nothing about NaN: below a ``not``, where a NaN row
matches without being between them, float columns are judged without bounds.

Not here: files (the planner prunes those by manifest), pages (Arrow has no page skipping).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pat
from pyiceberg import types as ice
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import And, BooleanExpression, Not, Or
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluationVisitor as InclusiveMetricsVisitor
from pyiceberg.expressions.visitors import extract_field_ids, rewrite_not, visit
from pyiceberg.schema import Schema
from pyiceberg.utils.decimal import unscaled_to_decimal

from icelock.arrow.read.file_schema import FileField, fields_by_id

_INTEGERS = (ice.IntegerType, ice.LongType)
_FLOATS = (ice.FloatType, ice.DoubleType)
_MICROS = (ice.TimestampType, ice.TimestamptzType)
_NANOS = (ice.TimestampNanoType, ice.TimestamptzNanoType)
_MICROS_A_DAY = 86_400_000_000


@dataclasses.dataclass(slots=True, kw_only=True)
class _Metrics:
    """The part of PyIceberg's DataFile that its evaluator reads."""

    record_count: int
    value_counts: dict[int, int] = dataclasses.field(default_factory=dict)
    null_value_counts: dict[int, int] = dataclasses.field(default_factory=dict)
    nan_value_counts: dict[int, int] = dataclasses.field(default_factory=dict)
    lower_bounds: dict[int, bytes] = dataclasses.field(default_factory=dict)
    upper_bounds: dict[int, bytes] = dataclasses.field(default_factory=dict)


def matching_row_groups(metadata: pq.FileMetaData, file: FileField, table_schema: Schema, expression: BooleanExpression) -> list[int]:
    """Return the numbers of the row groups in which rows may match a bound filter; in the others none does."""
    positive = rewrite_not(expression)
    by_id = fields_by_id(file)
    wanted = {i: table_schema.find_type(i) for i in extract_field_ids(expression) if i in by_id and not by_id[i].children}
    bounded = {i: kind for i, kind in wanted.items() if not (_has_not(expression) and isinstance(kind, _FLOATS))}
    kept = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        metrics = _Metrics(record_count=group.num_rows)
        for field_id in wanted:
            _add(metrics, field_id, group.column(by_id[field_id].leaves.start), by_id[field_id].arrow_type, bounded.get(field_id))
        if group.num_rows and visit(positive, InclusiveMetricsVisitor(metrics)):  # type: ignore[arg-type]  # the parts that it reads
            kept.append(number)
    return kept


def _has_not(expression: BooleanExpression) -> bool:
    if isinstance(expression, (And, Or)):
        return _has_not(expression.left) or _has_not(expression.right)
    return isinstance(expression, Not)


def _add(metrics: _Metrics, field_id: int, column: pq.ColumnChunkMetaData, stored: pa.DataType, kind: Any) -> None:
    statistics = column.statistics
    if statistics is None:
        return
    metrics.value_counts[field_id] = column.num_values
    if statistics.has_null_count:
        metrics.null_value_counts[field_id] = statistics.null_count
    if not statistics.has_min_max or not isinstance(kind, ice.PrimitiveType):
        return
    lower, upper = (_single_value(raw, stored, kind) for raw in (statistics.min_raw, statistics.max_raw))
    if lower is not None and upper is not None:
        metrics.lower_bounds[field_id] = to_bytes(kind, lower)
        metrics.upper_bounds[field_id] = to_bytes(kind, upper)


def _single_value(raw: Any, stored: pa.DataType, kind: ice.PrimitiveType) -> Any:
    """Return a physical bound in the form that PyIceberg's ``to_bytes`` takes, or None if it would be uncertain."""
    if isinstance(kind, ice.DecimalType) and pat.is_decimal(stored):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return unscaled_to_decimal(unscaled, kind.scale)
    if isinstance(kind, _MICROS + _NANOS):
        return _timestamp(raw, stored, "us" if isinstance(kind, _MICROS) else "ns")
    if isinstance(kind, ice.StringType):
        return _text(raw)
    as_stored = (
        (isinstance(kind, _INTEGERS) and pat.is_signed_integer(stored))
        or (isinstance(kind, _FLOATS) and pat.is_floating(stored) and stored.bit_width > 16)  # noqa: PLR2004 - not half floats
        or (isinstance(kind, ice.BooleanType) and pat.is_boolean(stored))
        or (isinstance(kind, ice.DateType) and pat.is_date32(stored))
        or (isinstance(kind, ice.TimeType) and stored == pa.time64("us"))
        or (isinstance(kind, (ice.BinaryType, ice.FixedType)) and isinstance(raw, bytes))
    )
    return raw if as_stored else None


def _timestamp(raw: int, stored: pa.DataType, unit: str) -> int | None:
    if pat.is_timestamp(stored):
        return raw if stored.unit == unit else None
    return raw * _MICROS_A_DAY if pat.is_date32(stored) and unit == "us" else None


def _text(raw: Any) -> str | None:
    """Return a string's bound; None for one that a writer cut inside a character."""
    if not isinstance(raw, bytes):
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
