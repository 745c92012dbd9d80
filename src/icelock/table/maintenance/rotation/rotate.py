"""``table.maintenance.rotate()``: new keys for a table, by level; no row is changed.

``kek`` and ``wrap`` are one commit that touches no file (``table.maintenance.rotation.rotate_keys``). ``data`` makes a KEK, and writes the
files of all branches again under it (``table.maintenance.rotation.rotate_data``); ``lists`` writes manifest lists and manifests of all
snapshots again (``table.maintenance.rotation.rotate_lists``), ``all`` does as ``data``, and then writes all that older snapshots and tags
need again (``table.maintenance.rotation.rotate_history``). With another master key the KEKs are wrapped by that one first.
"""

from __future__ import annotations

from dataclasses import replace

from icelock import properties as names
from icelock.errors import PolicyError
from icelock.kms.client import KmsClient
from icelock.table.maintenance.compaction.compact import Progress
from icelock.table.maintenance.rotation.rotate_data import RotatedData
from icelock.table.maintenance.rotation.rotate_history import RotatedHistory, check_files
from icelock.table.maintenance.rotation.rotate_keys import Rotated, RotatedKeys
from icelock.table.maintenance.rotation.rotate_levels import LEVELS, OF_FILES, Level
from icelock.table.maintenance.rotation.rotate_lists import RotatedLists, check_readable
from icelock.table.maintenance.workers import Workers
from icelock.table.state import OpenTable

__all__ = ["LEVELS", "Level", "Rotated", "rotate"]


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
    keys = RotatedKeys(table, level, to_key, kms)
    if level not in OF_FILES:
        return keys.plan() if dry_run else keys.run()
    table.refresh()
    keys.check_unfinished()
    if level != "data":
        table.catalog.check_replaces_snapshots(".".join(table.name()))
        manifests = check_readable(table.metadata.snapshots, table)
        if level == "all":
            check_files(manifests.values(), table)
    if dry_run:
        return _plan(table, keys, workers)
    before = names.encryption_key_id(table.metadata.properties)
    wrapped = () if to_key in (None, before) else RotatedKeys(table, "wrap", to_key, None).run().wrapped
    made = _from(RotatedKeys(table, level, None, None).run(), before, wrapped)
    mark = keys.mark(made.kek)
    if level == "lists":
        return RotatedLists(table, made, mark, progress).run()
    if level == "data":
        return RotatedData(table, made, workers, progress).run()
    current = RotatedData(table, made, workers, progress, of_all=mark).run()
    return RotatedHistory(table, current, mark, workers.copy, progress).run()


def _plan(table: OpenTable, keys: RotatedKeys, workers: Workers) -> Rotated:
    plan = keys.plan()
    mark = keys.mark(plan.kek)
    if plan.level == "lists":
        return RotatedLists(table, plan, mark).plan()
    if plan.level == "data":
        return RotatedData(table, plan, workers).plan()
    data = RotatedData(table, plan, workers, of_all=mark)
    of_branches = data.plan()
    return RotatedHistory(table, of_branches, mark, workers.copy, current=data.copied).plan()


def _from(made: Rotated, from_key: str | None, wrapped: tuple[str, ...]) -> Rotated:
    return replace(made, from_key=from_key or made.from_key, wrapped=wrapped)


def _check(level: str, to_key: str | None, kms: KmsClient | None) -> None:
    if level not in LEVELS:
        raise PolicyError(f"level is {level!r}; it must be one of {', '.join(LEVELS)}")
    if level == "kek" and (to_key is not None or kms is not None):
        raise PolicyError(
            "another master key or KMS wraps the KEKs that are there: use level 'wrap'; 'kek' makes one under the present key"
        )
    if level in OF_FILES and kms is not None:
        raise PolicyError(f"another KMS: use level 'wrap' with it, set the catalog up for it, and then use {level!r}")
    if to_key is not None:
        names.encryption_key_id({names.ENCRYPTION_KEY_ID: to_key})
