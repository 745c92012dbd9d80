"""A moment that decides what is read or deleted, as the metadata has it: milliseconds since 1970 in UTC.

A ``datetime`` without a zone is refused. Python takes it for local time, PyIceberg for UTC, so ``datetime.now()`` was hours off: snapshots
that were to be kept would go.

Not here: times as values of columns.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from icelock.errors import PolicyError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_millis(moment: object, *, name: str) -> int:
    """Return a moment in ms since 1970, UTC.

    Args:
        moment: a ``datetime`` with a time zone, or ms since 1970.
        name: what it is called where it was given.

    Raises:
        PolicyError: a ``datetime`` without a zone, or something else.
    """
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise PolicyError(
                f"{name} is {moment.isoformat(sep=' ')} without a time zone, so it does not say which moment is meant: use "
                "datetime.now(timezone.utc), or moment.astimezone() for local time"
            )
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    raise PolicyError(
        f"{name} is {moment!r}; it must be a datetime with a time zone, such as datetime.now(timezone.utc), or ms since 1970 as an int"
    )
