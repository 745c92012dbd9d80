"""Leftovers (orphan files) at a table's location: files that nothing reaches, and key entries that nothing needs.

Crashed writers, failed deletions and interrupted expiries leave files. A file is left over if no snapshot of the table's present metadata
has it live, and it is neither the metadata file nor one of its log. The plain files of a table that was converted are not left over before
``remove_plain``. Order: 1 the table's files are read from its metadata, with its keys;
2 storage is listed; 3 the metadata is loaded again, and files of commits in between are the table's too. So a file that was committed
during the call is not left over. A file that a writer has not committed yet is, so files younger than three days are not removed by
default.

Of a file that is reached 8 bytes are kept, and of those that are listed only what is left over: a million of each fit into little memory,
unless one folder of an object store has most of them, since Arrow lists a folder at once.

Anything that cannot be read stops the search, and nothing is deleted: a manifest that cannot be decrypted leaves no file over (case C-50).

Users call it by ``icelock.maintenance``. Not here: listing storage (``io.listing``), reading metadata
(``table.maintenance.removal.deletable``), expiry (``table.maintenance.removal.expire``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.errors import IntegrityError, PolicyError
from icelock.io.listing import StoredFile, delete_files, list_files
from icelock.io.locations import place_of
from icelock.shown import Shown
from icelock.table.maintenance.removal.deletable import Home, reached
from icelock.table.maintenance.removal.expire import check_gc
from icelock.table.maintenance.removal.kinds import Content, Kind, content_of, kind_of, without_checksum
from icelock.table.maintenance.removal.neighbours import OtherTables, refuse_other_tables
from icelock.table.maintenance.removal.places import Places
from icelock.table.maintenance.removal.plain_files import kept_with_plain
from icelock.table.maintenance.removal.retention import dead_keys
from icelock.table.maintenance.removal.storage_clock import check_clock
from icelock.table.moments import SAFE_AGE, to_limit
from icelock.table.state import OpenTable

_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file that nothing reaches: its size in stored bytes, and when it was last written (None: the storage does not say).

    ``content`` says whether it is encrypted. A plain data file, manifest or delete file was left by a client without encryption, whose
    commit was refused: anyone who can read the storage can read its rows. Metadata files are always plain.
    """

    path: str
    size: int
    modified_ms: int | None
    kind: Kind
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Leftovers(Shown):
    """Leftover files, by path; ``keys`` are ids of key entries that the next expiry removes.

    After ``remove_leftovers``: ``files`` were deleted, and ``failed`` could not be.
    """

    files: tuple[Leftover, ...]
    keys: tuple[str, ...]
    failed: tuple[Leftover, ...] = ()


def leftovers(table: OpenTable, *, older_than: timedelta | datetime | None = None) -> Leftovers:
    """List the leftovers at a table's location; nothing is changed.

    Args:
        table: an encrypted table.
        older_than: omit files that were written since then, or whose age the storage does not say.

    Raises:
        KeyUnavailableError, IntegrityError, FormatError, OSError: a manifest list or manifest cannot be read; names it.
        IntegrityError: the catalog names an older version than this client has seen, for example after a restore; or storage does not
            list the table's own files by the names in its metadata.
        PolicyError: the table is plain, or its FileIO cannot list; or ``older_than`` is no age and no moment.
    """
    search = _Search(table, _limit_ms(table, older_than))
    return Leftovers(files=tuple(search.run()), keys=search.keys())


def remove_leftovers(table: OpenTable, *, older_than: timedelta | datetime = SAFE_AGE) -> Leftovers:
    """Delete the files that ``leftovers`` lists, except for kinds that a table does not write; key entries are left for the next expiry.

    If the table's location in its metadata is not where the metadata file lies, nothing is deleted there, and the files are ``failed``:
    anyone who can write to storage may have changed the location (``table.maintenance.removal.deletable``).

    Files of running writers look left over until they are committed: ``older_than`` must be longer than any write takes.

    Raises:
        KeyUnavailableError, IntegrityError, FormatError, OSError: see ``leftovers``; nothing was deleted.
        IntegrityError: the metadata file that a REST server names is not the table's; nothing was deleted.
        PolicyError: see ``leftovers``; or no ``older_than``, or the table has ``gc.enabled=false``, or another table lies at or below
            its location, or this machine's clock is ahead of the storage's; nothing was deleted.
    """
    if older_than is None:
        raise PolicyError(
            f"table {_name(table)}: older_than is None, and files look left over until their writer commits: give an age, or omit it"
        )
    check_gc(table.metadata, table=_name(table))
    check_clock(table)
    search = _Search(table, _limit_ms(table, older_than), deletes=True)
    found = [file for file in search.run() if file.kind is not Kind.OTHER]
    refuse_other_tables(search.foreign, table=_name(table))
    home = search.home
    if found:
        home.check()
    owned = home.owned([file.path for file in found])
    failed = {*delete_files(table.storage, owned, allowed=home.owns), *(file.path for file in found if file.path not in owned)}
    return Leftovers(
        files=tuple(file for file in found if file.path not in failed),
        keys=search.keys(),
        failed=tuple(file for file in found if file.path in failed),
    )


