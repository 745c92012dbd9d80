"""``icelock.maintenance.undo_conversion``: a table that was converted becomes the plain one that it was, while its plain files are there.

1. the plain version is read from the file that ``icelock.converted-from`` names, and each of its files must be there;
2. nobody may have committed since the switch, unless that may be lost;
3. one commit puts the plain version back, with what the catalog keeps of a plain table (no key id, no hash, no facts).

The encrypted files stay where they are. Other clients that have seen the table encrypted refuse it until they are told
(``catalog.pins.forget``): to them it looks like an attack.

Not here: the commit (``catalog.commit.switch``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock import properties as names
from icelock.errors import PolicyError
from icelock.io.file_io import storage_of
from icelock.shown import Shown
from icelock.table.commit.protocol import given_up
from icelock.table.guard.conversion import check_undo
from icelock.table.guard.plain_origin import PlainOrigin
from icelock.table.maintenance.removal.plain_files import plain_files_of, plain_version
from icelock.table.plain import check_loaded
from icelock.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Undone(Shown):
    """What an undone conversion left, or with ``dry_run`` would leave.

    Args:
        snapshot_id: the plain table's current snapshot; None if it has none.
        lost_snapshots: ids of encrypted snapshots that were committed after the switch, and are in the table no more.
        dry_run: whether nothing was done.
    """

    snapshot_id: int | None = None
    lost_snapshots: tuple[int, ...] = ()
    dry_run: bool = False


def undo_conversion(table: Table, *, drop_commits: bool = False, dry_run: bool = False) -> Undone:
    """Make a converted table the plain one that it was at the switch.

    Args:
        table: it is still the encrypted version afterwards, so load it again.
        drop_commits: whether what was committed since the switch may be lost.
        dry_run: only check, and say what would be lost.

    Raises:
        PolicyError: the table was not converted, the removal of its plain files was begun, one is gone, something was committed since, or a
            pin of the client's says that the table is encrypted; nothing was changed.
        FormatError, IntegrityError, OSError: the plain files cannot be told; likewise.
        CommitFailedException: another writer was first; likewise.
        CommitStateUnknownException: the catalog did not say what became of the commit.
    """
    check_loaded(table)
    table.refresh()
    name, catalog = ".".join(table.name()), _catalog_of(table)
    without = "was not converted, or its plain files were removed: there is no way back"
    origin = PlainOrigin.needed(table.metadata, table=name, without=without)
    if origin.removing:
        raise PolicyError(
            f"table {name}: its plain files are being removed (icelock convert --remove-plain goes on with it): there is no way back"
        )
    if catalog.pins.pinned_key_id(table.name()):
        raise PolicyError(
            f"table {name}: {names.PINS_PREFIX}{name} says that it is encrypted: take the pin out of the catalog's properties"
        )
    known = plain_version(table, origin)
    plain, _ = known
    check_undo(table.metadata, plain, table=name)
    lost = _since_the_switch(table, plain, name, origin, drop_commits=drop_commits)
    _check_there(table, plain_files_of(table, known=known), name)
    if not dry_run:
        try:
            catalog.commit_undo(table, plain)
        except CommitFailedException as e:
            raise given_up(e) from e.__cause__
    return Undone(snapshot_id=plain.current_snapshot_id, lost_snapshots=lost, dry_run=dry_run)


def _catalog_of(table: Table) -> Any:
    return table.catalog  # an EncryptedCatalog


def _since_the_switch(table: Table, plain: TableMetadata, name: str, origin: PlainOrigin, *, drop_commits: bool) -> tuple[int, ...]:
    """Return the snapshots after that of the switch.

    Raises:
        PolicyError: there was a commit of any kind, and it may not be lost.
    """
    log = table.metadata.metadata_log
    untouched = bool(log) and log[-1].metadata_file == origin.location
    kept = {snapshot.snapshot_id for snapshot in plain.snapshots}
    new = () if untouched else [one for one in table.metadata.snapshots if one.snapshot_id not in kept]
    lost = tuple(one.snapshot_id for one in new if not (one.summary and names.SWITCH in one.summary.additional_properties))
    if not untouched and not drop_commits:
        raise PolicyError(
            f"table {name} was committed to since its conversion ({len(lost)} snapshots more than that): nothing was changed. To lose what "
            "was committed, say so (drop_commits, --drop-commits)"
        )
    return lost


def _check_there(table: Table, files: Sequence[str], name: str) -> None:
    storage = storage_of(table.io)
    there = ExecutorFactory.get_or_create().map(lambda path: storage.new_input(path).exists(), files)
    gone = [path for path, found in zip(files, there, strict=True) if not found]
    if gone:
        raise PolicyError(f"table {name}: {len(gone)} of its plain files are gone, such as {gone[0]}: there is no way back")
