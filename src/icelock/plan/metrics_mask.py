"""The inclusive metrics evaluator for all files of a manifest at once.

Gives the same answer for each file as ``plan.metrics_visitor``: predicates that compare numbers, dates, times, text or bytes, and
those about nulls and NaN, take a few operations on whole columns. Any others, and bounds of an unusual length, are left to PyIceberg's
own visitor, file by file.

Not here: where the columns come from (``plan.manifest_columns``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.expressions.visitors import IN_PREDICATE_LIMIT, visit

from icelock.metadata.sound_bounds import SoundFile, is_sound
from icelock.plan.manifest_columns import METRICS
from icelock.plan.metrics_visitor import UNCUT, MetricsVisitor

if TYPE_CHECKING:
    import polars as pl

_WIDTHS: Final[Mapping[type[ice.IcebergType], tuple[str, int]]] = {
    ice.IntegerType: ("Int32", 4),
    ice.DateType: ("Int32", 4),
    ice.LongType: ("Int64", 8),
    ice.TimeType: ("Int64", 8),
    ice.TimestampType: ("Int64", 8),
    ice.TimestamptzType: ("Int64", 8),
    ice.FloatType: ("Float32", 4),
    ice.DoubleType: ("Float64", 8),
}
_COMPARED: Final = (ex.BoundEqualTo, ex.BoundLessThan, ex.BoundLessThanOrEqual, ex.BoundGreaterThan, ex.BoundGreaterThanOrEqual, ex.BoundIn)


class _ByFileError(Exception):
    """This predicate is evaluated file by file."""


@dataclass(slots=True, kw_only=True)
class FileMetrics:
    """What a manifest entry says about the values of one file, for some of its columns."""

    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


class ManifestMetrics:
    """Metrics of all files of a manifest; ``frame`` has the columns of ``METRICS``."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame
        self._columns: dict[tuple[str, int], pl.Series] = {}

    def __len__(self) -> int:
        return len(self._frame)

    def column(self, name: str, field_id: int) -> pl.Series:
        """Return one metric of one column: a value for each file, null if the entry lacks it."""
        key = (name, field_id)
        if key not in self._columns:
            self._columns[key] = self._extract(name, field_id)
        return self._columns[key]

    def of_files(self, field_ids: Iterable[int]) -> list[FileMetrics]:
        """Return the metrics of some columns, file by file."""
        files = [FileMetrics() for _ in range(len(self))]
        for field_id in field_ids:
            for name in METRICS:
                for file, value in zip(files, self.column(name, field_id).to_list(), strict=True):
                    if value is not None:
                        getattr(file, name)[field_id] = value
        return files

    def _extract(self, name: str, field_id: int) -> pl.Series:
        import polars as pl

        stored = self._frame.get_column(name)
        if stored.dtype == pl.Null:
            return stored.cast(pl.Binary if name.endswith("bounds") else pl.Int64)
        item = pl.element()
        value = item.struct.field("value").filter(item.struct.field("key") == field_id)
        return self._frame.select_seq(pl.col(name).list.eval(value).list.last()).to_series()


def may_match(expression: ex.BooleanExpression, metrics: ManifestMetrics, record_counts: pl.Series, *, empty_files: bool) -> pl.Series:
    """Return for each file whether rows of it may match; ``expression`` is bound and has no ``not``."""
    found = _mask(expression, metrics) | (record_counts < 0)
    return found if empty_files else found & (record_counts != 0)


def _mask(expression: ex.BooleanExpression, metrics: ManifestMetrics) -> pl.Series:
    if isinstance(expression, ex.And):
        return _mask(expression.left, metrics) & _mask(expression.right, metrics)
    if isinstance(expression, ex.Or):
        return _mask(expression.left, metrics) | _mask(expression.right, metrics)
    if isinstance(expression, ex.AlwaysTrue):
        return _all(metrics, value=True)
    if isinstance(expression, ex.AlwaysFalse):
        return _all(metrics, value=False)
    if not isinstance(expression, ex.BoundPredicate):
        raise TypeError(f"not a bound predicate: {expression}")
    try:
        return ~_cannot_match(expression, metrics)
    except _ByFileError:
        return _by_file(expression, metrics)


def _all(metrics: ManifestMetrics, *, value: bool) -> pl.Series:
    import polars as pl

    return pl.repeat(value, len(metrics), dtype=pl.Boolean, eager=True)


def _by_file(predicate: ex.BoundPredicate, metrics: ManifestMetrics) -> pl.Series:
    import polars as pl

    column = predicate.term.ref().field
    files: list[Any] = [SoundFile(file, {column.field_id: column.field_type}.get) for file in metrics.of_files([column.field_id])]
    return pl.Series([visit(predicate, MetricsVisitor(file)) for file in files], dtype=pl.Boolean)


