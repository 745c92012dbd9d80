"""Options of a stream out of a table, with Java's names.

Not here: what they mean for the stream (``table.stream``), options of a batch read (``options``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from icelock.errors import PolicyError
from icelock.spark.settings.options import PATH, TABLE, integer, known_options, milliseconds
from icelock.table.stream import FROM_TIMESTAMP, SKIP_DELETES, SKIP_OVERWRITES, START_SNAPSHOT, StreamLimits, StreamRules

MAX_FILES: Final = "streaming-max-files-per-micro-batch"
MAX_ROWS: Final = "streaming-max-rows-per-micro-batch"
_PREFIX: Final = "streaming-"
_NOW: Final = "now"
_OPTIONS: Final = (START_SNAPSHOT, FROM_TIMESTAMP, MAX_FILES, MAX_ROWS, SKIP_OVERWRITES, SKIP_DELETES)
_NAMES: Final = {**{name: name for name in _OPTIONS}, **{name.removeprefix(_PREFIX): name for name in _OPTIONS}}


def stream_options(options: Mapping[str, str], branch: str) -> tuple[StreamRules, StreamLimits]:
    """Return where a stream of a branch begins and what its batches take.

    Raises:
        PolicyError: an unknown option, one that is given twice, two that exclude each other, or an invalid value.
    """
    given: dict[str, str] = {}
    for name, value in known_options(options, (*_NAMES, TABLE), "stream").items():
        if name in {PATH, TABLE}:
            continue
        if _NAMES[name] in given:
            raise PolicyError(f"option {_NAMES[name]} is given by two names: keep one")
        given[_NAMES[name]] = value
    if START_SNAPSHOT in given and FROM_TIMESTAMP in given:
        raise PolicyError(f"the options {START_SNAPSHOT} and {FROM_TIMESTAMP} exclude each other: keep one")
    since = given.get(FROM_TIMESTAMP)
    now = since is not None and since.strip().lower() == _NOW
    rules = StreamRules(
        branch=branch,
        after=integer(START_SNAPSHOT, given[START_SNAPSHOT]) if START_SNAPSHOT in given else None,
        from_ms=None if since is None or now else milliseconds(FROM_TIMESTAMP, since),
        now=now,
        skip_overwrites=_boolean(given, SKIP_OVERWRITES),
        skip_deletes=_boolean(given, SKIP_DELETES),
    )
    return rules, StreamLimits(files=_positive(given, MAX_FILES), rows=_positive(given, MAX_ROWS))


def _positive(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    value = integer(name, given[name])
    if value < 1:
        raise PolicyError(f"option {name} is {value}; a batch takes 1 or more")
    return value


def _boolean(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false").strip().lower()
    if value not in {"true", "false"}:
        raise PolicyError(f"option {name} is {given[name]!r}; it must be true or false")
    return value == "true"
