"""The diagrams that are shown are drawn from the texts that are there."""

from __future__ import annotations

import html
import re
import shutil

import pytest

from tools.site.diagrams import FOLDER, draw, source_hash

TEXTS = sorted(FOLDER.glob("*.dot"))


def words(label: str) -> list[str]:
    return re.sub(r"\\[nlr]", " ", label).split()


def test_there_are_diagrams():
    assert [path.stem for path in TEXTS] == ["keys", "python", "spark", "trust"]
    assert {path.stem for path in FOLDER.glob("*.svg")} == {path.stem for path in TEXTS}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_picture_belongs_to_its_text(path):
    text, picture = path.read_text(encoding="utf-8"), path.with_suffix(".svg").read_text(encoding="utf-8")
    assert source_hash(text) in picture, "python -m tools.site.diagrams draws it anew"
    labels = [word for label in re.findall(r'label="([^"]*)"', text) for word in words(label)]
    shown = [word for label in re.findall(r"<text[^>]*>([^<]*)</text>", picture) for word in html.unescape(label).split()]
    assert sorted(shown) == sorted(labels)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_picture_is_no_wider_than_a_phone_and_loads_nothing(path):
    picture = path.with_suffix(".svg").read_text(encoding="utf-8")
    width = re.search(r'<svg width="(\d+)px"', picture)
    assert width
    assert int(width.group(1)) <= 420
    assert "prefers-color-scheme: dark" in picture
    assert not re.search(r"(?:href|src)=|url\(|@import|<script", picture)


def test_a_drawing_has_no_colours_but_those_of_its_style_sheet():
    if not shutil.which("dot"):
        assert all('stroke="' not in path.with_suffix(".svg").read_text(encoding="utf-8") for path in TEXTS)
        return
    assert 'stroke="' not in draw('digraph { a -> b [label="c"] }')