class _Search:
    """One search of the storage; ``deletes``: what is found will be deleted.

    ``foreign`` is a metadata file of another table, if there is one and it was asked for (``OtherTables``).
    """

    def __init__(self, table: OpenTable, limit_ms: int | None, *, deletes: bool = False) -> None:
        table.io_for(table.metadata)
        self._table = table.at_one_version()
        self._limit_ms = limit_ms
        self._deletes = deletes
        self.foreign: str | None = None

    @property
    def home(self) -> Home:
        """Where the table's own files lie, by the latest metadata."""
        return Home.of(self._table)

    def run(self) -> Iterator[Leftover]:
        """Yield the leftovers, by path."""
        self._refresh()
        found = self._listed(self._reached())
        before = self._table.metadata_location
        self._refresh()
        if self._table.metadata_location != before:
            late = self._reached()
            found = [file for file in found if place_of(file.location) not in late]
        found.sort(key=lambda file: file.location)
        for start in range(0, len(found), _AT_ONCE):
            yield from ExecutorFactory.get_or_create().map(self._described, found[start : start + _AT_ONCE])

    def _described(self, file: StoredFile) -> Leftover:
        content = content_of(self._table.storage, file.location)
        return Leftover(path=file.location, size=file.size, modified_ms=file.modified_ms, kind=kind_of(file.location), content=content)

    def keys(self) -> tuple[str, ...]:
        """Return the key entries that nothing needs, in the latest metadata."""
        return dead_keys(self._table.metadata, (), now_ms=self._table.encryption.clock())

    def _refresh(self) -> None:
        """Load the table as a commit does: a stale catalog must not make files of newer snapshots look left over."""
        catalog = self._table.catalog
        if hasattr(catalog, "check_current"):
            known = catalog.pins.seen(self._table.name())  # before the catalog is asked, as others commit meanwhile
            catalog.check_current(self._table.refresh(), known)
        else:
            self._table.refresh()  # a static table refuses
        if self._deletes:
            check_gc(self._table.metadata, table=_name(self._table))

    def _reached(self) -> Places:
        table = self._table
        own = reached(table.metadata, table.metadata_location, table.io, live_only=True)
        return Places(place_of(path) for path in chain(own, kept_with_plain(table)))

    def _listed(self, reached_places: Places) -> list[StoredFile]:
        """Return the listed files that are not reached and are old enough."""
        table = self._table
        own = place_of(table.metadata_location)
        folder = own.rpartition("/")[0]
        must_be_seen = {place_of(snapshot.manifest_list) for snapshot in table.metadata.snapshots} | {own}
        found, limit = [], self._limit_ms
        others = OtherTables(table, reached_places)
        for file in list_files(table.storage, table.location()):
            place = place_of(file.location)
            must_be_seen.discard(place)
            others.see(file.location, place)
            old = limit is None or (file.modified_ms is not None and file.modified_ms < limit)
            if old and not _belongs(place, reached_places, folder):
                found.append(file)
        if self._deletes:
            self.foreign = others.found()
        # These files were just read, so they exist; if they are not listed, the names of the storage cannot be compared.
        root = place_of(table.location()).rstrip("/") + "/"
        unseen = sorted(place for place in must_be_seen if place.startswith(root))
        if unseen:
            raise IntegrityError(
                f"table {_name(table)}: storage does not list {unseen[0]}, which the table has, so leftovers cannot be told apart"
            )
        return found


def _belongs(place: str, reached_places: Places, metadata_folder: str) -> bool:
    folder, _, name = place.rpartition("/")
    if place in reached_places or (folder == metadata_folder and name == "version-hint.text"):
        return True
    return name != without_checksum(name) and _belongs(f"{folder}/{without_checksum(name)}", reached_places, metadata_folder)


def _limit_ms(table: OpenTable, older_than: timedelta | datetime | None) -> int | None:
    if older_than is None:
        return None
    if isinstance(older_than, timedelta):
        return table.encryption.clock() - older_than // timedelta(milliseconds=1)
    return to_limit(older_than, name="older_than")


def _name(table: OpenTable) -> str:
    return ".".join(table.name())
