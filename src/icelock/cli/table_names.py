"""How commands take a table's name and an age.

A table is ``CATALOG.NAMESPACE.TABLE``, or with ``--catalog`` ``NAMESPACE.TABLE``. Without it, a name whose first part is no catalog of
PyIceberg's configuration, or that has two parts only, is one of the default catalog.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from icelock.cli.completion import names_of_catalogs, names_of_tables
from icelock.cli.load import load_catalog
from icelock.cli.output import concerns
from icelock.errors import PolicyError
from icelock.table.moments import parse_span

if TYPE_CHECKING:
    from icelock.catalog.base import EncryptedCatalog
    from icelock.table.plain import AnyTable
    from icelock.table.table import Table

_WITH_CATALOG: Final = 3
F = TypeVar("F", bound=Callable[..., Any])


def table_argument(command: F) -> F:
    """Give a command the argument ``TABLE`` and the option ``--catalog``."""
    return _named("table", "TABLE is then NAMESPACE.TABLE. Without it see TABLE.")(command)


def tables_argument(*, required: bool = True) -> Callable[[F], F]:
    """Give a command the argument ``NAME``, of a table, a namespace or a catalog, and the option ``--catalog``."""
    return _named("name", "NAME is then NAMESPACE.TABLE or NAMESPACE.", required=required)


def _named(argument: str, then: str, *, required: bool = True) -> Callable[[F], F]:
    """Return what gives a command an argument, and ``--catalog``; ``then`` is what the argument is with that option."""

    def given(command: F) -> F:
        option = click.option(
            "--catalog", metavar="NAME", shell_complete=names_of_catalogs, help=f"Catalog of PyIceberg's configuration; {then}"
        )
        return click.argument(argument, required=required, callback=_noted, shell_complete=names_of_tables)(option(command))

    return given


def _noted(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        concerns(context, value)
    return value


def age(_context: click.Context, _parameter: click.Parameter, value: str | None) -> timedelta | None:
    """Parse an age such as ``3d`` or ``12h`` (click's callback)."""
    if value is None:
        return None
    try:
        return parse_span(value)
    except PolicyError as e:
        raise click.BadParameter(str(e)) from e


def load_table(catalog: str | None, name: str) -> Table:
    """Load an encrypted table by the name that a command got.

    Raises:
        PolicyError: it is no table's name, or the table is not there, or plain.
    """
    return open_table(*catalog_and_name(catalog, name))


def load_any_table(catalog: str | None, name: str) -> AnyTable:
    """Load a table, plain or encrypted, by the name that a command got.

    Raises:
        PolicyError: it is no table's name, or the table is not there.
    """
    return _found(*catalog_and_name(catalog, name))


def catalog_and_name(catalog: str | None, name: str) -> tuple[EncryptedCatalog, str]:
    """Return the catalog of a table, and its name there, by the name that a command got.

    Raises:
        PolicyError: it is no table's name.
    """
    if catalog is None and len(name.split(".")) >= _WITH_CATALOG:
        catalog, name = split_name(name)
    elif catalog is None:
        _refuse_namespace(name)
    if not all(name.partition(".")):
        form = "NAMESPACE.TABLE, such as shop.orders" if catalog is not None else "CATALOG.NAMESPACE.TABLE, such as lake.shop.orders"
        raise PolicyError(f"{name!r} is not the name of a table: write {form}")
    return load_catalog(catalog), name


def _refuse_namespace(name: str) -> None:
    """Refuse ``CATALOG.NAMESPACE`` where the default catalog, if there is one, has no namespace of the catalog's name.

    Raises:
        PolicyError: says that a namespace was named, or that there is no default catalog, but another one.
    """
    from icelock.catalog.configuration import default_catalog, known_catalogs, read_configuration

    first, _, rest = name.partition(".")
    config = read_configuration()
    known = {one.lower() for one in known_catalogs(config)}
    default = default_catalog(config)
    if rest and len(known) == 1 and default.lower() not in known and first.lower() not in known:
        only = "".join(known)
        raise PolicyError(f"{name!r} names no catalog, and there is no default-catalog: write {only}.{name}")
    if not rest or first.lower() not in known:
        return
    if default.lower() not in known or not load_catalog(default).namespace_exists(first):
        raise PolicyError(
            f"{name!r} names the namespace {rest} of catalog {first}, and this command works on one table: write {name}.TABLE, such as "
            f"{name}.orders"
        )


def open_table(catalog: EncryptedCatalog, name: str) -> Table:
    """Load an encrypted table of a catalog.

    Raises:
        PolicyError: it is not there, or plain.
    """
    from icelock.table.table import Table

    loaded = _found(catalog, name)
    if not isinstance(loaded, Table):
        raise PolicyError(
            f"table {name} has format version {loaded.metadata.format_version}: it is not encrypted, and this command is for "
            "encrypted tables; icelock convert makes it one"
        )
    return loaded


def _found(catalog: EncryptedCatalog, name: str) -> AnyTable:
    from pyiceberg.exceptions import NoSuchTableError

    from icelock.catalog.tables_below import not_there

    try:
        loaded: Any = catalog.load_table(name, hint=False)
    except NoSuchTableError as e:
        raise PolicyError(not_there(catalog, name)) from e
    found: AnyTable = loaded
    return found


def only_catalog() -> str:
    """Return the default catalog of PyIceberg's configuration, or the only one that it has.

    Raises:
        PolicyError: it has several and none of them is the default one, or none at all.
    """
    from icelock.catalog.configuration import default_catalog, known_catalogs, not_configured, read_configuration

    config = read_configuration()
    default, known = default_catalog(config), known_catalogs(config)
    if default.lower() in known or not known:
        if not known:
            raise PolicyError(not_configured(config, default))
        return default
    if len(known) > 1:
        raise PolicyError(f"which catalog? PyIceberg's configuration has {', '.join(known)}, and no default-catalog: name one of them")
    return known[0]


def full_name(table: AnyTable) -> str:
    """Return the name of a table with that of its catalog."""
    return ".".join((table.catalog.name, *table.name()))


def split_catalog(name: str) -> tuple[str | None, str]:
    """Return the catalog and the rest of a name, which is that of a catalog, or begins with one."""
    from icelock.catalog.configuration import known_catalogs, read_configuration

    first = name.partition(".")[0].lower()
    if first in {one.lower() for one in known_catalogs(read_configuration())} or "." not in name:
        return name.partition(".")[0], name.partition(".")[2]
    return split_name(name)


def split_name(name: str) -> tuple[str | None, str]:
    """Return the catalog that a name begins with, None for the default one, and the rest."""
    from icelock.catalog.configuration import known_catalogs, not_configured, read_configuration

    config = read_configuration()
    first, _, rest = name.partition(".")
    known = known_catalogs(config)
    if first.lower() in {one.lower() for one in known}:
        return first, rest
    if config.config.get("default-catalog") is None and "default" not in known:
        raise PolicyError(not_configured(config, first))
    return None, name
