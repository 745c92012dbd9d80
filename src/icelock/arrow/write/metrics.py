"""Metrics of one data file, equal to those that Java's ``ParquetMetrics`` puts into manifests.

Counts come from the Arrow data. Bounds come from the footer that Arrow has just written, where it is exact; the sign of zero, row
groups with NaN, and text over 4096 bytes, for which Arrow writes no statistics, are computed from the Arrow data. The file is not
read again.

Column sizes are for all leaves; counts and bounds exclude leaves below a list or map; leaves in structs count rows, a null
struct as null. Bounds skip NaN and distinguish -0.0 from 0.0 (``Double.compare``); a column of only nulls and NaN has none.

Bounds are single values (format.md, "Single values, metrics"; spec, Appendix D):

    boolean 00 or 01 · int, date 4 bytes LE · long, time, timestamps 8 bytes LE · float, double IEEE LE · string UTF-8 ·
    uuid, fixed, binary unchanged · decimal: shortest big-endian two's complement of the unscaled value

Values come as Parquet keeps them (int, bool, bytes) or as Python floats. Strings and binary are cut to n code points or bytes; the last
unit of a cut upper bound is increased by 1 (U+D7FF is followed by U+E000); if it is the highest, it is dropped and the one before
increased; if none is left, there is no upper bound (Java ``UnicodeUtil``, ``BinaryUtil``).

Which columns have which metrics (``write.metadata.metrics.*``) is by Java's ``MetricsConfig`` 1.12: modes ``none``, ``counts``,
``truncate(n)``, ``full``; ``default`` applies to all columns; without it the first ``max-inferred-column-defaults`` (100) primitive fields
get ``truncate(16)`` (a struct's own first, then those below it) and the others none; columns of an order-preserving sort get bounds;
``column.<name>`` overrides. An invalid mode is ignored.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from icelock.arrow.write.schema import Leaf
from icelock.metadata.schema_paths import child_fields
from icelock.properties import is_number

DEFAULT: Final = "write.metadata.metrics.default"
COLUMN: Final = "write.metadata.metrics.column."
MAX_INFERRED: Final = "write.metadata.metrics.max-inferred-column-defaults"
_MAX_INFERRED_DEFAULT: Final = 100
_TRUNCATE: Final = re.compile(r"truncate\((\d+)\)")
FOOTER_LIMIT: Final = 4096
"""Arrow's ``max_statistics_size``: the longest value that a footer's statistics hold, in bytes."""
Stored = bool | int | float | bytes

_FIRST_SURROGATE: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000
_MAX_CODE_POINT: Final = 0x10FFFF
_MAX_BYTE: Final = 0xFF
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetricsMode:
    """What is kept for a column: ``counts`` of values, nulls and NaN, and bounds of at most ``length`` units (None: whole)."""

    counts: bool
    bounds: bool
    length: int | None = None


NONE: Final = MetricsMode(counts=False, bounds=False)
COUNTS: Final = MetricsMode(counts=True, bounds=False)
FULL: Final = MetricsMode(counts=True, bounds=True)
TRUNCATE_16: Final = MetricsMode(counts=True, bounds=True, length=16)


def metrics_modes(properties: Mapping[str, str], schema: Schema, order: SortOrder) -> dict[int, MetricsMode]:
    """Return the mode of each primitive field of a schema, by id."""
    ids = [field.field_id for field in _primitives(schema.as_struct())]
    configured = _parse(properties.get(DEFAULT), DEFAULT)
    limit = _max_inferred(properties)
    inferred = dict.fromkeys(ids[:limit], TRUNCATE_16) if configured is None else {}
    fallback = configured or (TRUNCATE_16 if len(inferred) < limit else NONE)
    modes = dict.fromkeys(ids, fallback) | inferred
    promoted = configured if configured is not None and configured.bounds else TRUNCATE_16
    modes |= {field.source_id: promoted for field in order.fields if field.transform.preserves_order and field.source_id in modes}
    for name, text in properties.items():
        mode = _parse(text, name) if name.startswith(COLUMN) else None
        if mode is not None:
            modes |= {field_id: mode for field_id in ids if schema.find_column_name(field_id) == name.removeprefix(COLUMN)}
    return modes


def _parse(text: str | None, name: str) -> MetricsMode | None:
    if text is None:
        return None
    known = {"none": NONE, "counts": COUNTS, "full": FULL}.get(text.lower())
    if known is not None:
        return known
    found = _TRUNCATE.fullmatch(text.lower())
    if found is None or int(found[1]) == 0:
        _log.debug("ignoring the metrics mode %r of %s: expected none, counts, truncate(n) or full", text, name)
        return None
    return MetricsMode(counts=True, bounds=True, length=int(found[1]))


def _max_inferred(properties: Mapping[str, str]) -> int:
    text = properties.get(MAX_INFERRED, "").strip()
    return int(text) if is_number(text) else _MAX_INFERRED_DEFAULT


def _primitives(kind: ice.IcebergType) -> Iterator[ice.NestedField]:
    """Yield primitive fields in the order in which Java uses up its limit (``MetricsConfig.limitFieldIds``)."""
    fields = child_fields(kind)
    yield from (field for field in fields if isinstance(field.field_type, ice.PrimitiveType))
    for field in fields:
        yield from _primitives(field.field_type)


def comparable(kind: ice.PrimitiveType, stored: Stored) -> Stored:
    """Return a footer's raw value in a form that sorts like the column: decimals stored as bytes become numbers."""
    if isinstance(kind, ice.DecimalType) and isinstance(stored, bytes):
        return int.from_bytes(stored, "big", signed=True)
    return stored


