"""Which other tables there are, at a table's location and in its catalog: a file of one of them is never deleted with this one's.

Not here: what a storage holds (``table.maintenance.removal.leftovers``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.typedef import Identifier
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.errors import PolicyError
from icelock.io.listing import list_files
from icelock.io.locations import place_of
from icelock.metadata.table_metadata import read_metadata
from icelock.table.maintenance.removal.kinds import Kind, kind_of
from icelock.table.state import OpenTable

_METADATA: Final = "metadata.json"


class OtherTables:
    """Metadata files of other tables among the files at a table's location: outside of its metadata folder, or in it with another uuid.

    A table of two versions was there, and may be another catalog's. Of one version it may be a creation that failed, which is nobody's;
    unless the catalog has it.

    Args:
        table: whose location is listed.
        known: places of files that are its own.
    """

    def __init__(self, table: OpenTable, known: Container[str]) -> None:
        self._table = table
        self._known = known
        self._folder = place_of(table.metadata_location).rpartition("/")[0]
        self._outside: str | None = None
        self._unknown: list[str] = []

    def see(self, location: str, place: str) -> None:
        """Take a listed file in, by its location and the place of that."""
        if _METADATA not in place or kind_of(place) is not Kind.METADATA:
            return
        if place.rpartition("/")[0] != self._folder:
            self._outside = location
        elif place not in self._known:
            self._unknown.append(location)

    def found(self) -> str | None:
        """Return one that is another table's, if there is one; files in the own folder are read for that."""
        if self._outside is not None:
            return self._outside
        own, storage = str(self._table.metadata.table_uuid), self._table.storage
        uuids = ExecutorFactory.get_or_create().map(lambda location: uuid_in(storage, location), self._unknown)
        others = [(uuid, location) for uuid, location in zip(uuids, self._unknown, strict=True) if uuid and uuid != own]
        counts = Counter(uuid for uuid, _ in others)
        later = next((location for uuid, location in others if counts[uuid] > 1), None)
        if later is None and others and may_have_table(self._table.catalog, dict(others)):
            return others[0][1]
        return later


def refuse_other_tables(found: str | None, *, table: str) -> None:
    """Refuse, as a PolicyError, to delete files by a table's location if a metadata file of another one was found there."""
    if found is not None:
        raise PolicyError(
            f"table {table}: {found} lies at its location and is another table's: nothing was deleted; give one of them "
            "another location (a table that was renamed keeps its folder, and two catalogs may share a warehouse). If that table was "
            "dropped, delete its metadata files, and run this again"
        )


def check_alone(table: OpenTable, known: Container[str]) -> None:
    """Refuse if another table lies at or below a table's location; ``known`` are places of files that are its own.

    Raises:
        PolicyError: names the other one's metadata file; or the FileIO cannot list.
    """
    others = OtherTables(table, known)
    for file in list_files(table.storage, table.location()):
        others.see(file.location, place_of(file.location))
    refuse_other_tables(others.found(), table=".".join(table.name()))


def uuid_in(io: FileIO, location: str) -> str | None:
    """Return the uuid of a metadata file's table; None if it cannot be read."""
    try:
        return str(read_metadata(io.new_input(location)).table_uuid)
    except Exception:  # noqa: BLE001 - damaged, or half a file of a writer that was killed: it is nobody's
        return None


def namespaces_below(catalog: Any, parent: Identifier = ()) -> Iterator[Identifier]:
    """Yield the namespaces below one, at any depth; catalogs without nested ones have none below a namespace.

    What else a server lists is left out: nothing outside of what was named is touched.
    """
    for space in catalog.list_namespaces(parent):
        if len(space) > len(parent) and space[: len(parent)] == parent:
            yield space
            yield from namespaces_below(catalog, space)


def may_have_table(catalog: Any, files: Mapping[str, str]) -> bool:
    """Return whether a catalog has a table of one of these uuids, each with a metadata file, or one that cannot be loaded: it might be it.

    Raises:
        whatever the catalog raises when it is asked for its namespaces.
    """
    if catalog.names_for_any(files.values()):
        return True
    return any(_uuid_of(catalog, name) in {None, *files} for space in namespaces_below(catalog) for name in _tables(catalog, space))


def _tables(catalog: Any, space: Identifier) -> list[Identifier]:
    try:
        return list(catalog.list_tables(space))
    except NoSuchNamespaceError:
        return []  # dropped meanwhile


def _uuid_of(catalog: Any, name: Identifier) -> str | None:
    """Return a table's uuid, or None if it cannot be loaded; that of a table that was dropped meanwhile is empty."""
    try:
        return str(catalog.load_table(name).metadata.table_uuid)
    except NoSuchTableError:
        return ""
    except Exception:  # noqa: BLE001 - plain and refused, damaged, keys out of reach: it may be the one
        return None
