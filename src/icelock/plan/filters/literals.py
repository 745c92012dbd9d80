"""Literals of a filter as values of a column's type, without rounding.

A column of whole units (int, long, decimal, date, time, timestamps) is compared with any number as SQL does: ``x > 1.5`` is
``x >= 2``, and ``x < 3000000000`` is true for every int. PyIceberg 0.12 rounds the literal, turns one outside the type into "always
true" (for nulls too), and has no literals for nanoseconds.

    number     exact; a float for a decimal means its shortest text (0.1 is 0.1)
    date       also a date for a timestamp (midnight), and a timestamp for a date
    timestamp  text has up to 9 digits of a second; text for a column with zone needs a zone, others must not have one. A whole
               number counts microseconds, for the nanosecond types too (Java ``Literals.LongLiteral``)
    float      a literal is rounded to the column's 32 bits, as in Java

Not here: nulls, NaN and negation (``plan.filters.exact``).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

from pydantic import model_serializer
from pyiceberg import types as ice
from pyiceberg.expressions import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual
from pyiceberg.expressions import literals as lit
from pyiceberg.utils.datetime import date_str_to_days, datetime_to_micros, time_str_to_micros
from pyiceberg.utils.decimal import unscaled_to_decimal

from icelock.errors import PolicyError
from icelock.metadata.schema_paths import shortened

NANOS: Final = (ice.TimestampNanoType, ice.TimestamptzNanoType)
FLOATS: Final = (ice.FloatType, ice.DoubleType)
_MOMENTS: Final = (ice.TimestampType, ice.TimestamptzType, *NANOS)
_ZONED: Final = (ice.TimestamptzType, ice.TimestamptzNanoType)
_MICROS_A_DAY: Final = 86_400_000_000
_NANOS_A_MICRO: Final = 1000
_MOST_DIGITS: Final = 400  # beyond every double, and small enough to compute with
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_GREATEST_FLOAT: Final = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_GREATEST_DOUBLE: Final = math.ldexp(2 - 2**-52, 1023)

Comparison = type[EqualTo] | type[LessThan] | type[LessThanOrEqual] | type[GreaterThan] | type[GreaterThanOrEqual]


class NanosLiteral(lit.TimestampLiteral):
    """Nanoseconds since 1970, for which PyIceberg has no literal. Its partition transforms accept it as a time."""

    @model_serializer
    def ser_model(self) -> str:
        """Return its JSON value."""
        return str(self.root)

    def increment(self) -> NanosLiteral:
        """Return the next one."""
        return NanosLiteral(self.value + 1)

    def decrement(self) -> NanosLiteral:
        """Return the one before."""
        return NanosLiteral(self.value - 1)

    def to(self, type_var: ice.IcebergType) -> NanosLiteral:
        """Return itself.

        Raises:
            TypeError: the type does not count nanoseconds.
        """
        if not isinstance(type_var, NANOS):
            raise TypeError(f"Cannot convert NanosLiteral into {type_var}")
        return self


class _UnfitError(ValueError):
    """The literal is not a value of the column's type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Whole units from ``least`` to ``greatest``; ``position`` returns where a literal lies; infinity if it is beyond all of them."""

    least: int
    greatest: int
    make: Callable[[int], Any]
    position: Callable[[Any], Fraction | float]


def compared(name: str, kind: ice.IcebergType, comparison: Comparison, literal: Any) -> tuple[Comparison, Any] | bool:
    """Return a comparison with a literal of exactly the column's type; True if all values match, False if none does.

    Raises:
        PolicyError: the column cannot be compared with the literal.
    """
    try:
        grid = _grid(kind)
        if grid is not None:
            return _on_grid(grid, comparison, grid.position(literal))
        if isinstance(kind, FLOATS):
            return _as_float(kind, comparison, literal)
        return comparison, _same(kind, literal)
    except (ArithmeticError, TypeError, ValueError) as e:
        shown = shortened(repr(literal.value if isinstance(literal, lit.Literal) else literal))
        why = f": {e}" if isinstance(e, _UnfitError) else ""
        raise PolicyError(f"column {shortened(name)!r} is {kind}, which {shown} cannot be compared with{why}") from e


