"""What a page of the documentation holds for the one who tries it: its code blocks in order, and what invisible comments say of them.

- A block with a title (``yaml title=".pyiceberg.yaml"``) is a file of that name.
- A ``text`` block that follows a block which runs is what that one prints; ``...`` stands for anything, as in a doctest.
- ``<!-- begin with: example-lake.md -->``: the blocks of that page are run before, in the same folder. Several are separated by commas.
- ``<!-- needs: spark -->``: what has to be there (``NEEDS``).
- ``<!-- not run: why -->`` before a block: nobody runs it. ``tests/pages/test_runner.py`` counts them.
"""

from __future__ import annotations

import functools
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.helpers.places import ROOT

RUN: Final = frozenset({"python", "sh", "console", "sql"})
NEEDS: Final = frozenset({"spark", "dbt", "catalog-server", "key-service"})
PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block: ``line`` is that of its first line of text in the page, from 1; ``not_run`` says why nobody runs it."""

    page: str
    line: int
    language: str
    text: str
    title: str | None
    not_run: str | None

    @property
    def runs(self) -> bool:
        return self.language in RUN and self.title is None and self.not_run is None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: ``name`` is its path below the repository, ``begin_with`` are the pages whose blocks are run first."""

    name: str
    blocks: tuple[Block, ...]
    begin_with: tuple[str, ...]
    needs: frozenset[str]

    @property
    def runs(self) -> bool:
        return any(block.runs for block in self.blocks)

    def files(self) -> dict[str, str]:
        """Return the files that the page shows, by their titles."""
        return {block.title: block.text for block in self.blocks if block.title is not None}


@functools.cache
def read_page(path: Path) -> Page:
    """Read a page.

    Raises:
        ValueError: a comment that begins like one of those above is none of them, or belongs to no block.
    """
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    said: dict[str, tuple[str, ...]] = {"begin with": (), "needs": ()}
    blocks, reason = list[Block](), None
    for token in MarkdownIt().parse(path.read_text(encoding="utf-8")):
        if token.type == "fence":
            blocks.append(_block(name, token, reason))
            reason = None
        elif token.type == "html_block" and (comment := _comment(token)):
            key, value = comment
            if key == "not run":
                reason = value
            elif key in said:
                said[key] = tuple(word.strip() for word in value.split(","))
            else:
                raise ValueError(f"{name}: the comment {key!r} means nothing; known are: not run, {', '.join(said)}")
        elif reason is not None and token.block and token.content:
            raise ValueError(f"{name}: text stands between <!-- not run: {reason} --> and its block")
    if unknown := {*said["needs"]} - NEEDS:
        raise ValueError(f"{name}: needs {unknown}, which is none of {sorted(NEEDS)}")
    before = tuple(str((path.parent / other).resolve().relative_to(ROOT)) for other in said["begin with"])
    return Page(name=name, blocks=tuple(blocks), begin_with=before, needs=frozenset(said["needs"]))


def _block(page: str, token: Token, reason: str | None) -> Block:
    language, *more = shlex.split(token.info) or [""]
    titles = [word.removeprefix("title=") for word in more if word.startswith("title=")]
    if more and not titles:
        raise ValueError(f"{page}: a block says {token.info!r}: only title=... may follow the language")
    line = (token.map or [0])[0] + 2
    return Block(page=page, line=line, language=language, text=token.content, title=titles[0] if titles else None, not_run=reason)


def _comment(token: Token) -> tuple[str, str] | None:
    text = token.content.strip()
    if not (text.startswith("<!--") and text.endswith("-->")):
        return None
    key, colon, value = text.removeprefix("<!--").removesuffix("-->").partition(":")
    return (key.strip(), value.strip()) if colon else None
