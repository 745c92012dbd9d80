"""What docs/operations.md is made of: sections, and their rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the page; all its recipes have the same outcome."""

    what: str
    recipes: tuple[str, ...]
    remark: str = ""


@dataclass(frozen=True)
class Section:
    """A table of the page."""

    title: str
    rows: tuple[Row, ...]


def row(what: str, *recipes: str, remark: str = "") -> Row:
    return Row(what, recipes, remark)
