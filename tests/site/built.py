"""The site as a browser sees it: each page's elements, read from HTML by the standard library."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

Tag = tuple[str, dict[str, str]]


@dataclass
class BuiltPage:
    """A page: where it is in the site, the tags of all of it, and those of its text."""

    path: str
    tags: list[Tag] = field(default_factory=list)
    text: list[Tag] = field(default_factory=list)

    @property
    def anchors(self) -> set[str]:
        """Return what a link may name after ``#``."""
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}

    def values(self, tag: str, attribute: str) -> list[str]:
        """Return the values of an attribute, in the page's order."""
        return [attributes[attribute] for name, attributes in self.tags if name == tag and attribute in attributes]

    def count(self, tag: str) -> int:
        """Return how many of these the page's text has."""
        return sum(name == tag for name, _ in self.text)


class _Reader(HTMLParser):
    def __init__(self, page: BuiltPage) -> None:
        super().__init__()
        self.page, self.in_text = page, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = (tag, {name: value or "" for name, value in attrs})
        self.page.tags.append(found)
        self.in_text = self.in_text or tag == "article"
        if self.in_text:
            self.page.text.append(found)

    def handle_endtag(self, tag: str) -> None:
        self.in_text = self.in_text and tag != "article"


def read_site(folder: Path) -> dict[str, BuiltPage]:
    """Return the pages by their paths below the folder."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        page = BuiltPage(path.relative_to(folder).as_posix())
        _Reader(page).feed(path.read_text(encoding="utf-8"))
        pages[page.path] = page
    return pages
