"""The site is built strictly; its links and anchors lead somewhere, it asks no other server, and shows what the repository's pages show.

It runs in the lane ``test-site``: MkDocs is in a folder of its own (Makefile).
"""

from __future__ import annotations

import importlib
import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.helpers.places import ROOT
from tests.site.built import BuiltPage, read_site
from tools.wrap import pages

pytest.importorskip("mkdocs", reason="make test-site has MkDocs")

DOCS = [path for path in pages() if path != ROOT / "README.md"]
MODULES = (
    "icelock",
    "icelock.spark",
    "icelock.maintenance",
    "icelock.metrics",
    "icelock.polars",
    "icelock.duckdb",
    "icelock.errors",
    "icelock.kms",
    "icelock.testing",
)
# What a browser loads without being asked.
LOADED = (("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data"))


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: that hides warnings from --strict too.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", *sys.path]), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("site")
    done = build(made)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return made


@pytest.fixture(scope="session")
def site(folder) -> dict[str, BuiltPage]:
    return read_site(folder)


def built(site: dict[str, BuiltPage], path: Path) -> BuiltPage:
    name = path.relative_to(ROOT / "docs" if path.is_relative_to(ROOT / "docs") else ROOT).with_suffix(".html").as_posix()
    return site["index.html" if name == "README.html" else name]


def test_every_page_is_built(site):
    assert len(DOCS) > 60
    assert [path for path in DOCS if not built(site, path).text] == []
    assert {"CHANGELOG.html", "CONTRIBUTING.html", "SECURITY.html", "source/examples/spark_job.py.html"} <= site.keys()


def test_links_lead_to_pages_and_anchors_that_are_there(site, folder):
    broken = []
    for page in site.values():
        # The page for what is not found has no place of its own, so its links begin at the root.
        for target in page.values("a", "href") if page.path != "404.html" else ():
            link = urlsplit(target)
            if link.scheme or link.netloc:
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), unquote(link.path))) if link.path else page.path
            if path not in site:
                broken += [] if (folder / path).is_file() else [f"{page.path}: {target}"]
            elif link.fragment and unquote(link.fragment) not in site[path].anchors:
                broken.append(f"{page.path}: {target}")
    assert broken == []


def test_a_browser_asks_no_other_server(site, folder):
    asked = [
        f"{page.path}: {value}"
        for page in site.values()
        for tag, attribute in LOADED
        for value in page.values(tag, attribute)
        if urlsplit(value).netloc
    ]
    assert asked == []
    sheets = [path.read_text(encoding="utf-8") for path in folder.rglob("*.css")]
    assert len(sheets) > 2
    assert [found for sheet in sheets for found in re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", sheet)] == []


def test_pictures_are_there_and_say_what_they_show(site, folder):
    shown = [(page, attributes) for page in site.values() for tag, attributes in page.text if tag == "img"]
    assert len(shown) >= 4
    for page, attributes in shown:
        assert (folder / posixpath.dirname(page.path) / attributes["src"]).is_file()
        assert len(attributes["alt"]) > 30, attributes["src"]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_site_shows_of_a_page_what_the_repository_shows(site, path):
    """Two readers of Markdown: lists, tables and code that only one of them sees are counted."""
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    kinds = [token.type for token in tokens]
    page = built(site, path)
    expected = {
        "tables": kinds.count("table_open"),
        "rows": kinds.count("tr_open"),
        "items": kinds.count("list_item_open"),
        "code": kinds.count("fence") + kinds.count("code_block"),
        "headings": kinds.count("heading_open"),
        "links": sum(child.type == "link_open" for token in tokens for child in token.children or ()),
    }
    found = {
        "tables": page.count("table"),
        "rows": page.count("tr"),
        "items": page.count("li"),
        "code": page.count("pre"),
        "headings": sum(page.count(f"h{level}") for level in range(1, 7)),
        # Headings have links of their own.
        "links": sum(
            tag == "a" and "headerlink" not in attributes.get("class", "") and "href" in attributes for tag, attributes in page.text
        ),
    }
    assert found == expected


@pytest.mark.parametrize("module", MODULES)
def test_the_api_shows_every_public_name_and_no_other(site, module):
    anchors = site[f"reference/api/{module}.html"].anchors
    public = importlib.import_module(module).__all__
    assert {f"{module}.{name}" for name in public if not name.startswith("__")} <= anchors
    private = {anchor for anchor in anchors if re.search(r"\._[a-z]", anchor)}
    assert private == set()


def test_the_api_shows_clients_and_catalogs(site):
    assert {"icelock.kms.aws.AwsKms", "icelock.kms.local.LocalKms"} <= site["reference/api/icelock.kms.html"].anchors
    assert {"icelock.catalog.sql.SqlCatalog", "icelock.catalog.rest.RestCatalog"} <= site["reference/api/catalogs.html"].anchors