def lower_bound(kind: ice.PrimitiveType, value: Stored, length: int | None) -> bytes:
    """Return the lower bound's bytes; ``length`` cuts strings and binary, None leaves them whole."""
    if isinstance(kind, ice.StringType) and isinstance(value, bytes) and length is not None:
        return value.decode()[:length].encode()
    if isinstance(kind, ice.BinaryType) and isinstance(value, bytes) and length is not None:
        return value[:length]
    return single_value(kind, value)


def upper_bound(kind: ice.PrimitiveType, value: Stored, length: int | None) -> bytes | None:
    """Return the upper bound's bytes, or None if no value of that length is high enough."""
    if isinstance(kind, ice.StringType) and isinstance(value, bytes) and length is not None:
        raised = _raised_text(value.decode(), length)
        return None if raised is None else raised.encode()
    if isinstance(kind, ice.BinaryType) and isinstance(value, bytes) and length is not None:
        return _raised_bytes(value, length)
    return single_value(kind, value)


def single_value(kind: ice.PrimitiveType, value: Stored) -> bytes:
    """Return a whole value in Iceberg's single-value form."""
    if isinstance(value, bytes):
        return value
    if isinstance(kind, ice.BooleanType):
        return b"\x01" if value else b"\x00"
    if isinstance(kind, (ice.FloatType, ice.DoubleType)):
        return struct.pack("<f" if isinstance(kind, ice.FloatType) else "<d", value)
    number = int(value)
    if isinstance(kind, ice.DecimalType):
        return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
    return struct.pack("<i" if isinstance(kind, (ice.IntegerType, ice.DateType)) else "<q", number)


def _raised_text(text: str, length: int) -> str | None:
    if len(text) <= length:
        return text
    for last in range(length - 1, -1, -1):
        code = ord(text[last]) + 1
        if code == _FIRST_SURROGATE:
            code = _AFTER_SURROGATES
        if code <= _MAX_CODE_POINT:
            return text[:last] + chr(code)
    return None


def _raised_bytes(value: bytes, length: int) -> bytes | None:
    if len(value) <= length:
        return value
    for last in range(length - 1, -1, -1):
        if value[last] < _MAX_BYTE:
            return value[:last] + bytes([value[last] + 1])
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileMetrics:
    """The metric fields of a manifest entry, by field id."""

    column_sizes: dict[int, int]
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]
    split_offsets: list[int]


@dataclasses.dataclass(slots=True)
class _Column:
    leaf: Leaf
    mode: MetricsMode
    nulls: int = 0
    nans: int = 0
    lower: Stored | None = None
    upper: Stored | None = None
    seen: set[int] = dataclasses.field(default_factory=set)  # row groups whose bounds came from the data
    zero_signs: set[float] = dataclasses.field(default_factory=set)

    def add_bounds(self, lower: Stored, upper: Stored) -> None:
        self.lower = lower if self.lower is None else min(self.lower, lower)
        self.upper = upper if self.upper is None else max(self.upper, upper)

    def sign_zeros(self) -> None:
        """Give a bound of zero the sign of the smallest or largest zero in the file."""
        if self.zero_signs and self.lower == 0:
            self.lower = math.copysign(0.0, min(self.zero_signs))
        if self.zero_signs and self.upper == 0:
            self.upper = math.copysign(0.0, max(self.zero_signs))


