"""Times that decide what is read or deleted, as table metadata has them: milliseconds since 1970 in UTC.

A ``datetime`` without a zone is refused. Python takes it for local time and PyIceberg for UTC, so ``datetime.now()`` would be hours off,
and snapshots that should be kept would be expired.

Not here: times as values of columns.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from icelock.errors import PolicyError
from icelock.properties import is_number

SAFE_AGE: Final = timedelta(days=3)
"""Files of writers at work look left over; no write takes so long."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN: Final = re.compile(r"(\d+)([dhms])")
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_LONGEST: Final = timedelta(days=36_500)
_LEAST_MS: Final = 100_000_000_000
"""March 1973: a smaller number is meant otherwise, as days or as seconds since 1970, since no table is as old."""


def to_millis(moment: object, *, name: str) -> int:
    """Return a ``datetime`` with a zone, or ms since 1970, as ms since 1970 in UTC; ``name`` is the argument's.

    Raises:
        PolicyError: a ``datetime`` without a zone, or another type.
    """
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise PolicyError(
                f"{name} is {moment.isoformat(sep=' ')} without a time zone, so the moment is ambiguous: use "
                "datetime.now(timezone.utc), or moment.astimezone() for local time"
            )
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    raise PolicyError(
        f"{name} is {moment!r}; it must be a datetime with a time zone, such as datetime.now(timezone.utc), or ms since 1970 as an int"
    )


def to_bound(moment: object, *, name: str) -> int:
    """Return the time from which, or up to which, something is read, as ``to_millis``; 0 is before everything.

    Raises:
        PolicyError: see ``to_millis``; or a negative number, or one that is likely to be seconds.
    """
    millis = to_millis(moment, name=name)
    return millis if isinstance(moment, datetime) else _not_seconds(millis, name=name)


def _not_seconds(millis: int, *, name: str) -> int:
    """Refuse what is before 1970, and what would be since March 1973 if it were seconds; less is as good as 0."""
    if millis < 0:
        raise PolicyError(f"{name} is {millis}; ms since 1970 are 0 or more")
    if millis < _LEAST_MS <= millis * 1000:
        raise PolicyError(f"{name} is {millis}, which as ms since 1970 is before March 1973: for seconds give {millis * 1000}")
    return millis


def to_limit(moment: object, *, name: str) -> int:
    """Return the time before which something is old, as ms since 1970 in UTC; ``name`` is the argument's.

    Raises:
        PolicyError: see ``to_millis``; or a number that cannot be ms since 1970, since it lies before March 1973.
    """
    millis = to_millis(moment, name=name)
    if not isinstance(moment, datetime) and millis < _LEAST_MS:
        raise PolicyError(
            f"{name} is {moment!r}, which as ms since 1970 is before March 1973: give a datetime with a time zone, such as "
            "datetime.now(timezone.utc) - timedelta(days=3)"
        )
    return millis


def span_text(span: timedelta) -> str:
    """Return a time in the largest unit that it is a whole number of, as ``parse_span`` reads it: ``3d``, ``36h``, ``90m``, ``5s``."""
    for letter, unit in _UNITS.items():
        if span % timedelta(**{unit: 1}) == timedelta():
            return f"{span // timedelta(**{unit: 1})}{letter}"
    return f"{span.total_seconds()}s"


def parse_span(text: str, *, name: str = "") -> timedelta:
    """Return the time that a number and a unit say, such as ``3d``, ``12h``, ``90m`` or ``5s``; ``name`` is the argument's, for messages.

    Raises:
        PolicyError: another form, or more than a hundred years.
    """
    found, before = _SPAN.fullmatch(text.strip()), f"{name}: " if name else ""
    if found is None:
        raise PolicyError(f"{before}{text!r} is no span of time: write a number and d, h, m or s, such as 3d")
    try:
        span = timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        span = timedelta.max
    if span > _LONGEST:
        raise PolicyError(f"{before}{text!r} is more than {_LONGEST.days} days; nothing is that old")
    return span


def parse_moment(name: str, text: str) -> int:
    """Return ms since 1970 of a number, or of ISO 8601 text with a time zone; ``name`` is the option's.

    Raises:
        PolicyError: other text.
    """
    stripped = text.strip()
    if is_number(stripped.removeprefix("-")):
        return _not_seconds(int(stripped), name=f"option {name}")
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError as e:
        raise PolicyError(f"option {name} is {text!r}; it must be milliseconds since 1970, or a time such as '2026-01-31T12:00:00Z'") from e
    if moment.tzinfo is None:
        whole = stripped if ":" in stripped else moment.isoformat()
        raise PolicyError(f"option {name} is {text!r}, which has no time zone; add one, such as '{whole}Z'")
    return (moment - _EPOCH) // timedelta(milliseconds=1)
