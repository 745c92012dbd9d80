"""Changes of a JSON document: every place in it, and what is put there."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any, Final

Path = tuple[Any, ...]

_DROP: Final = object()
_AGAIN: Final = "\x01again\x01"  # before a name: it is there twice
OTHERS: Final[dict[str, Any]] = {
    "dropped": _DROP,
    "null": None,
    "true": True,
    "0": 0,
    "-1": -1,
    "1.5": 1.5,
    "31 bits": 2**31,
    "63 bits": 2**63,
    "400 digits": 10**400,
    "1e400": "\x01number\x011e400",
    "NaN": math.nan,
    "-Infinity": -math.inf,
    "empty text": "",
    "text": "text",
    "digits": "7",
    "NUL": "a\0b",
    "half a surrogate pair": "\ud800",
    "empty list": [],
    "list": [1],
    "empty object": {},
    "object": {"a": 1},
}


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def places(value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each place but the top, with its value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield (*at, key), child
        yield from places(child, (*at, key))


def changes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield names of what may stand in the place of a value, and that."""
    yield from OTHERS.items()
    yield "nested", deep(150)
    yield "nested deeper", deep(900)
    if isinstance(value, bool):
        yield "as a number", int(value)
    elif isinstance(value, int):
        yield from (("as a float", float(value)), ("as text", str(value)), ("one more", value + 1), ("negative", -value))
    elif isinstance(value, str):
        yield from (("longer", value + "x"), ("in upper case", value.upper()), ("in a list", [value]))
    elif isinstance(value, list):
        yield from (("first twice", [*value[:1], *value]), ("reversed", value[::-1]), ("as an object", {"0": value}))


def changed(document: Any, at: Path, new: Any) -> str:
    """Return the text of a document with another value at a place."""
    made = copy.deepcopy(document)
    inner = made
    for key in at[:-1]:
        inner = inner[key]
    if new is _DROP:
        del inner[at[-1]]
    else:
        inner[at[-1]] = new
    return json.dumps(made).replace('"\\u0001number\\u00011e400"', "1e400")


def with_name_twice(document: Any, at: Path, second: Any) -> str:
    """Return the text of a document in which the name at a place is there again, with another value."""
    made = copy.deepcopy(document)
    inner = made
    for key in at[:-1]:
        inner = inner[key]
    inner[_AGAIN + at[-1]] = second
    return json.dumps(made).replace(json.dumps(_AGAIN)[1:-1], "")