class MetricsCollector:
    """Collects the metrics of one file: `add` each row group as it is written, then `finish` with the footer."""

    def __init__(self, leaves: Sequence[Leaf], modes: Mapping[int, MetricsMode]) -> None:
        self._leaves = leaves
        self._modes = modes
        self._columns = [_Column(leaf, modes[leaf.field_id]) for leaf in leaves if not leaf.repeated and modes[leaf.field_id].counts]
        self._rows = 0
        self._row_groups = 0

    def add(self, table: pa.Table) -> None:
        """Add one row group's counts, and the bounds that the footer will lack."""
        for column in self._columns:
            values = column.leaf.column_of(table)
            column.nulls += values.null_count
            if isinstance(column.leaf.iceberg_type, (ice.FloatType, ice.DoubleType)):
                self._add_floats(column, values)
            elif isinstance(column.leaf.iceberg_type, (ice.StringType, ice.BinaryType)) and column.mode.bounds:
                self._add_long_values(column, values)
        self._rows += table.num_rows
        self._row_groups += 1

    def finish(self, footer: Any) -> FileMetrics:
        """Return the metrics of the closed file; ``footer`` is its ``pyarrow.parquet.FileMetaData``."""
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        for column in self._columns:
            if column.mode.bounds:
                _add_footer(column, groups)
                column.sign_zeros()
        bounded = [column for column in self._columns if column.mode.bounds and column.lower is not None]
        upper = {column.leaf.field_id: _bound(upper_bound, column, column.upper) for column in bounded}
        return FileMetrics(
            column_sizes={
                leaf.field_id: sum(group.column(leaf.column).total_compressed_size for group in groups)
                for leaf in self._leaves
                if self._modes[leaf.field_id] != NONE
            },
            value_counts={column.leaf.field_id: self._rows for column in self._columns},
            null_value_counts={column.leaf.field_id: column.nulls for column in self._columns},
            nan_value_counts={
                column.leaf.field_id: column.nans
                for column in self._columns
                if isinstance(column.leaf.iceberg_type, (ice.FloatType, ice.DoubleType))
            },
            lower_bounds={column.leaf.field_id: _bound(lower_bound, column, column.lower) for column in bounded},
            upper_bounds={field_id: bound for field_id, bound in upper.items() if bound is not None},
            split_offsets=[_start(group) for group in groups],
        )

    def _add_floats(self, column: _Column, values: pa.ChunkedArray) -> None:
        nans = pc.sum(pc.is_nan(values)).as_py() or 0
        column.nans += nans
        if not column.mode.bounds:
            return
        zero = pc.equal(values, pa.scalar(0.0, values.type))
        if pc.any(zero).as_py():
            column.zero_signs.update(math.copysign(1.0, found) for found in pc.unique(values.filter(zero)).to_pylist())
        if nans:
            ends = pc.min_max(values)  # skips NaN, unless there is nothing else
            if not math.isnan(ends["min"].as_py()):
                column.add_bounds(ends["min"].as_py(), ends["max"].as_py())
            column.seen.add(self._row_groups)

    def _add_long_values(self, column: _Column, values: pa.ChunkedArray) -> None:
        if (pc.max(pc.binary_length(values)).as_py() or 0) <= FOOTER_LIMIT:
            return
        ends = pc.min_max(values.cast(pa.binary()))
        column.add_bounds(ends["min"].as_py(), ends["max"].as_py())
        column.seen.add(self._row_groups)


def _add_footer(column: _Column, groups: Sequence[Any]) -> None:
    """Add the row groups' statistics; if they are missing for some values, there are no bounds at all."""
    for index, group in enumerate(groups):
        if index in column.seen:
            continue
        chunk = group.column(column.leaf.column)
        statistics = chunk.statistics
        if statistics is not None and statistics.has_min_max:
            kind = column.leaf.iceberg_type
            column.add_bounds(comparable(kind, statistics.min_raw), comparable(kind, statistics.max_raw))
        elif statistics is None or not statistics.has_null_count or statistics.null_count < chunk.num_values:
            column.lower = column.upper = None
            return


def _bound(make: Callable[..., Any], column: _Column, value: Stored | None) -> Any:
    return make(column.leaf.iceberg_type, value, column.mode.length)


def _start(group: Any) -> int:
    """Return where a row group begins: at the dictionary page of its first column, else at the first data page."""
    first = group.column(0)
    dictionary = first.dictionary_page_offset if first.has_dictionary_page else None
    return int(first.data_page_offset if dictionary is None else min(dictionary, first.data_page_offset))
