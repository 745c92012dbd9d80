"""``remove_plain``: delete the files that a table had before its conversion, after a proof that nothing needs them.

1. an audit of the encrypted table (all snapshots; every list, manifest and footer opens): a finding stops it;
2. the plain files are told from the metadata file of the plain version, and those that the encrypted table reaches are left out;
3. they are deleted, as far as they lie where the table's files do (``table.maintenance.deletable``);
4. the table forgets where its plain version was, so that a later call knows that nothing is left.

What a bucket keeps as older versions, and backups, still hold them: no client can see those.

Not here: which files they are (``table.maintenance.plain_files``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from icelock import properties as names
from icelock.audit.report import Verdict
from icelock.audit.run import audit
from icelock.errors import IntegrityError, PolicyError
from icelock.io.file_io import storage_of
from icelock.io.listing import delete_files
from icelock.io.locations import place_of
from icelock.table.maintenance.deletable import Home, reached
from icelock.table.maintenance.expire import check_gc
from icelock.table.maintenance.leftovers import Kind, kind_of
from icelock.table.maintenance.places import Places
from icelock.table.maintenance.plain_files import plain_files_of
from icelock.table.maintenance.shown import Shown
from icelock.table.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RemovedPlain(Shown):
    """What was removed, or with ``dry_run`` would be.

    Args:
        files: plain files that were deleted.
        left: those that could not be deleted, and all that name them: call it again.
        elsewhere: those that do not lie at the table, and may be another's: they stay, and are named by no later call.
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
        PolicyError: the table was not converted, or its plain files are gone already, or it says ``gc.enabled=false``.
        IntegrityError: the audit found something; nothing was deleted.
        FormatError, OSError: the plain files cannot be told; likewise.
    """
    table.refresh()
    name = ".".join(table.name())
    if names.CONVERTED_FROM not in table.properties:
        raise PolicyError(f"table {name} has no plain files: it was not converted, or they were removed already")
    check_gc(table.metadata, table=name)
    _check_sound(table, name)
    needed = Places(place_of(path) for path in reached(table.metadata, table.metadata_location, table.io, live_only=False))
    plain = [path for path in plain_files_of(table) if place_of(path) not in needed]
    home = Home.of(table)
    home.check()
    owned = home.owned(plain)
    found, elsewhere = [path for path in plain if path in owned], tuple(path for path in plain if path not in owned)
    if dry_run:
        return RemovedPlain(files=tuple(found), elsewhere=elsewhere, dry_run=True)
    removed = _removed(table, found, home)
    if len(removed) == len(found):
        with table.transaction() as change:
            change.remove_properties(names.CONVERTED_FROM)
    return RemovedPlain(files=removed, left=tuple(path for path in found if path not in set(removed)), elsewhere=elsewhere)


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
    return kind.value if kind in {Kind.MANIFEST, Kind.MANIFEST_LIST} else "files"


def _check_sound(table: Table, name: str) -> None:
    """Refuse unless the audit finds that all that the table reaches is encrypted and whole."""
    (report,) = audit(table.catalog, name, depth="open").tables  # type: ignore[arg-type]  # an EncryptedCatalog
    if report.verdict is not Verdict.SOUND:
        found = [f"{code} ({number})" for code, number in report.counts.items()] or ["it could not look at everything"]
        raise IntegrityError(
            f"table {name}: the audit does not prove that the plain files are not needed: {', '.join(found)}; nothing was deleted. "
            f"icelock audit {name} says more"
        )
