r"""How objects show themselves: ``repr`` in a line or a few, a table in notebooks (``_repr_html_``), and the names of completion (``dir``).

Names and texts can come from storage, where others write: HTML has them escaped, characters that do not print are ``\x1b`` and the like,
and what is long is cut. Nothing is read for it, and no key is shown.

Not here: the command's output (``cli.output``).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum
from html import escape
from typing import Any, ClassVar, Final

_MOST: Final = 3
_MOST_ROWS: Final = 60
_LONGEST: Final = 500
_WIDTH: Final = 120


def visible(text: str) -> str:
    """Return a text with what does not print as an escape: texts from storage may hold a terminal's control sequences."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def utc(ms: int | None) -> str | None:
    """Return a time in UTC, such as ``2026-11-29T12:00:00Z``; None for None, and for a time that no calendar has."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1_000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under headings, as one fact."""

    headings: tuple[str, ...]
    rows: Sequence[Sequence[object]]

    def text(self) -> str:
        """Return the first rows in one line."""
        more = f", ... {len(self.rows)} in all" if len(self.rows) > _MOST_ROWS else ""
        return ", ".join(" ".join(_short(cell) for cell in row if cell not in (None, "")) for row in self.rows[:_MOST_ROWS]) + more

    def html(self) -> str:
        """Return the first rows as a table."""
        lines = [_row("th", self.headings), *(_row("td", row) for row in self.rows[:_MOST_ROWS])]
        if len(self.rows) > _MOST_ROWS:
            lines.append(_row("td", [f"... {len(self.rows)} in all"]))
        return f"<table>{''.join(lines)}</table>"


Facts = Iterable[tuple[str, object]]


class Described:
    """Base of what shows itself by a title and facts, in lines or as HTML, and hides names that only icelock calls from completion."""

    __slots__ = ()
    _inside: ClassVar[frozenset[str]] = frozenset()
    """Names that are not the user's, or only refused; those of the bases count too."""

    def _title(self) -> str:
        return type(self).__name__

    def _facts(self) -> Facts:
        """Return what there is to say; None and empty texts are left out."""
        return ()

    def _said(self) -> list[tuple[str, str | Grid]]:
        given = ((name, value if isinstance(value, Grid) else _short(value)) for name, value in self._facts() if value not in (None, ""))
        return [(name, value) for name, value in given if not isinstance(value, Grid) or value.rows]

    def __repr__(self) -> str:
        lines = [_short(self._title())]
        for name, value in self._said():
            text = f"  {name}: {value.text() if isinstance(value, Grid) else value}"
            lines += textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(name)}</th><td>{_html(value)}</td></tr>" for name, value in self._said())
        return f"<table><caption>{escape(_short(self._title()))}</caption>{''.join(rows)}</table>"

    def __dir__(self) -> list[str]:
        hidden = {name for kind in type(self).__mro__ for name in vars(kind).get("_inside", ())}
        return [name for name in super().__dir__() if name not in hidden]


class Shown:
    """Base of a result, a dataclass with ``repr=False``; fields that are empty are left out, and long lists say how many they are."""

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
        return "".join(one._repr_html_() for one in value[:_MOST_ROWS])
    return value._repr_html_() if isinstance(value, Shown) else escape(_text(value))


def _short(value: object) -> str:
    text = visible(str(value)[: _LONGEST + 1])
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _html(value: str | Grid) -> str:
    return value.html() if isinstance(value, Grid) else escape(value)


def _row(tag: str, cells: Iterable[object]) -> str:
    texts = (escape("" if cell is None else _short(cell)) for cell in cells)
    return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"