def _on_grid(grid: _Grid, comparison: Comparison, position: Fraction | float) -> tuple[Comparison, Any] | bool:
    whole = isinstance(position, Fraction) and position.denominator == 1
    if whole and grid.least <= position <= grid.greatest:
        return comparison, grid.make(int(position))
    if comparison is EqualTo:
        return False
    below = comparison in (LessThan, LessThanOrEqual)
    if position < grid.least or position > grid.greatest:
        return below == (position > grid.greatest)
    if below:
        return LessThanOrEqual, grid.make(math.floor(position))
    return GreaterThanOrEqual, grid.make(math.ceil(position))


def _as_float(kind: ice.IcebergType, comparison: Comparison, literal: Any) -> tuple[Comparison, Any] | bool:
    single = isinstance(kind, ice.FloatType)
    make: Callable[[float], Any] = lit.FloatLiteral if single else lit.DoubleLiteral
    greatest = _GREATEST_FLOAT if single else _GREATEST_DOUBLE
    position = _number(literal)
    if isinstance(literal, (lit.FloatLiteral, lit.DoubleLiteral)) and math.isinf(literal.value):
        return comparison, make(literal.value)
    if -greatest <= position <= greatest:
        value = literal.value if isinstance(literal, (lit.FloatLiteral, lit.DoubleLiteral)) else float(position)
        return comparison, make(struct.unpack("<f", struct.pack("<f", value))[0] if single else value)
    # Between the greatest number and infinity.
    if comparison is EqualTo:
        return False
    if position > 0:
        return (LessThanOrEqual, make(greatest)) if comparison in (LessThan, LessThanOrEqual) else (EqualTo, make(math.inf))
    return (GreaterThanOrEqual, make(-greatest)) if comparison in (GreaterThan, GreaterThanOrEqual) else (EqualTo, make(-math.inf))


def _same(kind: ice.IcebergType, literal: Any) -> Any:
    if isinstance(kind, ice.StringType):
        text = literal.to(kind)
        text.value.encode()  # a lone surrogate is not text
        return text
    if not isinstance(kind, (ice.BooleanType, ice.BinaryType, ice.FixedType, ice.UUIDType)):
        raise _UnfitError("values of this type are not compared")
    return literal.to(kind)


def _grid(kind: ice.IcebergType) -> _Grid | None:
    if isinstance(kind, ice.DecimalType):
        most, unit = 10**kind.precision - 1, 10**kind.scale
        return _Grid(least=-most, greatest=most, make=_decimal_of(kind.scale), position=lambda literal: _number(literal) * unit)
    if isinstance(kind, _MOMENTS):
        return _moments(kind)
    return _GRIDS.get(type(kind))


def _moments(kind: ice.IcebergType) -> _Grid:
    zoned, nanos = isinstance(kind, _ZONED), isinstance(kind, NANOS)
    unit = 1 if nanos else _NANOS_A_MICRO
    make: Callable[[int], Any] = NanosLiteral if nanos else lit.TimestampLiteral
    return _Grid(least=-(2**63), greatest=2**63 - 1, make=make, position=lambda literal: _nanos(literal, zoned=zoned) / unit)


def _decimal_of(scale: int) -> Callable[[int], Any]:
    return lambda unscaled: lit.DecimalLiteral(unscaled_to_decimal(unscaled, scale))


def _number(literal: Any) -> Fraction | float:
    if isinstance(literal, (lit.AboveMax, lit.BelowMin)):
        return math.inf if isinstance(literal, lit.AboveMax) else -math.inf
    if isinstance(literal, lit.LongLiteral):
        return _bounded(Decimal(literal.value))
    if isinstance(literal, (lit.FloatLiteral, lit.DoubleLiteral)):
        return literal.value if math.isinf(literal.value) else Fraction(Decimal(repr(literal.value)))
    if isinstance(literal, lit.DecimalLiteral):
        return _bounded(literal.value)
    if isinstance(literal, lit.StringLiteral):
        try:
            number = Decimal(literal.value)
        except InvalidOperation:
            number = Decimal("NaN")
        if number.is_finite():
            return _bounded(number)
    raise _UnfitError("it is not a number")


