"""Which properties a new or replaced table gets, and which tables may be plain: the one place that decides it.

As in Java (``BaseMetastoreCatalog``, ``RESTSessionCatalog``), later ones win: what the kind of catalog sets, ``table-default.*`` of the
catalog's properties, what the caller gives, ``table-override.*``. Two things are not Java's:

1. In a catalog that has a KMS a table without a master key is refused, unless ``icelock.require-encryption=false``, the table is one
   of ``icelock.plain-tables``, or the caller gives ``icelock.plain=true``. The latter is removed here: it is never a property of a
   table, since those are on storage. An existing plain table takes rows for the same reasons only: if somebody who can write to storage or
   catalog replaces an encrypted table by an empty plain one, it looks just like this.
2. A default key is for new tables: a table that is replaced keeps its own.

Not here: whether the properties are possible (``table.guard.rules``, ``catalog.create``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Self

from icelock import properties as names
from icelock.errors import PolicyError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProperties:
    """One catalog's settings for new tables.

    Args:
        catalog: its name.
        built_in: properties that every new table of this kind of catalog gets, unless they are set.
        defaults: ``table-default.*``, without the prefix.
        overrides: ``table-override.*``, likewise.
        require_encryption: plain tables are created, and written to, on request only.
        plain_tables: names and patterns (``raw.*``) of tables that may be plain nevertheless.
    """

    catalog: str
    built_in: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    require_encryption: bool = False
    plain_tables: tuple[str, ...] = ()

    @classmethod
    def of(cls, catalog: str, properties: Mapping[str, object], *, built_in: Mapping[str, str]) -> Self:
        """Read a catalog's properties.

        Raises:
            PolicyError: ``icelock.require-encryption`` is neither true nor false.
        """
        return cls(
            catalog=catalog,
            built_in=built_in,
            defaults=names.below(properties, names.TABLE_DEFAULT_PREFIX),
            overrides=names.below(properties, names.TABLE_OVERRIDE_PREFIX),
            require_encryption=names.flag(properties, names.REQUIRE_ENCRYPTION, default=names.has_kms(properties)),
            plain_tables=tuple(filter(None, map(str.strip, str(properties.get(names.PLAIN_TABLES, "")).split(",")))),
        )

    def of_new(self, given: Mapping[str, object], *, table: str) -> dict[str, str]:
        """Return the properties of a new table; whether it may be plain is not checked.

        Raises:
            PolicyError: both ``icelock.plain`` and a key are set.
        """
        asked = _as_text(given, table=table)
        plain = names.flag(asked, names.PLAIN, default=False)
        asked.pop(names.PLAIN, None)
        self._say_overridden(asked, table=table)
        defaults = dict(self.defaults)
        if plain or names.ENCRYPTION_KEY_ID not in {**defaults, **asked, **self.overrides}:
            # For a plain table a default length means nothing.
            defaults = {name: value for name, value in defaults.items() if name not in names.FIXED}
        wanted = {**self.built_in, **defaults, **asked, **self.overrides}
        if plain and names.ENCRYPTION_KEY_ID in wanted:
            raise PolicyError(
                f"table {table}: {names.PLAIN}=true and {names.ENCRYPTION_KEY_ID} exclude each other{self._whose(asked)}: leave one out"
            )
        return wanted

    def of_replaced(self, given: Mapping[str, object], *, table: str) -> dict[str, str]:
        """Return the properties that a replaced encrypted table gets beside its own.

        Raises:
            PolicyError: it would become plain.
        """
        asked = _as_text(given, table=table)
        if names.flag(asked, names.PLAIN, default=False):
            raise PolicyError(f"table {table} is encrypted, and stays so when it is replaced: leave {names.PLAIN} out")
        asked.pop(names.PLAIN, None)
        self._say_overridden(asked, table=table)
        defaults = {name: value for name, value in self.defaults.items() if name not in names.FIXED}
        return {**defaults, **asked, **self.overrides}

    def check_plain(self, given: Mapping[str, object], *, table: str, pinned: bool) -> None:
        """Check that a new table may be plain; ``given`` are the caller's properties, ``pinned``: a pin says so.

        Raises:
            PolicyError: the catalog requires encryption; says how to create the table, encrypted or plain.
        """
        if not pinned and not self.allows_plain(table) and not names.flag(given, names.PLAIN, default=False):
            raise PolicyError(
                f"table {table} would be plain: it has no {names.ENCRYPTION_KEY_ID}, and catalog {self.catalog} makes encrypted tables. "
                f"Name its key, or one for all new tables by the catalog property {names.TABLE_DEFAULT_PREFIX}{names.ENCRYPTION_KEY_ID}. "
                f"If it is to be plain, create it with {names.PLAIN}=true, or set the catalog property {names.REQUIRE_ENCRYPTION}=false"
            )

    def allows_plain(self, table: str) -> bool:
        """Whether the catalog's settings let a table be plain."""
        return not self.require_encryption or self.names_plain(table)

    def names_plain(self, table: str) -> bool:
        """Whether ``icelock.plain-tables`` has a table."""
        return any(fnmatchcase(table, pattern) for pattern in self.plain_tables)

    def check_plain_write(self, *, table: str, known: bool) -> None:
        """Check that an existing plain table may take rows; ``known``: the client itself knows that it is plain.

        Raises:
            PolicyError: the catalog requires encryption; says how to write to the table nevertheless.
        """
        if not known and not self.allows_plain(table):
            raise PolicyError(
                f"table {table} is plain, and catalog {self.catalog} writes encrypted tables: nothing was written. If it was encrypted, "
                f"its metadata was exchanged: restore it. If it is to be plain, say so by the catalog property {names.PINS_PREFIX}{table}= "
                f"(empty), {names.PLAIN_TABLES}={table} (names or patterns, with commas between), or {names.REQUIRE_ENCRYPTION}=false"
            )

    def _say_overridden(self, asked: Mapping[str, str], *, table: str) -> None:
        for name in names.FIXED:
            if name in asked and self.overrides.get(name, asked[name]) != asked[name]:
                logger.warning(
                    "table %s: catalog %s has %s%s=%s, which wins over the %r that was asked for",
                    table,
                    self.catalog,
                    names.TABLE_OVERRIDE_PREFIX,
                    name,
                    self.overrides[name],
                    asked[name],
                )

    def _whose(self, asked: Mapping[str, str]) -> str:
        if names.ENCRYPTION_KEY_ID in self.overrides:
            return f" (catalog {self.catalog} has {names.TABLE_OVERRIDE_PREFIX}{names.ENCRYPTION_KEY_ID})"
        return "" if names.ENCRYPTION_KEY_ID in asked else f" (catalog {self.catalog} sets it)"


def _as_text(given: Mapping[str, object], *, table: str) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise PolicyError(f"table {table}: properties is a {type(given).__name__}; give a dict of names and values")
    without = [name for name, value in given.items() if value is None]
    if without:
        raise PolicyError(f"table {table}: the property {without[0]!r} is None; give it a value, or leave it out")
    return {name: str(value) for name, value in given.items()}
