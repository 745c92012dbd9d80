"""JSON of metadata: text parsed with limits, an object's fields read by type, as Java's ``JsonUtil`` does, and numbers given as text.

Stricter than ``json.loads``: no NaN or Infinity, no lone surrogates, no nesting too deep for later steps. Stricter than pydantic: a
number is not text, text and true are not numbers, and numbers fit Java's types.

Not here: what the fields mean (``metadata.coherence``), the settings that writers of data files take (``arrow.write.options``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from icelock.errors import FormatError, PolicyError

MAX_DEPTH: Final = 200
"""Levels of nested JSON; Java's parser has 1000, and a schema with a struct in a struct takes three for each."""

INT: Final = 2**31 - 1
LONG: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_MISSING: Final = object()


def parse_json(text: str | bytes) -> Any:
    """Return the values of JSON text.

    Raises:
        FormatError: not JSON (NaN and Infinity are not), or absurd numbers or nesting.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError as e:
        raise FormatError(f"nested more than {MAX_DEPTH} levels deep") from e
    except ValueError as e:
        raise FormatError(f"not JSON ({e})") from e


def check_values(value: Any) -> None:
    """Check that values can be written again: Unicode text, finite numbers, at most ``MAX_DEPTH`` levels of nesting.

    Raises:
        FormatError: says what was found.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item)
                below.extend(item.values())
            elif isinstance(item, (list, tuple)):
                below.extend(item)
            else:
                _check_scalar(item)
        if not below:
            return
        level = below
    raise FormatError(f"nested more than {MAX_DEPTH} levels deep")


def _check_scalar(value: Any) -> None:
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as e:
                raise FormatError(f"a lone surrogate in a text ({value[:40]!r}), which is not Unicode") from e
    elif isinstance(value, float) and not math.isfinite(value):
        raise FormatError("a number that is not finite")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


class Fields:
    """A JSON object with fields read by type; ``what`` names it in messages. A null field counts as missing."""

    __slots__ = ("_value", "what")

    def __init__(self, value: Any, what: str) -> None:
        if not isinstance(value, dict):
            raise FormatError(f"{what} is {_kind(value)}, expected a JSON object")
        self._value: Mapping[str, Any] = value
        self.what = what

    def has(self, name: str) -> bool:
        """Whether the field is present and not null."""
        return self._value.get(name) is not None

    def get(self, name: str) -> Any:
        """Return the field's value, None if it is missing."""
        return self._value.get(name)

    def names(self) -> Mapping[str, Any]:
        """Return the object itself."""
        return self._value

    def integer(self, name: str, *, most: int = LONG, least: int | None = None, default: Any = _MISSING) -> Any:
        """Return an integer of Java's range, not below ``least``."""
        value = self._known(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int) or not -most - 1 <= value <= most or (least is not None and value < least):
            floor = "" if least is None else f" from {least} on"
            self.bad(name, value, f"an integer of {32 if most == INT else 64} bits{floor}")
        return value

    def text(self, name: str, *, default: Any = _MISSING) -> Any:
        """Return text."""
        return self._typed(name, str, "text", default)

    def boolean(self, name: str) -> bool:
        """Return true or false."""
        return bool(self._typed(name, bool, "true or false", _MISSING))

    def list(self, name: str, *, default: Any = _MISSING) -> Any:
        """Return a list."""
        return self._typed(name, list, "a list", default)

    def texts(self, name: str) -> Mapping[str, str]:
        """Return an object of texts; empty if it is missing."""
        found: Mapping[str, str] = self._typed(name, dict, "a JSON object", {})
        for key, value in found.items():
            if not isinstance(value, str):
                self.bad(f"{name}[{key!r}]", value, "text")
        return found

    def each(self, name: str, what: str, *, default: Any = _MISSING) -> Iterator[Fields]:
        """Yield the objects of a list; ``what`` is the word for one."""
        for number, item in enumerate(self.list(name, default=default)):
            yield Fields(item, f"{what} {number}")

    def bad(self, name: str, found: Any, wanted: str) -> NoReturn:
        """Refuse a field.

        Raises:
            FormatError: always.
        """
        raise FormatError(f"{self.what}: {name} is {_kind(found)}, expected {wanted}")

    def _known(self, name: str, default: Any) -> Any:
        value = self._value.get(name)
        if value is None:
            if default is _MISSING:
                raise FormatError(f"{self.what}: {name} is missing")
            return default
        return value

    def _typed(self, name: str, kind: type, wanted: str, default: Any) -> Any:
        value = self._known(name, default)
        if value is default:
            return value
        if not isinstance(value, kind):
            self.bad(name, value, wanted)
        return value


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a JSON object"
    return "nothing" if value is None else repr(value)[:40]


def is_long(text: Any) -> bool:
    """Whether text is a number of 64 bits as Java's ``Long.parseLong`` reads it."""
    return isinstance(text, str) and _NUMBER.fullmatch(text) is not None and -LONG - 1 <= int(text) <= LONG


def whole_number(properties: Mapping[str, str], name: str, default: int | None) -> int | None:
    """Return a property as a number.

    Raises:
        PolicyError: it is not a number of 64 bits; names it.
    """
    text = properties.get(name)
    if text is None:
        return default
    if not is_long(str(text).strip()):
        raise PolicyError(f"table property {name} is {str(text)[:40]!r}; it must be a whole number of 64 bits")
    return int(text)
