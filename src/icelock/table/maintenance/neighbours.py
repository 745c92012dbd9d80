"""Which other tables a catalog has: a file of one of them is never left over.

Not here: what a storage holds (``table.maintenance.leftovers``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.typedef import Identifier


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