def _bounded(number: Decimal) -> Fraction | float:
    """Return a number, or infinity for one beyond every type."""
    if number.is_nan():
        raise _UnfitError("it is not a number")
    if number.is_infinite() or (number and number.adjusted() > _MOST_DIGITS):
        return math.copysign(math.inf, number)
    if number and number.adjusted() < -_MOST_DIGITS:
        return Fraction(-1 if number.is_signed() else 1, 10**_MOST_DIGITS)
    return Fraction(number)


def _days(literal: Any) -> Fraction | float:
    if isinstance(literal, lit.DateLiteral):
        return Fraction(literal.value)
    if isinstance(literal, lit.TimestampLiteral):
        return _nanos(literal, zoned=False) / (_MICROS_A_DAY * _NANOS_A_MICRO)
    if isinstance(literal, lit.StringLiteral):
        try:
            return Fraction(date_str_to_days(literal.value))
        except ValueError as e:
            raise _UnfitError("it must be text such as '2026-01-31', in the years 0001 to 9999") from e
    if isinstance(literal, lit.LongLiteral):  # 20260131 would be a day in the year 57436, and all rows before it
        raise _UnfitError("a date is text such as '2026-01-31', or a date; a whole number would count days since 1970")
    return _whole(literal)


def _micros_of_day(literal: Any) -> Fraction | float:
    if isinstance(literal, lit.TimeLiteral):
        return Fraction(literal.value)
    return Fraction(time_str_to_micros(literal.value)) if isinstance(literal, lit.StringLiteral) else _whole(literal)


def _whole(literal: Any) -> Fraction | float:
    if isinstance(literal, (lit.AboveMax, lit.BelowMin, lit.LongLiteral)):
        return _number(literal)
    raise _UnfitError("it is of another kind")


def _nanos(literal: Any, *, zoned: bool) -> Fraction | float:
    if isinstance(literal, NanosLiteral):
        return Fraction(literal.value)
    if isinstance(literal, lit.TimestampLiteral):
        return Fraction(literal.value * _NANOS_A_MICRO)
    if isinstance(literal, lit.DateLiteral):
        return Fraction(literal.value * _MICROS_A_DAY * _NANOS_A_MICRO)
    if isinstance(literal, lit.StringLiteral):
        return Fraction(_nanos_of_text(literal.value, zoned=zoned))
    return _whole(literal) * _NANOS_A_MICRO


def _nanos_of_text(text: str, *, zoned: bool) -> int:
    found = _MOMENT.fullmatch(text)
    if found is None or (found[3] is not None) != zoned:
        shape = "'2026-01-31T12:00:00+00:00', with a zone" if zoned else "'2026-01-31T12:00:00', without a zone"
        raise _UnfitError(f"it must be text such as {shape}")
    try:
        seconds = datetime.fromisoformat(found[1] + (found[3] or ""))
    except ValueError as e:
        raise _UnfitError(str(e)) from e
    return datetime_to_micros(seconds) * _NANOS_A_MICRO + int((found[2] or "0").ljust(9, "0"))


_GRIDS: Final[Mapping[type[ice.IcebergType], _Grid]] = {
    ice.IntegerType: _Grid(least=-(2**31), greatest=2**31 - 1, make=lit.LongLiteral, position=_number),
    ice.LongType: _Grid(least=-(2**63), greatest=2**63 - 1, make=lit.LongLiteral, position=_number),
    ice.DateType: _Grid(least=-(2**31), greatest=2**31 - 1, make=lit.DateLiteral, position=_days),
    ice.TimeType: _Grid(least=0, greatest=_MICROS_A_DAY - 1, make=lit.TimeLiteral, position=_micros_of_day),
}