def _cannot_match(predicate: ex.BoundPredicate, metrics: ManifestMetrics) -> pl.Series:
    field_id = predicate.term.ref().field.field_id
    nulls, nans = metrics.column("null_value_counts", field_id), metrics.column("nan_value_counts", field_id)
    values = metrics.column("value_counts", field_id)
    nulls_only = _true((values != 0) & (values == nulls))
    if isinstance(predicate, ex.BoundIsNull):
        return _true(nulls == 0)
    if isinstance(predicate, ex.BoundNotNull):
        return nulls_only
    if isinstance(predicate, ex.BoundIsNaN):
        return _true(nans == 0) | nulls_only
    if isinstance(predicate, (ex.BoundNotEqualTo, ex.BoundNotIn)):
        return _true(nulls == 0) & _is_excluded(predicate, metrics)
    nans_only = _true((values != 0) & (values == nans))
    if isinstance(predicate, ex.BoundNotNaN):
        return nans_only
    if not isinstance(predicate, _COMPARED):
        raise _ByFileError
    return nulls_only | nans_only | _out_of_bounds(predicate, metrics)


def _is_excluded(predicate: Any, metrics: ManifestMetrics) -> pl.Series:
    """Return which files have one value (``plan.metrics_visitor``), which the predicate excludes."""
    column = predicate.term.ref().field
    literals = [_literal(value) for value in (predicate.value_set if isinstance(predicate, ex.BoundNotIn) else [predicate.literal.value])]
    lower, upper = _bounds("lower_bounds", column, metrics), _bounds("upper_bounds", column, metrics)
    only = lower == upper
    if isinstance(column.field_type, (ice.FloatType, ice.DoubleType)):
        only &= metrics.column("nan_value_counts", column.field_id) == 0
    if isinstance(column.field_type, (ice.StringType, ice.BinaryType)):
        only &= lower.bin.size() < UNCUT
    excluded = _all(metrics, value=False)
    for literal in literals:
        excluded |= _true(lower == literal)
    return _true(only) & excluded


def _out_of_bounds(predicate: Any, metrics: ManifestMetrics) -> pl.Series:
    column = predicate.term.ref().field
    literals = [_literal(value) for value in (predicate.value_set if isinstance(predicate, ex.BoundIn) else [predicate.literal.value])]
    if len(literals) > IN_PREDICATE_LIMIT:
        return _all(metrics, value=False)
    if not isinstance(predicate, (ex.BoundEqualTo, ex.BoundIn)):
        name, compare = _BEYOND[type(predicate)]
        return _true(compare(_bounds(name, column, metrics), literals[0]))
    lower, upper = _bounds("lower_bounds", column, metrics), _bounds("upper_bounds", column, metrics)
    outside = _all(metrics, value=True)
    for literal in literals:
        outside &= _true(lower > literal) | _true(upper < literal)
    # After a lower bound of NaN PyIceberg ignores the upper one.
    if isinstance(column.field_type, (ice.StringType, ice.BinaryType)):
        return outside
    nan = lower.is_null() & metrics.column("lower_bounds", column.field_id).is_not_null()
    return outside & ~nan


_BEYOND: Final[Mapping[type[Any], tuple[str, Callable[[Any, Any], Any]]]] = {
    ex.BoundLessThan: ("lower_bounds", operator.ge),
    ex.BoundLessThanOrEqual: ("lower_bounds", operator.gt),
    ex.BoundGreaterThan: ("upper_bounds", operator.le),
    ex.BoundGreaterThanOrEqual: ("upper_bounds", operator.lt),
}
"""Which bound rules out a match, by which comparison with the literal."""


def _true(mask: pl.Series) -> pl.Series:
    """Treat unknown as false."""
    return mask.fill_null(value=False)


def _literal(value: Any) -> Any:
    import polars as pl

    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError as e:
            raise _ByFileError from e
    if isinstance(value, bytes):
        return pl.Series([value], dtype=pl.Binary)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (isinstance(value, float) and math.isnan(value)):
        raise _ByFileError
    return value


def _texts(stored: pl.Series) -> pl.Series:
    """Return bytes, with null for those that are not text."""
    import polars as pl

    try:
        stored.cast(pl.String)
    except pl.exceptions.PolarsError:
        kind = ice.StringType()
        sound = [value if value is not None and is_sound(kind, value) else None for value in stored.to_list()]
        return pl.Series(stored.name, sound, dtype=pl.Binary)
    return stored


def _bounds(name: str, column: Any, metrics: ManifestMetrics) -> pl.Series:
    """Return bounds that sort like the values, text as UTF-8; null if missing or NaN, which does not bound anything."""
    import polars as pl

    stored = metrics.column(name, column.field_id)
    kind = type(column.field_type)
    if kind is ice.StringType:
        return _texts(stored)
    if kind is ice.BinaryType:
        return stored
    if kind not in _WIDTHS:
        raise _ByFileError
    dtype, width = _WIDTHS[kind]
    if not _true(stored.bin.size() == width).eq_missing(stored.is_not_null()).all():
        raise _ByFileError
    numbers = stored.bin.reinterpret(dtype=getattr(pl, dtype), endianness="little")
    return numbers.cast(pl.Int64) if dtype.startswith("Int") else numbers.cast(pl.Float64).fill_nan(None)
