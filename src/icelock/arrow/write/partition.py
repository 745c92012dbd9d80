"""Rows split by partition: one tuple of physical values for each group of rows, in any order of input; and the partitions' folders.

Each group is a copy of its rows, so that a small partition's buffer does not keep a whole batch alive. The order of rows
inside a group is the input's.

Folders are named as by Java (``PartitionSpec.partitionToPath``, ``TransformUtil``):

    name=value, both URL-encoded as by java.net.URLEncoder; null is ``null``

Differences from PyIceberg's ``partition_to_path``: ``*`` stays and ``~`` is escaped, timestamps look like Java's ``toString``
(``2024-03-01T00:00Z``), floats like Java's, years beyond 9999 work. Paths have no meaning in Iceberg; this keeps tables alike, whichever
engine writes them.

Not here: how many files are open (``arrow.write.fanout``), where the folders are (PyIceberg's location providers).
"""

from __future__ import annotations

import base64
import math
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, VoidTransform, YearTransform
from pyiceberg.typedef import Record

from icelock.arrow.row_numbers import RowNumbers
from icelock.arrow.transforms import ArrayTransform, array_transform
from icelock.arrow.write.schema import Leaf, WriteSchema
from icelock.errors import PolicyError

_EPOCH_YEAR: Final = 1970
_NANOS: Final = 1_000_000_000
_TIMESTAMPS: Final = (ice.TimestampType, ice.TimestamptzType, ice.TimestampNanoType, ice.TimestamptzNanoType)
_PLAIN_LOW, _PLAIN_HIGH = -3, 7  # Java prints doubles of 1e-3 <= |x| < 1e7 without an exponent
_MAX_PLAIN_YEAR: Final = 9999


