"""``remove_plain``: delete the files that a table had before its conversion, after a proof that nothing needs them.

1. an audit of the encrypted table (all snapshots, every byte: there is no other copy afterwards): a finding stops it;
2. the plain files are told from the metadata file of the plain version;
3. a commit claims the step: from then on there is no way back to the plain table (``table.guard.plain_origin``). A table that became
   another one since the audit is refused there;
4. those that the encrypted table reaches then are left out, and the others are deleted, as far as they lie where the table's files do
   (``table.maintenance.removal.deletable``);
5. the table forgets where its plain version was, so that a later call knows that nothing is left.

Killed after the claim, it is gone on with by the next call. What a bucket keeps as older versions, and backups, still hold them: no client
can see those.

Not here: which files they are (``table.maintenance.removal.plain_files``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from icelock import properties as names
from icelock.audit.report import Verdict
from icelock.audit.run import audit
from icelock.errors import IntegrityError, PolicyError
from icelock.io.file_io import storage_of
from icelock.io.listing import delete_files
from icelock.io.locations import asks_elsewhere, real_place
from icelock.metadata.table_metadata import is_encrypted
from icelock.shown import Shown
from icelock.table.guard.plain_origin import PlainOrigin
from icelock.table.maintenance.removal.deletable import Home, reached
from icelock.table.maintenance.removal.expire import check_gc
from icelock.table.maintenance.removal.kinds import Kind, kind_of
from icelock.table.maintenance.removal.places import Places
from icelock.table.maintenance.removal.plain_files import check_place, plain_files_of, told_apart
from icelock.table.plain import check_loaded
from icelock.table.table import Table

logger = logging.getLogger(__name__)

_FILES: Final = "files"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RemovedPlain(Shown):
    """What was removed, or with ``dry_run`` would be.

    Args:
        files: plain files that were deleted.
        left: those that could not be deleted, and lists and manifests that name them or files elsewhere: call it again.
        elsewhere: those that are there and do not lie at the table: they may be another's, and stay. Once they are gone, the next call
            finishes.
        dry_run: whether nothing was done.
    """

    files: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    dry_run: bool = False


def remove_plain(table: Table, *, dry_run: bool = False) -> RemovedPlain:
    """Delete the plain files that a converted table had, if an audit proves that nothing reaches them; there is no way back afterwards.

    Older versions of objects in a bucket, snapshots of file systems and backups are not touched: they hold the rows in the clear until you
    remove them.

    Raises:
        PolicyError: the table was not converted, or its plain files are gone already, or the conversion was undone meanwhile, or the table
            says ``gc.enabled=false``, or another one lies at its location, or the FileIO cannot list, or the audit could not look at
            everything, as when the KMS is away; nothing was deleted.
        IntegrityError: the audit found something, or the plain metadata file is not the one that was converted; nothing was deleted.
        FormatError, OSError: the plain files cannot be told, since one of their lists or manifests is gone or damaged; likewise.
    """
    check_loaded(table)
    table.refresh()
    name = ".".join(table.name())
    without = "has no plain files: it was not converted, or they were removed already"
    origin = PlainOrigin.needed(table.metadata, table=name, without=without)
    check_gc(table.metadata, table=name)
    _check_sound(table, name)
    home = Home.of(table)
    check_place(table, home)
    named = plain_files_of(table)  # they cannot become others: plain lists and manifests do not change
    if named and not dry_run and not origin.removing:
        origin = _claimed(table, origin)
    found, elsewhere = _told_apart(table, named, home)
    if dry_run:
        return RemovedPlain(files=found, elsewhere=elsewhere, dry_run=True)
    removed = _removed(table, [path for path in found if not (elsewhere and _names_others(path) != _FILES)], home)
    if len(removed) == len(found) and not elsewhere:
        with table.transaction() as change:
            change.remove_properties(origin.name)
    return RemovedPlain(files=removed, left=tuple(path for path in found if path not in set(removed)), elsewhere=elsewhere)


def _told_apart(table: Table, named: Sequence[str], home: Home) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return those of the plain files that are there: those to delete, in their order, and those elsewhere."""
    needed = Places(real_place(path) for path in reached(table.metadata, table.metadata_location, table.io, live_only=False))
    found, elsewhere = told_apart(table, (path for path in named if real_place(path) not in needed), home)
    return found, tuple(path for path in elsewhere if _may_be_there(table, path))


def _may_be_there(table: Table, path: str) -> bool:
    """Whether a file elsewhere may be on storage; a host or storage that only a plain manifest names is not asked."""
    if asks_elsewhere(path, table.metadata_location, table.metadata.location):
        return True
    try:
        return storage_of(table.io).new_input(path).exists()
    except Exception:  # noqa: BLE001 - whatever it is, nobody knows that it is gone
        return True


def _claimed(table: Table, origin: PlainOrigin) -> PlainOrigin:
    """Commit that the removal begins; return the origin as it is named then.

    Raises:
        PolicyError: the table is not the one that was audited any more; nothing was changed.
    """
    name, uuid = ".".join(table.name()), table.metadata.table_uuid
    changed = f"table {name} was changed by another client while its plain files were to be removed; nothing was deleted"
    try:
        with table.transaction() as change:
            change.set_properties({names.REMOVING_PLAIN: origin.value})
            change.remove_properties(origin.name)
    except PolicyError as e:
        raise PolicyError(changed) from e
    table.refresh()
    claimed = replace(origin, removing=True)
    if table.metadata.table_uuid != uuid or not is_encrypted(table.metadata) or PlainOrigin.of(table.properties) != claimed:
        raise PolicyError(changed)
    return claimed


def _removed(table: Table, found: Sequence[str], home: Home) -> tuple[str, ...]:
    """Delete files in their order; return those that are gone. If some cannot be deleted, what names them stays."""
    storage = storage_of(table.io)
    gone: list[str] = []
    for kind, group in groupby(found, key=_names_others):
        files = list(group)
        left = set(delete_files(storage, files, allowed=home.owns))
        gone += [path for path in files if path not in left]
        if left:
            logger.warning("%d plain %s of table %s could not be deleted", len(left), kind, ".".join(table.name()))
            break
    return tuple(gone)


def _names_others(path: str) -> str:
    kind = kind_of(path)
    return kind.value if kind in {Kind.MANIFEST, Kind.MANIFEST_LIST} else _FILES


def _check_sound(table: Table, name: str) -> None:
    """Refuse unless the audit finds that all that the table reaches is encrypted and whole; errors are those of ``remove_plain``."""
    (report,) = audit(table.catalog, name, depth="bytes").tables  # type: ignore[arg-type]  # an EncryptedCatalog
    if report.verdict is Verdict.COULD_NOT_LOOK:
        unseen = report.unseen[0]
        raise PolicyError(
            f"table {name}: the audit could not look at everything, so it does not prove that the plain files are not needed; nothing was "
            f"deleted, try again when it can. {unseen.what}: {unseen.why}"
        )
    if report.verdict is not Verdict.SOUND:
        found = [f"{code} ({number})" for code, number in report.counts.items()]
        raise IntegrityError(
            f"table {name}: the audit does not prove that the plain files are not needed: {', '.join(found)}; nothing was deleted. "
            f"icelock audit {name} says more"
        )
