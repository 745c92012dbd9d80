"""Partition values as Java writes them in folder names (``PartitionSpec.partitionToPath``, ``TransformUtil``).

    name=value, both URL-encoded as by java.net.URLEncoder; null is ``null``

Values are physical (``transforms``): days, microseconds, bytes. Differences from PyIceberg's ``partition_to_path``: ``*`` stays and
``~`` is escaped, timestamps look like Java's ``toString`` (``2024-03-01T00:00Z``), floats like Java's, years beyond 9999 work.
Paths have no meaning in Iceberg; this keeps tables alike, whichever engine writes them.

Not here: where the folders are (PyIceberg's location providers).
"""

from __future__ import annotations

import base64
import math
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote_plus

from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform

_EPOCH_YEAR: Final = 1970
_NANOS: Final = 1_000_000_000
_TIMESTAMPS: Final = (ice.TimestampType, ice.TimestamptzType, ice.TimestampNanoType, ice.TimestamptzNanoType)
_PLAIN_LOW, _PLAIN_HIGH = -3, 7  # Java prints doubles of 1e-3 <= |x| < 1e7 without an exponent
_MAX_PLAIN_YEAR: Final = 9999


def partition_path(fields: Sequence[PartitionField], types: Sequence[ice.IcebergType], values: Sequence[Any]) -> str:
    """Return the folders of a partition, one for each field.

    Args:
        fields: the spec's fields.
        types: the types of their source columns.
        values: their physical values.
    """
    rows = zip(fields, types, values, strict=True)
    return "/".join(f"{_escape(field.name)}={_escape(_text(field, kind, value))}" for field, kind, value in rows)


def _escape(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _text(field: PartitionField, source: ice.IcebergType, value: Any) -> str:  # noqa: PLR0911 - a case a transform
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