class JavaPartitionKey(PartitionKey):
    """PyIceberg's key for location providers, with Java's path and several fields of one source column allowed."""

    @property
    def partition(self) -> Record:
        """The tuple of physical values."""
        return Record(*(field_value.value for field_value in self.field_values))

    def to_path(self) -> str:
        """Return the folders of the partition."""
        fields = [field_value.field for field_value in self.field_values]
        types = [self.schema.find_type(field.source_id) for field in fields]
        return partition_path(fields, types, [field_value.value for field_value in self.field_values])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    field: PartitionField
    leaf: Leaf
    transform: ArrayTransform

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the partition values of a batch."""
        try:
            return self.transform(self.leaf.array(batch))
        except (pa.ArrowException, ArithmeticError) as e:
            kind = self.field.transform.result_type(self.leaf.iceberg_type)
            raise PolicyError(
                f"partition field {self.field.name!r}, {self.field.transform} of a {self.leaf.iceberg_type}, has no value of its type "
                f"{kind} for some of the rows: they are too large or too small for it; leave them out, or change the partition spec"
            ) from e


class Partitioner:
    """Splits batches of the stored schema by a partition spec."""

    def __init__(self, spec: PartitionSpec, target: WriteSchema) -> None:
        """Find the source columns.

        Raises:
            PolicyError: a transform that is not known, or a source column that is not there.
        """
        self._spec = spec
        self._target = target
        self._sources = [_source(field, target) for field in spec.fields]

    @property
    def partitioned(self) -> bool:
        """Whether rows can be in different partitions."""
        return any(source is not None for source in self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def key(self, values: Sequence[Any]) -> PartitionKey | None:
        """Return the location provider's key of a partition; None when the table is not partitioned (any more)."""
        if not self.partitioned:
            return None
        found = [PartitionFieldValue(field, value) for field, value in zip(self._spec.fields, values, strict=True)]
        return JavaPartitionKey(found, self._spec, self._target.schema)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Yield each partition's values and rows; the values are equal for equal partitions as ``identity_of`` sees them.

        Raises:
            PolicyError: rows of which a transform has no value.
        """
        if not batch.num_rows:
            return
        columns = [None if source is None else source.values(batch) for source in self._sources]
        rows = RowNumbers([column for column in columns if column is not None])
        if rows.count == 1:
            yield _values(columns, 0), batch
            return
        order = pc.sort_indices(rows.numbers)
        start = 0
        # Numbers are given in the order in which rows are met, and so are the counts.
        for length in pc.value_counts(rows.numbers).field("counts").to_pylist():
            group = order.slice(start, length)
            yield _values(columns, group[0].as_py()), batch.take(group)
            start += length


def _source(field: PartitionField, target: WriteSchema) -> _Source | None:
    if isinstance(field.transform, VoidTransform):
        return None
    leaf = target.leaf(field.source_id)
    if leaf is None:
        raise PolicyError(f"partition field {field.name!r} needs column id {field.source_id}, which is not a column with one value a row")
    return _Source(field=field, leaf=leaf, transform=array_transform(field.transform, leaf.iceberg_type))


def _values(columns: Sequence[pa.Array | None], row: int) -> tuple[Any, ...]:
    return tuple(None if column is None else column[row].as_py() for column in columns)


def partition_path(fields: Sequence[PartitionField], types: Sequence[ice.IcebergType], values: Sequence[Any]) -> str:
    """Return the folders of a partition, one for each field.

    Args:
        fields: the spec's fields.
        types: the types of their source columns.
        values: their physical values.
    """
    rows = zip(fields, types, values, strict=True)
    return "/".join(f"{_escape(field.name)}={_escape(partition_text(field, kind, value))}" for field, kind, value in rows)


def _escape(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def partition_text(field: PartitionField, source: ice.IcebergType, value: Any) -> str:  # noqa: PLR0911 - a case a transform
    """Return a partition's physical value as people read it (Java ``Transform.toHumanString``), in any year."""
    transform = field.transform
    if value is None:
        return "null"
    if isinstance(transform, YearTransform):
        return f"{_EPOCH_YEAR + value:04d}"
    if isinstance(transform, MonthTransform):
        return f"{_EPOCH_YEAR + value // 12:04d}-{1 + value % 12:02d}"
    if isinstance(transform, DayTransform):
        return _day(value)
    if isinstance(transform, HourTransform):
        return f"{_day(value // 24)}-{value % 24:02d}"
    if isinstance(transform, IdentityTransform):
        return _identity(source, value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _identity(source: ice.IcebergType, value: Any) -> str:
    if isinstance(source, (ice.DateType, ice.TimeType)):
        return _day(value) if isinstance(source, ice.DateType) else _clock(value * 1000)
    if isinstance(source, _TIMESTAMPS):
        return _timestamp(source, value)
    if isinstance(source, ice.UUIDType):
        return str(uuid.UUID(bytes=value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return java_float(value, single=isinstance(source, ice.FloatType))
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _timestamp(source: ice.IcebergType, value: int) -> str:
    ticks = 1 if isinstance(source, (ice.TimestampNanoType, ice.TimestamptzNanoType)) else 1000
    days, nanos = divmod(value * ticks, 86_400 * _NANOS)
    zone = "Z" if isinstance(source, (ice.TimestamptzType, ice.TimestamptzNanoType)) else ""
    return f"{_iso_day(days)}T{_clock(nanos)}{zone}"


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of days since 1970 in the proleptic Gregorian calendar, for any year."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9  # noqa: PLR2004
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1  # noqa: PLR2004


def _day(days: int) -> str:
    year, month, day = _civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}"


def _iso_day(days: int) -> str:
    """Return a day as ``LocalDate.toString``: a sign before years beyond 9999, four digits at least."""
    year, month, day = _civil(days)
    sign = "-" if year < 0 else "+" if year > _MAX_PLAIN_YEAR else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _clock(nanos: int) -> str:
    """Return a time of day as ``LocalTime.toString``: no seconds when they are 0, else 0, 3, 6 or 9 decimals."""
    seconds, fraction = divmod(nanos, _NANOS)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if not seconds % 60 and not fraction:
        return text
    text += f":{seconds % 60:02d}"
    if not fraction:
        return text
    digits = f"{fraction:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}"


def java_float(value: float, *, single: bool) -> str:
    """Return a number as Java's ``Double.toString`` (``single``: ``Float.toString``) does."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = Decimal(_shortest(value, single=single))
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if not number:
        return f"{sign}0.0"
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    exponent = number.adjusted()
    if _PLAIN_LOW <= exponent < _PLAIN_HIGH:
        whole = digits[: exponent + 1].ljust(exponent + 1, "0") if exponent >= 0 else "0"
        rest = digits[exponent + 1 :] if exponent >= 0 else "0" * (-exponent - 1) + digits
        return f"{sign}{whole}.{rest or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float, *, single: bool) -> str:
    """Return the fewest digits that give the same number back, but two if they are nearer."""
    for digits in range(2, 18):
        text = f"{value:.{digits - 1}e}"
        if (_as_single(float(text)) if single else float(text)) == value:
            return text
    return repr(value)


def _as_single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf
