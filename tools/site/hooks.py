"""What MkDocs is told beside ``mkdocs.yml``: pages that are not below ``docs``, and where links to them lead.

Pages are written to be read in the repository, so their links are paths there. 1 a link to a page of the root (``CHANGELOG.md``) leads to
its page on the site. 2 a link to a source file or a folder of them leads to a page that shows it: the site needs no other one. 3 the Python
API has a page for each public module, which mkdocstrings fills from docstrings.

Source: https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from tools.site.api import api_pages

ROOT: Final = Path(__file__).parents[2]
_START: Final = "docs/README.md"
_FENCE: Final = re.compile(r"^[ >]*(```+|~~~+)")
_LINK: Final = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
# Sources are shown, and found by their links: who searches wants to read about icelock.
_NOT_SEARCHED: Final = "---\nsearch: {exclude: true}\nhide: [toc]\n---\n\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the root, of the Python API, and of the source that a page names."""
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for path in sorted(ROOT.glob("*.md")):
        if path.name != "README.md":
            pages[path.name] = path.read_text(encoding="utf-8")
            files.append(File.generated(config, path.name, content=pages[path.name]))
    for uri, text in api_pages().items():
        files.append(File.generated(config, uri, content=text))
    for path in sorted({path for uri, text in pages.items() for path in _sources(uri, text)}):
        files.append(File.generated(config, _site(path), content=_shown(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs names them
    """Let links lead to the pages of the site."""
    uri = page.file.src_uri
    if uri.startswith(("source/", "reference/api/")):
        return markdown
    return "\n".join(line if code else _LINK.sub(lambda link: _led(uri, link), line) for line, code in _lines(markdown))


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines, and whether each is in a block of code."""
    fence = ""
    for line in markdown.split("\n"):
        begin = _FENCE.match(line)
        yield line, bool(fence or begin)
        if begin and not fence:
            fence = begin.group(1)
        elif begin and line.strip(" >") == fence:
            fence = ""


def _sources(uri: str, markdown: str) -> Iterator[str]:
    """Yield the repository's paths that a page links to, if they are no pages."""
    for line, code in _lines(markdown):
        for link in () if code else _LINK.finditer(line):
            path = _in_repository(uri, link.group(1))
            if not path.startswith("docs/") and not path.endswith(".md") and (ROOT / path).exists():
                yield path


def _in_repository(uri: str, target: str) -> str:
    """Return what a page's link names, as a path in the repository."""
    page = uri if (ROOT / uri).is_file() and not (ROOT / "docs" / uri).is_file() else f"docs/{uri}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _led(uri: str, link: re.Match[str]) -> str:
    """Return the link's target on the site. What does not exist stays, and MkDocs tells it."""
    path = _in_repository(uri, link.group(1))
    if not (ROOT / path).exists():
        return link.group()
    return posixpath.relpath(_site(path), posixpath.dirname(uri) or ".") + (link.group(2) or "")


def _site(path: str) -> str:
    """Return the site's name of a path in the repository."""
    if path in {"README.md", "docs"}:
        path = _START
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") else f"source/{path}.md"


def _shown(path: str) -> str:
    """Return the page that shows a source file, or what a folder holds."""
    title = f"{_NOT_SEARCHED}# `{path}`\n\n"
    place = ROOT / path
    if place.is_dir():
        listed = [f"| `{found.relative_to(place)}` | {_says(found)} |" for found in sorted(place.rglob("*.py")) if found.stat().st_size]
        return title + "\n".join(["| module | |", "| --- | --- |", *listed, ""])
    # Without colours, which are a quarter of the time that the site takes.
    return f"{title}````` text\n{place.read_text(encoding='utf-8')}`````\n"


def _says(module: Path) -> str:
    """Return the first paragraph of a module's docstring, in one line of a table."""
    said = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")
