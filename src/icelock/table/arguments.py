"""Arguments of tables' methods that Python does not check: ids of snapshots, limits, flags.

An id as text is refused, also where it is a number: it would not be found, and pass for one of an expired snapshot.
"""

from __future__ import annotations

from numbers import Integral

from pyiceberg.table.metadata import TableMetadata

from icelock.errors import PolicyError
from icelock.metadata.schema_paths import shortened


def checked_id(given: object, *, name: str) -> int:
    """Return a snapshot's id; anything but a whole number is a PolicyError about the argument ``name``."""
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    number = str(getattr(given, "snapshot_id", given)).strip()
    remedy = f", such as {name}={number}" if number.isdecimal() else "; table.snapshots() lists them"
    raise PolicyError(f"{name} is {shortened(repr(given))}, of type {type(given).__name__}; it must be a snapshot's id, an int{remedy}")


def checked_id_or_none(given: object, *, name: str) -> int | None:
    """Return the same, or None for None."""
    return None if given is None else checked_id(given, name=name)


def check_snapshot(metadata: TableMetadata, snapshot_id: object) -> None:
    """Check that a table has a snapshot; None, or what ``checked_id`` refuses, is a PolicyError too."""
    if snapshot_id is None or metadata.snapshot_by_id(checked_id(snapshot_id, name="snapshot_id")) is None:
        raise PolicyError(f"the table has no snapshot {snapshot_id}; table.snapshots() lists those that it has")


def checked_flag(given: object, *, name: str) -> bool:
    """Return True or False; anything else, such as the text 'no', is a PolicyError about the argument ``name``."""
    if isinstance(given, bool):
        return given
    raise PolicyError(f"{name} is {given!r}; it must be True or False")


def checked_limit(limit: object) -> int | None:
    """Return a scan's limit; anything but a whole number from 0 on, or None, is a PolicyError."""
    if limit is None:
        return None
    if isinstance(limit, Integral) and not isinstance(limit, bool) and int(limit) >= 0:
        return int(limit)
    raise PolicyError(f"limit is {limit!r}; it must be a whole number of rows, such as limit=10")
