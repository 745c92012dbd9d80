"""Options of one read or write, checked; Spark passes their names in lower case (case C-55).

Read: ``columns``, and one of ``snapshot-id``, ``as-of-timestamp``, ``branch``, ``tag``; or, on a branch, what was appended between two
snapshots: ``start-snapshot-id``, ``end-snapshot-id``, ``start-timestamp``, ``end-timestamp``. Write, with Java's names: ``branch``,
``overwrite-mode``, ``output-spec-id``, ``validate-from-snapshot-id``, ``snapshot-property.*``; ``overwrite-filter``. Both: the table, from
``load(name)`` or ``save(name)``, or the option ``table``. Any other option is an error, so that none is misspelt and ignored.

As in Java, ``spark.sql.sources.partitionOverwriteMode`` does not apply to ``save``: Spark uses it for SQL and ``insertInto``.

Not here: settings of a catalog or a KMS, which are never options (Spark Connect writes options to the event log) but given to ``register``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

from icelock.errors import PolicyError
from icelock.properties import DATA_KEY_LENGTH, ENCRYPTION_KEY_ID, TABLE_DEFAULT_PREFIX, is_number
from icelock.table.epochs import Epoch

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

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
OVERWRITE_FILTER: Final = "overwrite-filter"
OVERWRITE_MODE: Final = "overwrite-mode"
VALIDATE_FROM: Final = "validate-from-snapshot-id"
OUTPUT_SPEC: Final = "output-spec-id"
STREAM_QUERY: Final = "streaming-query-id"
STREAM_EPOCH: Final = "streaming-epoch-id"
SNAPSHOT_PROPERTY: Final = "snapshot-property."
ROWS_READ: Final = "icelock-rows-read"
"""Of our optimizer rule: what the rows come from (``OwnRows.seen``)."""
STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
DISTRIBUTION_MODE: Final = "distribution-mode"
FANOUT: Final = "fanout-enabled"
SPREAD: Final = (DISTRIBUTION_MODE, FANOUT)

_BETWEEN: Final = (START_SNAPSHOT_ID, END_SNAPSHOT_ID, START_TIMESTAMP, END_TIMESTAMP)
_READ: Final = (COLUMNS, SNAPSHOT_ID, AS_OF_TIMESTAMP, BRANCH, TAG, *_BETWEEN, TABLE)
_WRITE: Final = (BRANCH, OUTPUT_SPEC, OVERWRITE_FILTER, OVERWRITE_MODE, STREAM_EPOCH, STREAM_QUERY, TABLE, VALIDATE_FROM)
_ONE_OF: Final = (SNAPSHOT_ID, AS_OF_TIMESTAMP, BRANCH, TAG)
_SETTINGS: Final = ("encryption.", "encryption-", "encryption_", "kms", "icelock.", "s3.", "py-", "uri", "warehouse", "type")
_OF_TABLES: Final = (ENCRYPTION_KEY_ID, DATA_KEY_LENGTH, "write.", "read.", "commit.", "history.")
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

    With any of the last four, what lies between two snapshots or times; see ``table.changes.bounds``.
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
        return read if columns is None else replace(read, columns=_unique(tuple(columns)))

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check the options of a read: an unknown one, two that exclude each other, an invalid value or no table is a PolicyError."""
        given = known_options(options, _READ, "read")
        chosen = [name for name in _ONE_OF if name in given]
        if len(chosen) > 1:
            raise PolicyError(f"the options {' and '.join(chosen)} exclude each other: keep one")
        limits, at = ([name for name in names if name in given] for names in (_BETWEEN, (SNAPSHOT_ID, AS_OF_TIMESTAMP, TAG)))
        if limits and at:
            raise PolicyError(f"{limits[0]} reads what lies between snapshots, which excludes the option {at[0]}: keep one")
        snapshot_id, start_id, end_id = (_given(given, name, integer) for name in (SNAPSHOT_ID, START_SNAPSHOT_ID, END_SNAPSHOT_ID))
        as_of, start, end = (_given(given, name, milliseconds) for name in (AS_OF_TIMESTAMP, START_TIMESTAMP, END_TIMESTAMP))
        return cls(
            table=_table(given, "load"),
            columns=_columns(given[COLUMNS]) if COLUMNS in given else None,
            snapshot_id=snapshot_id,
            as_of_ms=as_of,
            branch=_name(given, BRANCH),
            tag=_name(given, TAG),
            start_snapshot_id=start_id,
            end_snapshot_id=end_id,
            start_ms=start,
            end_ms=end,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where and how to write; ``overwrite_filter`` is None when all rows are replaced, or the partitions that get rows (``dynamic``)."""

    table: TableName
    branch: str | None = None
    overwrite_filter: BooleanExpression | None = None
    dynamic: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    validate_from: int | None = None
    output_spec: int | None = None
    epoch: Epoch | None = None
    rows_read: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, overwrite: bool) -> Self:
        """Check the options of a write: an unknown one, one of an overwrite in an append, an invalid value or no table is a PolicyError."""
        from icelock.plan.filters.text import parse_filter

        properties = snapshot_properties(options)
        others = {name.lower(): value for name, value in options.items() if not name.lower().startswith(SNAPSHOT_PROPERTY)}
        rows_read = others.pop(ROWS_READ, "")
        given = known_options(others, _WRITE, "write")
        table = _table(given, "save")
        validate_from, output_spec = (integer(name, given[name]) if name in given else None for name in (VALIDATE_FROM, OUTPUT_SPEC))
        misplaced = [name for name in (OVERWRITE_FILTER, OVERWRITE_MODE) if name in given and not overwrite]
        if misplaced:
            raise PolicyError(f"option {misplaced[0]} needs mode('overwrite'), and the mode is append")
        mode = given.get(OVERWRITE_MODE, STATIC).lower()
        if mode not in {STATIC, DYNAMIC}:
            raise PolicyError(f"option {OVERWRITE_MODE} is {given[OVERWRITE_MODE]!r}; it must be {STATIC} or {DYNAMIC}")
        if mode == DYNAMIC and OVERWRITE_FILTER in given:
            raise PolicyError(
                f"{OVERWRITE_MODE}={DYNAMIC} replaces the partitions that get rows, so it excludes {OVERWRITE_FILTER}: keep one"
            )
        return cls(
            table=table,
            branch=_name(given, BRANCH),
            overwrite_filter=parse_filter(given[OVERWRITE_FILTER]) if OVERWRITE_FILTER in given else None,
            dynamic=mode == DYNAMIC,
            snapshot_properties=properties,
            validate_from=validate_from,
            output_spec=output_spec,
            epoch=_epoch(given),
            rows_read=rows_read,
        )


def _epoch(given: Mapping[str, str]) -> Epoch | None:
    """Return the batch of a stream that is written; one option without the other is a PolicyError."""
    if STREAM_QUERY not in given and STREAM_EPOCH not in given:
        return None
    for name, other in ((STREAM_QUERY, STREAM_EPOCH), (STREAM_EPOCH, STREAM_QUERY)):
        if name not in given:
            raise PolicyError(f"option {other} needs the option {name}: a batch is known by both")
    return Epoch.of(given[STREAM_QUERY], integer(STREAM_EPOCH, given[STREAM_EPOCH]))


def distribution_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of distribution, whose names are in lower case then, and the others."""
    spread = {name.lower(): value for name, value in options.items() if name.lower() in SPREAD}
    return spread, {name: value for name, value in options.items() if name.lower() not in SPREAD}


def snapshot_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options ``snapshot-property.*`` without their prefix."""
    return {name[len(SNAPSHOT_PROPERTY) :]: value for name, value in options.items() if name.lower().startswith(SNAPSHOT_PROPERTY)}


def known_options(options: Mapping[str, str], known: tuple[str, ...], kind: str) -> dict[str, str]:
    """Return options by their names in lower case; one that is not known (or ``path``) is a PolicyError."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in known and name != PATH:
            raise PolicyError(_refusal(name, known, kind))
    return given


def _refusal(name: str, known: tuple[str, ...], kind: str) -> str:
    """Return why an option is none of a read or a write, and what is."""
    if name in SPREAD and kind == "write":
        return f"{name!r} is an option of icelock.spark.write_to(df, table): a Python data source cannot ask Spark to distribute rows"
    if name == "paths":
        return "one table is read at a time: load('catalog.namespace.table')"
    if name == _OF_CREATE_TABLE:
        return (
            "Spark cannot keep a table of icelock's in its own catalog: CREATE TEMPORARY VIEW name USING icelock OPTIONS (path "
            "'catalog.namespace.table') gives SQL a name for one that is there; a new one is made by CREATE TABLE catalog.namespace.table "
            "in a classic session, or by icelock.spark.write_to(df, table).create()"
        )
    if name.startswith(_OF_TABLES) and kind == "write":
        return (
            f"{name!r} is a property of a table, and Spark makes none of an option, nor of saveAsTable's: a new table gets it by "
            f"df.writeTo(...).tableProperty({name!r}, ...).create(), or by the catalog's {TABLE_DEFAULT_PREFIX + name}; one that "
            "is there by ALTER TABLE ... SET TBLPROPERTIES"
        )
    if name.startswith(_SETTINGS):
        return f"{name!r} is a setting of a catalog, not an option of a {kind}: give it to icelock.spark.register(spark, catalogs=...)"
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown option {name!r} of a {kind}; {hint}"


def _table(given: Mapping[str, str], method: str) -> TableName:
    path, table = given.get(PATH), given.get(TABLE)
    if path is not None and table is not None and path != table:
        raise PolicyError(f"two tables are named, {path!r} in {method}() and {table!r} by the option {TABLE}: keep one")
    name = path if path is not None else table
    if name is None:
        raise PolicyError(f"no table is named: {method}('catalog.namespace.table')")
    return TableName.parse(name)


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise PolicyError(f"option {COLUMNS} is {text!r}; it must be column names separated by commas, such as 'id, address.city'")
    return _unique(names)


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise PolicyError(f"{COLUMNS} names a column twice: {', '.join(names)}")
    return names


def _given(given: Mapping[str, str], name: str, read: Callable[[str, str], int]) -> int | None:
    return read(name, given[name]) if name in given else None


def integer(name: str, text: str) -> int:
    """Return the whole number of an option; other text is a PolicyError."""
    try:
        return int(text)
    except ValueError as e:
        raise PolicyError(f"option {name} is {text!r}; it must be a whole number") from e


def _name(given: Mapping[str, str], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not value.strip():
        raise PolicyError(f"option {name} is empty; it must name a {name} of the table")
    return value


def milliseconds(name: str, text: str) -> int:
    """Return ms since 1970 of a number, or of ISO 8601 text with a time zone; other text is a PolicyError."""
    stripped = text.strip()
    if is_number(stripped.removeprefix("-")):
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError as e:
        raise PolicyError(f"option {name} is {text!r}; it must be milliseconds since 1970, or a time such as '2026-01-31T12:00:00Z'") from e
    if moment.tzinfo is None:
        raise PolicyError(f"option {name} is {text!r}, which has no time zone; add one, such as '{stripped}Z'")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
