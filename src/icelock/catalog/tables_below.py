"""``tables_below``: the table of a name, the tables of a namespace and those below it, or all of a catalog.

``not_there`` and ``name_hint`` are what is said of a name that leads to nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyiceberg.typedef import Identifier

from icelock.errors import PolicyError
from icelock.table.maintenance.removal.neighbours import namespaces_below

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from icelock.catalog.base import EncryptedCatalog


_MEANT: Final = "; did you mean "


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
        raise PolicyError(not_there(catalog, name, what="table and no namespace"))
    spaces = {*([parts] if parts else []), *namespaces_below(catalog, parts)}
    return {".".join(table) for space in spaces for table in catalog.list_tables(space)}


def not_there(catalog: Catalog, name: str, *, what: str = "table") -> str:
    """Return the message for a name that leads to nothing, with the name that may be meant.

    The catalog is asked for the names beside it: of the namespaces, and of the tables of the namespace that the name begins with.
    """
    return f"catalog {catalog.name} has no {what} {name}{name_hint(catalog, name)}"


def name_hint(catalog: Catalog, name: str) -> str:
    """Return what may be meant by a name that leads to nothing, as the end of a message; nothing if no name is near."""
    return _if_listed(lambda: _hint(catalog, name))


def namespace_hint(catalog: Catalog, name: str) -> str:
    """Return likewise what may be meant by the name of a namespace."""
    near = _if_listed(lambda: _near(name, [".".join(one) for one in catalog.list_namespaces()], of="namespace"))
    return near if near.startswith(_MEANT) else ""


def _if_listed(hint: Callable[[], str]) -> str:
    try:
        return hint()
    except Exception:  # noqa: BLE001 - who may not list gets no hint
        return ""


def _hint(catalog: Catalog, name: str) -> str:
    first, *rest = parts = tuple(name.split("."))
    if rest and first == catalog.name and not catalog.namespace_exists((first,)):
        return f": that catalog is named already, so leave its name out: {'.'.join(rest)}"
    space = parts[:-1]
    if not space or not catalog.namespace_exists(space):
        return _near(".".join(space or parts), [".".join(one) for one in catalog.list_namespaces()], of="namespace")
    return _near(name, [".".join(one) for one in catalog.list_tables(space)], of="table")


def _near(name: str, known: list[str], *, of: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"{_MEANT}{of} {near[0]}?"
    return f": it has no {of} {name}" if of == "namespace" else ""
