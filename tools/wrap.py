"""No line of a page is wider than a screen: paragraphs are broken before column 140, as the code is.

    python -m tools.wrap [PAGE ...]    breaks what is too wide, in these pages or in all that people write

Only paragraphs are touched, from their first line that is too wide. Tables, headings and code stay. A page shows what it did: a line is
never broken inside code, nor where the rest would begin a list, a heading, a quotation or a table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[1]
WIDTH: Final = 140
# CHANGELOG.md has an entry a line, so that git can put two sides together.
_NOT_WRAPPED: Final = {"CHANGELOG.md"}
_PARSER: Final = MarkdownIt("commonmark").enable("table")
# A word, with the code or the target of a link that belongs to it.
_WORD: Final = re.compile(r"(?:(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|\]\([^()]*(?:\([^()]*\)[^()]*)*\)|\S)+")
_BEGINS_A_BLOCK: Final = re.compile(r"[-+*=]+$|[#>|<]|~~~|\d+[.)]$|```")


def pages() -> list[Path]:
    """Return every page that people write or read in the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in found if path.name not in _NOT_WRAPPED)


def too_wide(text: str) -> list[int]:
    """Return the numbers of lines, from 1, that are in no table and too wide."""
    tables = {line for token in _PARSER.parse(text) if token.type == "table_open" and token.map for line in range(*token.map)}
    return [i + 1 for i, line in enumerate(text.splitlines()) if len(line) > WIDTH and i not in tables]


def wrap(text: str) -> str:
    """Return a page's text with its paragraphs broken."""
    lines = text.splitlines()
    for first, end in reversed(list(_paragraphs(text))):
        wide = next((i for i in range(first, end) if len(lines[i]) > WIDTH), None)
        if wide is not None:
            lines[wide:end] = _broken(lines[wide:end])
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first line, and the one after the last, of each paragraph, in lists and quotations too."""
    yield from (tuple(token.map) for token in _PARSER.parse(text) if token.type == "paragraph_open" and token.map)


def _broken(lines: list[str]) -> list[str]:
    """Return the lines of a paragraph, or its last ones, broken anew."""
    marker = re.match(r"\s*(?:>\s?)*(?:(?:[-*+]|\d+[.)])\s+)?", lines[0])
    begin = marker.group() if marker else ""
    indent = re.sub(r"[^\s>]", " ", begin)
    quoted = ">" in begin
    rest = [line.lstrip("> ") if quoted else line.strip() for line in lines[1:]]
    first, *words = _kept_together(" ".join([lines[0][len(begin) :], *rest]))
    broken = [begin + first]
    for word in words:
        if len(broken[-1]) + 1 + len(word) > WIDTH:
            broken.append(indent + word)
        else:
            broken[-1] += " " + word
    return broken


def _kept_together(text: str) -> list[str]:
    """Return the words of a paragraph, with those that may not begin a line joined to the one before."""
    words: list[str] = []
    for word in (found.group() for found in _WORD.finditer(text)):
        if words and _BEGINS_A_BLOCK.match(word):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def main(paths: Iterable[str]) -> None:
    """Wrap pages, all if none is named, and say which were changed."""
    for path in [Path(path) for path in paths] or pages():
        text = path.read_text(encoding="utf-8")
        if (wrapped := wrap(text)) != text:
            path.write_text(wrapped, encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
