"""``Grid``: rows under headings; on a terminal that is too narrow for them each row is a block of lines.

Not here: what is printed (``cli.output``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from icelock.shown import visible

_BORDERS: Final = 3  # characters between two columns


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells are texts, and printed as they are but for characters that do not print; ``right`` are the headings of numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    right: frozenset[str] = frozenset()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a table if it fits, else the rows one below the other."""
        headings = [visible(one) for one in self.headings]
        rows = [[visible(one) for one in row] for row in self.rows]
        widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
        if sum(widths) + _BORDERS * len(widths) + 1 > options.max_width:
            yield from _blocks(visible(self.title), headings, rows)
            return
        shown = Table(title=Text(visible(self.title)) if self.title else None, title_justify="left")
        for name, plain in zip(headings, self.headings, strict=True):
            shown.add_column(Text(name), justify="right" if plain in self.right else "left", no_wrap=True)
        for row in rows:
            shown.add_row(*map(Text, row))
        yield shown


def _blocks(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    if title:
        yield Text(title)
    for number, row in enumerate(rows, start=1):
        yield Text(f"{number}")
        for name, text in zip(headings, row, strict=True):
            yield Text(f"  {name}: {text}" if name else f"  {text}")
