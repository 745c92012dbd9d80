"""What ``icelock.maintenance.convert`` returns."""

from __future__ import annotations

from dataclasses import dataclass

from icelock.shown import Shown


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Converted(Shown):
    """What a conversion did, or with ``dry_run`` would do.

    Args:
        key_id: the table's master key.
        files: data files of the plain table's current state.
        bytes: their size on storage.
        added_files: encrypted data files; of a dry run not known, 0.
        added_bytes: their size on storage; likewise.
        reused: data files of the plain table whose encrypted ones an earlier call had written (``progress_file``).
        rounds: how often the table was looked at before the switch.
        turn_seconds: for how long other writers of the catalog had to wait at the switch.
        snapshot_id: the new one of the main branch; a copy of no rows has none.
        snapshots: how many of the plain table were kept.
        copied_to: the name of the new table, of a copy; the plain one is left alone.
        dropped_refs: branches and tags that are gone with the history.
        plain_files: all files of the plain table that hold rows, bounds or partition values, of its whole history: they stay on storage.
        dry_run: whether nothing was done.
    """

    key_id: str
    files: int = 0
    bytes: int = 0
    added_files: int = 0
    added_bytes: int = 0
    reused: int = 0
    rounds: int = 0
    turn_seconds: float = 0.0
    snapshot_id: int | None = None
    snapshots: int = 0
    copied_to: str | None = None
    dropped_refs: tuple[str, ...] = ()
    plain_files: tuple[str, ...] = ()
    dry_run: bool = False
