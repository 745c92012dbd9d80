"""Names of tables, and options of one read, checked; Spark passes their names in lower case (case C-55).

Read: ``columns``, and one of ``snapshot-id``, ``as-of-timestamp``, ``branch``, ``tag``; or, on a branch, what was appended between two
snapshots: ``start-snapshot-id``, ``end-snapshot-id``, ``start-timestamp``, ``end-timestamp``. The table is that of ``load(name)``, or the
option ``table``. Of what changed (``load("catalog.namespace.table.changes")``), as arguments of Java's procedure ``create_changelog_view``:
``compute-updates``, ``identifier-columns``, ``net-changes``. Any other option is an error, so that none is misspelt and ignored.

Not here: options of a write (``write_options``); settings of a catalog or a KMS, which are never options (Spark Connect writes options to
the event log) but given to ``register``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from icelock.errors import PolicyError
from icelock.table.moments import parse_moment

TABLE: Final = "table"
PATH: Final = "path"
COLUMNS: Final = "columns"
SNAPSHOT_ID: Final = "snapshot-id"
AS_OF_TIMESTAMP: Final = "as-of-timestamp"
START_SNAPSHOT_ID: Final = "start-snapshot-id"
END_SNAPSHOT_ID: Final = "end-snapshot-id"
START_TIMESTAMP: Final = "start-timestamp"
END_TIMESTAMP: Final = "end-timestamp"
BRANCH: Final = "branch"
TAG: Final = "tag"
VALIDATE_FROM: Final = "validate-from-snapshot-id"
COMPUTE_UPDATES: Final = "compute-updates"
IDENTIFIER_COLUMNS: Final = "identifier-columns"
NET_CHANGES: Final = "net-changes"
TOLD: Final = (COMPUTE_UPDATES, IDENTIFIER_COLUMNS, NET_CHANGES)
CHANGES: Final = "changes"
"""Behind a table's name: what changed in it."""
BOOLEANS: Final = ("true", "false")

