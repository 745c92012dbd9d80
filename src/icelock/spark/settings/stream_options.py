"""Options of a stream out of a table, with Java's names.

Not here: what they mean for the stream (``table.read.stream``), options of a batch read (``options``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.table.refs import MAIN_BRANCH

from icelock.errors import PolicyError
from icelock.spark.settings.options import (
    AS_OF_TIMESTAMP,
    BRANCH,
    CHANGES,
    COLUMNS,
    END_SNAPSHOT_ID,
    END_TIMESTAMP,
    PATH,
    READ,
    SNAPSHOT_ID,
    START_TIMESTAMP,
    TABLE,
    TAG,
    TOLD,
    ReadOptions,
    TableName,
    flag,
    integer,
    known_options,
    named_ref,
    named_table,
)
from icelock.spark.settings.write_options import STREAM_EPOCH, STREAM_QUERY
from icelock.table.moments import parse_moment
from icelock.table.read.stream import FROM_TIMESTAMP, SKIP_DELETES, SKIP_OVERWRITES, START_SNAPSHOT, StreamLimits, StreamRules

MAX_FILES: Final = "streaming-max-files-per-micro-batch"
MAX_ROWS: Final = "streaming-max-rows-per-micro-batch"
_PREFIX: Final = "streaming-"
_NOW: Final = "now"
# Spark's own of a query that writes.
_OF_QUERIES: Final = ("checkpointlocation", "queryname")
_OPTIONS: Final = (START_SNAPSHOT, FROM_TIMESTAMP, MAX_FILES, MAX_ROWS, SKIP_OVERWRITES, SKIP_DELETES, BRANCH)
# Options of batch reads, and what a stream has instead.
_NO_END: Final = "a stream has no end: leave it out, or read once with spark.read"
_NO_MOMENT: Final = f"a stream goes on from where it begins: set {START_SNAPSHOT} or {FROM_TIMESTAMP}, or read once with spark.read"
_OF_BATCHES: Final = {
    COLUMNS: "option columns is for batch reads: choose the columns of a stream with .select",
    **{name: f"option {name} is for batch reads: {_NO_END}" for name in (END_SNAPSHOT_ID, END_TIMESTAMP)},
    **{name: f"option {name} is for batch reads: {_NO_MOMENT}" for name in (SNAPSHOT_ID, AS_OF_TIMESTAMP, START_TIMESTAMP, TAG)},
    **{name: f"option {name} is for batch reads of changes: spark.read, load('catalog.namespace.table.{CHANGES}')" for name in TOLD},
}
_NAMES: Final = {**{name: name for name in _OPTIONS}, **{name.removeprefix(_PREFIX): name for name in _OPTIONS}}


def stream_options(options: Mapping[str, str], branch: str | None) -> tuple[StreamRules, StreamLimits]:
    """Return where a stream begins and what its batches take; ``branch`` is that of the table's name, if it has one.

    Raises:
        PolicyError: an unknown option, one that is given twice, two that exclude each other, or an invalid value.
    """
    given: dict[str, str] = {}
    for name, value in known_options(options, (*_NAMES, TABLE), "stream", _OF_BATCHES.get).items():
        if name in {PATH, TABLE}:
            continue
        if _NAMES[name] in given:
            raise PolicyError(f"option {_NAMES[name]} is given by two names: keep one")
        given[_NAMES[name]] = value
    if START_SNAPSHOT in given and FROM_TIMESTAMP in given:
        raise PolicyError(f"the options {START_SNAPSHOT} and {FROM_TIMESTAMP} exclude each other: keep one")
    since = given.get(FROM_TIMESTAMP)
    now = since is not None and since.strip().lower() == _NOW
    other = named_ref(given, BRANCH)
    if branch is not None and other is not None:
        raise PolicyError(f"two branches are named, {branch!r} by the table's name and {other!r} by the option {BRANCH}: keep one")
    rules = StreamRules(
        branch=branch or other or MAIN_BRANCH,
        after=integer(START_SNAPSHOT, given[START_SNAPSHOT]) if START_SNAPSHOT in given else None,
        from_ms=None if since is None or now else parse_moment(FROM_TIMESTAMP, since),
        now=now,
        skip_overwrites=flag(given.get(SKIP_OVERWRITES), f"option {SKIP_OVERWRITES}") or False,
        skip_deletes=flag(given.get(SKIP_DELETES), f"option {SKIP_DELETES}") or False,
    )
    return rules, StreamLimits(files=_positive(given, MAX_FILES), rows=_positive(given, MAX_ROWS))


def schema_read(options: Mapping[str, str]) -> ReadOptions:
    """Return the read that has the columns of a read, or of a stream: Spark asks for them without telling which it is.

    Raises:
        PolicyError: no table, or options of neither.
    """
    given = {name.lower(): value for name, value in options.items()}
    only = [name for name in given if name in _NAMES and name not in {START_SNAPSHOT, BRANCH}]
    if not only:
        known_options(options, (*READ, *_OPTIONS), "read or a stream")
        return ReadOptions.parse(options)
    rules, _ = stream_options(options, None)
    return ReadOptions(table=named_table(given, "load"), branch=None if rules.branch == MAIN_BRANCH else rules.branch)


def sink_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a query that are for each write of its batches; one that numbers batches is a PolicyError."""
    for name in options:
        if name.lower() in {STREAM_QUERY, STREAM_EPOCH}:
            raise PolicyError(
                f"option {name} is for the writes of foreachBatch: Spark gives a stream its id, and its batches their numbers"
            )
    return {name: value for name, value in options.items() if name.lower() not in _OF_QUERIES}


def batch_options(options: Mapping[str, str], table: TableName) -> dict[str, str]:
    """Return what ``sink_options`` does, without the table; another one than ``table`` is a PolicyError too."""
    given = sink_options(options)
    named = next((value for name, value in given.items() if name.lower() == TABLE), None)
    if named is not None and TableName.parse(named) != table:
        raise PolicyError(f"two tables are named, {str(table)!r} and {named!r} by the option {TABLE}: keep one")
    return {name: value for name, value in given.items() if name.lower() not in {PATH, TABLE}}


def _positive(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    value = integer(name, given[name])
    if value < 1:
        raise PolicyError(f"option {name} is {value}; a batch takes 1 or more")
    return value
