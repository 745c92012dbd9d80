"""Options of one read or write, checked; Spark hands them over with lower-cased names (case C-55).

Read: ``columns``, and one of ``snapshot-id``, ``as-of-timestamp``, ``branch``, ``tag``. Both: the table, from ``load(name)`` or
``save(name)``, or the option ``table``. Anything else is an error: a misspelt option would be ignored without a word otherwise.

Not here: settings of a catalog or of a KMS, which are given to ``register`` and are never options (Spark Connect writes options to
the event log).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from icelock.errors import PolicyError

TABLE: Final = "table"
PATH: Final = "path"
COLUMNS: Final = "columns"
SNAPSHOT_ID: Final = "snapshot-id"
AS_OF_TIMESTAMP: Final = "as-of-timestamp"
BRANCH: Final = "branch"
TAG: Final = "tag"

_READ: Final = (COLUMNS, SNAPSHOT_ID, AS_OF_TIMESTAMP, BRANCH, TAG, TABLE)
_WRITE: Final = (TABLE,)
_ONE_OF: Final = (SNAPSHOT_ID, AS_OF_TIMESTAMP, BRANCH, TAG)
_SETTINGS: Final = ("encryption.", "encryption-", "encryption_", "kms", "icelock.", "s3.", "py-", "uri", "warehouse", "type")
_CATALOG_AND_NAMESPACE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """``catalog.namespace.table``; the namespace may have several levels."""

    catalog: str
    identifier: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split a dotted name.

        Raises:
            PolicyError: fewer than three parts, or an empty one.
        """
        catalog, *rest = (part.strip() for part in text.split("."))
        if len(rest) < _CATALOG_AND_NAMESPACE or not all((catalog, *rest)):
            msg = f"table name {text!r} is not of the form catalog.namespace.table, such as 'lake.demo.flights'"
            raise PolicyError(msg)
        return cls(catalog=catalog, identifier=tuple(rest))

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.identifier))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read; at most one of ``snapshot_id``, ``as_of_ms`` (ms since 1970, UTC), ``branch`` and ``tag`` is set."""

    table: TableName
    columns: tuple[str, ...] | None = None
    snapshot_id: int | None = None
    as_of_ms: int | None = None
    branch: str | None = None
    tag: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check the options of a read.

        Raises:
            PolicyError: an unknown option, two that exclude each other, a value that is none, or no table.
        """
        given = _known(options, _READ, "read")
        chosen = [name for name in _ONE_OF if name in given]
        if len(chosen) > 1:
            msg = f"the options {' and '.join(chosen)} exclude each other: keep one"
            raise PolicyError(msg)
        snapshot_id = given.get(SNAPSHOT_ID)
        as_of = given.get(AS_OF_TIMESTAMP)
        return cls(
            table=_table(given, "load"),
            columns=_columns(given[COLUMNS]) if COLUMNS in given else None,
            snapshot_id=None if snapshot_id is None else _integer(SNAPSHOT_ID, snapshot_id),
            as_of_ms=None if as_of is None else _milliseconds(as_of),
            branch=_name(given, BRANCH),
            tag=_name(given, TAG),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write."""

    table: TableName

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check the options of a write.

        Raises:
            PolicyError: an unknown option, or no table.
        """
        return cls(table=_table(_known(options, _WRITE, "write"), "save"))


def _known(options: Mapping[str, str], known: tuple[str, ...], kind: str) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name in known or name == PATH:
            continue
        if name == "paths":
            msg = "one table is read at a time: load('catalog.namespace.table')"
        elif name.startswith(_SETTINGS):
            msg = f"{name!r} is a setting of a catalog, not an option of a {kind}: give it to icelock.spark.register(spark, catalogs=...)"
        else:
            near = difflib.get_close_matches(name.replace("_", "-"), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            msg = f"unknown option {name!r} of a {kind}; {hint}"
        raise PolicyError(msg)
    return given


def _table(given: Mapping[str, str], method: str) -> TableName:
    path, table = given.get(PATH), given.get(TABLE)
    if path is not None and table is not None and path != table:
        msg = f"two tables are named, {path!r} in {method}() and {table!r} by the option {TABLE}: keep one"
        raise PolicyError(msg)
    name = path if path is not None else table
    if name is None:
        msg = f"no table is named: {method}('catalog.namespace.table')"
        raise PolicyError(msg)
    return TableName.parse(name)


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        msg = f"option {COLUMNS} is {text!r}; it must be column names separated by commas, such as 'id, address.city'"
        raise PolicyError(msg)
    if len(set(names)) != len(names):
        msg = f"option {COLUMNS} names a column twice: {text!r}"
        raise PolicyError(msg)
    return names


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as e:
        msg = f"option {name} is {text!r}; it must be a whole number"
        raise PolicyError(msg) from e


def _name(given: Mapping[str, str], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not value.strip():
        msg = f"option {name} is empty; it must name a {name} of the table"
        raise PolicyError(msg)
    return value


def _milliseconds(text: str) -> int:
    """Return ms since 1970 of a number, or of ISO 8601 text with a time zone."""
    stripped = text.strip()
    if stripped.lstrip("-").isdigit():
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError as e:
        msg = f"option {AS_OF_TIMESTAMP} is {text!r}; it must be milliseconds since 1970, or a time such as '2026-01-31T12:00:00Z'"
        raise PolicyError(msg) from e
    if moment.tzinfo is None:
        msg = f"option {AS_OF_TIMESTAMP} is {text!r}, which has no time zone; add one, such as '{stripped}Z'"
        raise PolicyError(msg)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
