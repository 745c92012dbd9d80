"""How results of maintenance show themselves: ``repr`` in one readable line, and a table in notebooks. Long lists say how many they are."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from html import escape
from typing import Any, Final

_MOST: Final = 3


class Shown:
    """Base of a result, a dataclass with ``repr=False``; fields that are empty are left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_text(value)}' for name, value in self._given())})"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{_cell(value)}</td></tr>" for name, value in self._given())
        return f"<table><caption>{escape(type(self).__name__)}</caption>{rows}</table>"

    def _given(self) -> list[tuple[str, Any]]:
        """Return names and values of the fields that say something."""
        shown: Any = self
        given = ((field.name, getattr(self, field.name)) for field in fields(shown))
        return [(name, value) for name, value in given if value not in (None, 0, "", (), False)]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        more = f", ... {len(value)} in all" if len(value) > _MOST else ""
        return f"({', '.join(map(_text, value[:_MOST]))}{more})"
    if isinstance(value, float):
        return f"{value:.1f}"
    return str(value.value) if isinstance(value, Enum) else repr(value)


def _cell(value: Any) -> str:
    if isinstance(value, tuple) and value and all(isinstance(one, Shown) for one in value):
        return "".join(one._repr_html_() for one in value[: 20 * _MOST])
    return value._repr_html_() if isinstance(value, Shown) else escape(_text(value))
