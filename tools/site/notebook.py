"""The tutorials as notebooks: docs/tutorial*.md are what people write, the .ipynb beside each is made of it.

    python -m tools.site.notebook    writes them anew

Blocks of Python are cells, and lines for the shell are cells that Jupyter gives to it (``%%sh``). All else is text between them, with what
nobody runs (``<!-- not run: ... -->``) and what a block prints. There are no outputs: who runs a notebook has their own.

Source: https://nbformat.readthedocs.io/en/latest/format_description.html, version 4.5.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from markdown_it import MarkdownIt

DOCS: Final = Path(__file__).parents[2] / "docs"
_MAGICS: Final = {"python": "", "sh": "%%sh\n"}
_COMMENT: Final = re.compile(r"^<!--.*?-->\n*", re.MULTILINE)
_NOT_RUN: Final = re.compile(r"<!-- not run:[^>]*-->\s*\Z")


def pages() -> list[Path]:
    """Return the pages that are notebooks too."""
    return sorted(DOCS.glob("tutorial*.md"))


def notebook(markdown: str) -> dict[str, Any]:
    """Return a page as a notebook."""
    lines, cells, begin = markdown.splitlines(keepends=True), list[dict[str, Any]](), 0
    for token in MarkdownIt().parse(markdown):
        if token.type != "fence" or token.level or token.info not in _MAGICS or not token.map:
            continue
        before = "".join(lines[begin : token.map[0]])
        if _NOT_RUN.search(before):
            continue
        cells += [_cell("markdown", before), _cell("code", _MAGICS[token.info] + token.content)]
        begin = token.map[1]
    cells.append(_cell("markdown", "".join(lines[begin:])))
    for number, cell in enumerate(found for found in cells if found["source"]):
        cell["id"] = f"cell-{number}"
    return {
        "cells": [cell for cell in cells if cell["source"]],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(kind: str, text: str) -> dict[str, Any]:
    text = (_COMMENT.sub("", text) if kind == "markdown" else text).strip()
    cell: dict[str, Any] = {"cell_type": kind, "id": "", "metadata": {}, "source": text.splitlines(keepends=True)}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def render(page: Path) -> str:
    """Return the notebook of a page as it is stored."""
    return json.dumps(notebook(page.read_text(encoding="utf-8")), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for page in pages():
        page.with_suffix(".ipynb").write_text(render(page), encoding="utf-8")
