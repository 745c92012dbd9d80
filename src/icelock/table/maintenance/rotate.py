"""``table.maintenance.rotate()``: new keys for a table, by level; no row is changed.

``kek`` and ``wrap`` are one commit that touches no file (``table.maintenance.rotate_keys``). ``data`` makes a KEK, and writes the files of
all branches again under it (``table.maintenance.rotate_data``); with another master key the KEKs are wrapped by that one first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from icelock import properties as names
from icelock.errors import PolicyError
from icelock.kms.client import KmsClient
from icelock.table.maintenance.compact import Progress
from icelock.table.maintenance.rotate_data import RotatedData
from icelock.table.maintenance.rotate_keys import LEVELS, Level, Rotated, RotatedKeys
from icelock.table.maintenance.workers import Workers
from icelock.table.state import OpenTable

__all__ = ["LEVELS", "Level", "Rotated", "rotate"]

_NOT_YET: Final = {
    "lists": "snapshots never change, so their manifest lists stay under the keys that they have",
    "all": "files that only older snapshots and tags have stay under the keys that they have",
}


def rotate(
    table: OpenTable,
    level: Level,
    *,
    to_key: str | None,
    kms: KmsClient | None,
    dry_run: bool,
    progress: Progress | None,
    workers: Workers,
) -> Rotated:
    """Rotate a table's keys; see ``MaintenanceTable.rotate``."""
    _check(level, to_key, kms)
    table.io_for(table.metadata)
    if level != "data":
        keys = RotatedKeys(table, level, to_key, kms)
        return keys.plan() if dry_run else keys.run()
    if dry_run:
        return RotatedData(table, RotatedKeys(table, level, to_key, kms).plan(), workers).plan()
    table.refresh()
    before = names.encryption_key_id(table.metadata.properties)
    wrapped = () if to_key in (None, before) else RotatedKeys(table, "wrap", to_key, None).run().wrapped
    made = RotatedKeys(table, level, None, None).run()
    return RotatedData(table, _from(made, before, wrapped), workers, progress).run()


def _from(made: Rotated, from_key: str | None, wrapped: tuple[str, ...]) -> Rotated:
    return replace(made, from_key=from_key or made.from_key, wrapped=wrapped)


def _check(level: str, to_key: str | None, kms: KmsClient | None) -> None:
    if level in _NOT_YET:
        raise PolicyError(
            f"level {level!r} is not in this version: {_NOT_YET[level]}; use 'data', and expire older snapshots and tags: then nothing "
            "needs an older key"
        )
    if level not in LEVELS:
        raise PolicyError(f"level is {level!r}; it must be one of {', '.join(LEVELS)}")
    if level == "kek" and (to_key is not None or kms is not None):
        raise PolicyError(
            "another master key or KMS wraps the KEKs that are there: use level 'wrap'; 'kek' makes one under the present key"
        )
    if level == "data" and kms is not None:
        raise PolicyError("another KMS: use level 'wrap' with it, set the catalog up for it, and then use 'data'")
    if to_key is not None:
        names.encryption_key_id({names.ENCRYPTION_KEY_ID: to_key})
