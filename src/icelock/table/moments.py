"""Times that decide what is read or deleted, as table metadata has them: milliseconds since 1970 in UTC.

A ``datetime`` without a zone is refused. Python takes it for local time and PyIceberg for UTC, so ``datetime.now()`` would be hours off,
and snapshots that should be kept would be expired.

Not here: times as values of columns.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from icelock.errors import PolicyError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