_BETWEEN: Final = (START_SNAPSHOT_ID, END_SNAPSHOT_ID, START_TIMESTAMP, END_TIMESTAMP)
READ: Final = (COLUMNS, SNAPSHOT_ID, AS_OF_TIMESTAMP, BRANCH, TAG, *_BETWEEN, *TOLD, TABLE)
_ONE_OF: Final = (SNAPSHOT_ID, AS_OF_TIMESTAMP, BRANCH, TAG)
_SETTINGS: Final = ("encryption.", "encryption-", "encryption_", "kms", "icelock.", "s3.", "py-", "uri", "warehouse", "type")
# Spark gives it to a format in CREATE TABLE ... USING.
_OF_CREATE_TABLE: Final = "owner"
_CATALOG_AND_NAMESPACE: Final = 2
_PART: Final = re.compile(r"(?:^|\.)(?:\s*`((?:[^`]|``)*)`\s*|([^.`]*))")
_NAME: Final = re.compile(r"(?:(?:^|\.)(?:\s*`(?:[^`]|``)*`\s*|[^.`]*))+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """``catalog.namespace.table``; the namespace may have several levels."""

    catalog: str
    identifier: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split a dotted name, whose parts may be in backquotes; fewer than three parts, or an empty one, are a PolicyError."""
        parts = _parts(text)
        if len(parts) <= _CATALOG_AND_NAMESPACE:
            raise PolicyError(f"table name {text!r} is not of the form catalog.namespace.table, such as 'lake.demo.flights'")
        return cls(catalog=parts[0], identifier=tuple(parts[1:]))

    @property
    def may_be_of_changes(self) -> bool:
        """Whether the name is of what changed in a table, unless a table has it: ``catalog.namespace.table.changes``."""
        return len(self.identifier) > _CATALOG_AND_NAMESPACE and self.identifier[-1].lower() == CHANGES

    @classmethod
    def parse_any(cls, text: str) -> Self:
        """Split the name of a table, of a namespace (``catalog.namespace``) or of a catalog; an empty part is a PolicyError."""
        parts = _parts(text)
        if not parts:
            raise PolicyError(f"{text!r} is not the name of a table, a namespace or a catalog, such as 'lake.demo.flights' or 'lake.demo'")
        return cls(catalog=parts[0], identifier=tuple(parts[1:]))

    def __str__(self) -> str:
        return ".".join(map(_quoted, (self.catalog, *self.identifier)))


def _parts(text: str) -> list[str]:
    """Return the parts of a dotted name; none if it is no name.

    Raises:
        PolicyError: it is no text, such as a table that was loaded.
    """
    if not isinstance(text, str):
        raise PolicyError(f"expected a name, such as 'lake.demo.flights', got a {type(text).__name__}")
    parts = [quoted.replace("``", "`") or plain.strip() for quoted, plain in _PART.findall(text)] if _NAME.fullmatch(text) else []
    return parts if all(parts) else []


def _quoted(part: str) -> str:
    return part if part and not set(".`") & set(part) and part == part.strip() else "`" + part.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read: now, or at one of ``snapshot_id``, ``as_of_ms`` (ms since 1970, UTC), ``branch``, ``tag``, ``ref`` (branch or tag).

    With a start or an end, what lies between two snapshots or times; see ``table.changes.bounds``. The last three are of what changed:
    whether it is told as updates (None: if there are identifiers), by which columns rows are known, and whether snapshots count as one.
    """

    table: TableName
    columns: tuple[str, ...] | None = None
    snapshot_id: int | None = None
    as_of_ms: int | None = None
    branch: str | None = None
    tag: str | None = None
    ref: str | None = None
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    updates: bool | None = None
    identifiers: tuple[str, ...] | None = None
    net: bool = False

    @property
    def of_changes(self) -> bool:
        """Whether something is given that only changes have."""
        return self.updates is not None or self.identifiers is not None or self.net

    @property
    def between(self) -> bool:
        """Whether a start or an end is given."""
        return any(given is not None for given in (self.start_snapshot_id, self.end_snapshot_id, self.start_ms, self.end_ms))

    @classmethod
    def of(cls, table: str, *, columns: Sequence[str] | None = None, **at: str | int | None) -> Self:
        """Check the arguments of ``icelock.spark.read``; ``at`` are the options that say when, with underscores. Errors as ``parse``."""
        if isinstance(columns, str):
            raise PolicyError(f"columns is {columns!r}; it must be a list of names: columns=['id', 'address.city']")
        options = {name.replace("_", "-"): str(value) for name, value in at.items() if value is not None}
        read = cls.parse({TABLE: table, **options})
        return read if columns is None else replace(read, columns=_unique(COLUMNS, tuple(columns)))

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check the options of a read: an unknown one, two that exclude each other, an invalid value or no table is a PolicyError."""
        given = known_options(options, READ, "read")
        chosen = [name for name in _ONE_OF if name in given]
        if len(chosen) > 1:
            raise PolicyError(f"the options {' and '.join(chosen)} exclude each other: keep one")
        limits, at = ([name for name in names if name in given] for names in (_BETWEEN, (SNAPSHOT_ID, AS_OF_TIMESTAMP, TAG)))
        if limits and at:
            raise PolicyError(f"{limits[0]} reads what lies between snapshots, which excludes the option {at[0]}: keep one")
        snapshot_id, start_id, end_id = (_given(given, name, integer) for name in (SNAPSHOT_ID, START_SNAPSHOT_ID, END_SNAPSHOT_ID))
        as_of, start, end = (_given(given, name, parse_moment) for name in (AS_OF_TIMESTAMP, START_TIMESTAMP, END_TIMESTAMP))
        return cls(
            table=named_table(given, "load"),
            columns=_columns(COLUMNS, given[COLUMNS]) if COLUMNS in given else None,
            snapshot_id=snapshot_id,
            as_of_ms=as_of,
            branch=named_ref(given, BRANCH),
            tag=named_ref(given, TAG),
            start_snapshot_id=start_id,
            end_snapshot_id=end_id,
            start_ms=start,
            end_ms=end,
            updates=flag(given.get(COMPUTE_UPDATES), f"option {COMPUTE_UPDATES}"),
            identifiers=_columns(IDENTIFIER_COLUMNS, given[IDENTIFIER_COLUMNS]) if IDENTIFIER_COLUMNS in given else None,
            net=flag(given.get(NET_CHANGES), f"option {NET_CHANGES}") or False,
        )


def known_options(
    options: Mapping[str, str], known: tuple[str, ...], kind: str, why: Callable[[str], str | None] = lambda _name: None
) -> dict[str, str]:
    """Return options by their names in lower case; one that is not known (or ``path``) is a PolicyError.

    Args:
        options: as they were given.
        known: what the message offers.
        kind: of what they are options.
        why: returns why an option is refused although it has a name of ``known``, or one of another's; else None.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        reason = why(name)
        if reason is not None or (name not in known and name != PATH):
            raise PolicyError(reason or _refusal(name, known, kind))
    return given


def _refusal(name: str, known: tuple[str, ...], kind: str) -> str:
    """Return why an option is none of a read or a write, and what is."""
    if name == "paths":
        return "one table is read at a time: load('catalog.namespace.table')"
    if name == _OF_CREATE_TABLE:
        return (
            "Spark cannot keep a table of icelock's in its own catalog: CREATE TEMPORARY VIEW name USING icelock OPTIONS (path "
            "'catalog.namespace.table') gives SQL a name for one that is there; a new one is made by CREATE TABLE catalog.namespace.table "
            "in a classic session, or by icelock.spark.write_to(df, table).create()"
        )
    if name.startswith(_SETTINGS):
        return f"{name!r} is a setting of a catalog, not an option of a {kind}: give it to icelock.spark.register(spark, catalogs=...)"
    from icelock import nearest

    return f"unknown option {name!r} of a {kind}; {nearest.hint(name.replace('_', '-'), known)}"


def named_table(given: Mapping[str, str], method: str) -> TableName:
    """Return the table that options name; ``method`` is Spark's, which takes the name. None, or two, are a PolicyError."""
    path, table = given.get(PATH), given.get(TABLE)
    if path is not None and table is not None and path != table:
        raise PolicyError(f"two tables are named, {path!r} in {method}() and {table!r} by the option {TABLE}: keep one")
    name = path if path is not None else table
    if name is None:
        raise PolicyError(f"no table is named: {method}('catalog.namespace.table')")
    return TableName.parse(name)


def _columns(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise PolicyError(f"option {option} is {text!r}; it must be column names separated by commas, such as 'id, address.city'")
    return _unique(option, names)


def _unique(option: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise PolicyError(f"{option} names a column twice: {', '.join(names)}")
    return names


def _given(given: Mapping[str, str], name: str, read: Callable[[str, str], int]) -> int | None:
    return read(name, given[name]) if name in given else None


def flag(text: str | None, what: str) -> bool | None:
    """Return true or false, or None for nothing; other text is a PolicyError about ``what``."""
    if text is None:
        return None
    if text.strip().lower() not in BOOLEANS:
        raise PolicyError(f"{what} is {text!r}; it must be true or false")
    return text.strip().lower() == "true"


def integer(name: str, text: str) -> int:
    """Return the whole number of an option; other text is a PolicyError."""
    try:
        return int(text)
    except ValueError as e:
        raise PolicyError(f"option {name} is {text!r}; it must be a whole number") from e


def named_ref(given: Mapping[str, str], name: str) -> str | None:
    """Return the option that names a branch or tag, if it is given; an empty one is a PolicyError."""
    value = given.get(name)
    if value is not None and not value.strip():
        raise PolicyError(f"option {name} is empty; it must name a {name} of the table")
    return value
