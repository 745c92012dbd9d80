"""``tables_below``: the table of a name, the tables of a namespace and those below it, or all of a catalog."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.typedef import Identifier

from icelock.catalog.base import EncryptedCatalog
from icelock.errors import PolicyError
from icelock.table.maintenance.neighbours import namespaces_below


def tables_below(catalog: EncryptedCatalog, name: str, *, is_table: Callable[[str], bool]) -> set[str]:
    """Return names with dots; ``name`` is empty for all of a catalog.

    Raises:
        PolicyError: there is no such table or namespace.
    """
    parts: Identifier = tuple(name.split(".")) if name else ()
    if not all(parts):
        raise PolicyError(f"{name!r} is not the name of a table or namespace")
    if len(parts) > 1 and is_table(name):
        return {name}
    if parts and not catalog.namespace_exists(parts):
        raise PolicyError(f"catalog {catalog.name} has no table and no namespace {name}")
    spaces = {*([parts] if parts else []), *namespaces_below(catalog, parts)}
    return {".".join(table) for space in spaces for table in catalog.list_tables(space)}
