"""The page: one file that asks for nothing, in which no name can become markup, well-formed, with a picture of each kind.

How it looks is looked at by a person, in Chromium (CONTRIBUTING.md, "The audit's page").
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from icelock.audit.findings import Finding, Unseen
from icelock.audit.html import page
from icelock.audit.reached import Tally
from icelock.audit.report import AuditReport, KekReport, MasterKeyReport, SnapshotReport, TableReport

EVIL = "</bdi><script src=https://evil.example/x.js>\"'&\u202e</svg>"
DAY_MS = 86_400_000
VOID = {"meta", "br"}


def kek(number: int, *, age_days: int = 10) -> KekReport:
    return KekReport(
        id=f"kek {number} {EVIL}",
        master_key_id=f"master {EVIL}",
        version=EVIL,
        created_ms=1_790_000_000_000,
        until_ms=1_790_000_000_000 + 730 * DAY_MS,
        age_days=age_days,
        opens=number != 1,
        snapshots=(number,),
        refs=(EVIL,),
        first_ms=1_790_000_000_000,
        last_ms=1_790_000_000_000,
        reached=Tally(files=2, bytes=2_000_000),
        lost=Tally(files=1, bytes=1_000_000),
    )


def snapshot(number: int, plain: int = 0) -> SnapshotReport:
    return SnapshotReport(
        id=number,
        at_ms=1_790_000_000_000 + number * DAY_MS,
        refs=(EVIL,),
        current=False,
        kek="kek 0",
        encrypted=10 + number,
        plain=plain,
        bytes=5,
    )


def report(**change: object) -> AuditReport:
    table = TableReport(
        table=EVIL,
        uuid=EVIL,
        location=EVIL,
        metadata_file=EVIL,
        format_version=3,
        master_key_id=EVIL,
        encrypted=True,
        depths=("open",),
        statements={"catalog": "agrees", "hash": "differs"},
        files={"data files": (Tally(files=3, bytes=4), Tally(files=1, bytes=2))},
        objects={"metadata": Tally(files=1, bytes=2)},
        master_keys=(MasterKeyReport(id=f"master {EVIL}", snapshots=2, refs=(EVIL,), lost=Tally(files=3, bytes=4)),),
        keks=(kek(0), kek(1, age_days=900)),
        snapshots=(snapshot(0), snapshot(1, plain=2)),
        findings=(Finding(code="plain-file", what=EVIL, sentence=EVIL),),
        counts={"plain-file": 7},
        unseen=(Unseen(what=EVIL, why=EVIL),),
        unseen_count=1,
        wrong=7,
    )
    return AuditReport(catalog=EVIL, name=EVIL, made_ms=1_790_000_000_000, tables=(replace(table, **change),))  # type: ignore[arg-type]


class Page(HTMLParser):
    """The tags of a page, whose nesting is checked, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_names_stay_text_and_nothing_is_fetched() -> None:
    made = Page(page(report()))
    assert {"script", "link", "img", "iframe", "object", "base", "image", "use"} & {tag for tag, _ in made.tags} == set()
    attributes = {(name, value) for _, attrs in made.tags for name, value in attrs.items()}
    assert {name for name, _ in attributes if name.startswith("on")} == set()
    assert {value for name, value in attributes if name in {"href", "src"} and not str(value).startswith("#t")} == set()
    style = re.search("<style>(.*?)</style>", page(report()), re.DOTALL)
    assert style is not None
    assert not re.search(r"url\(|@import|https?:", style[1])
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in attributes
    assert made.text.count(EVIL) >= 10


def test_pictures_are_well_formed_and_say_what_they_show() -> None:
    pictures = [ET.fromstring(one) for one in re.findall("<svg.*?</svg>", page(report()), re.DOTALL)]  # noqa: S314 - ours
    assert len(pictures) == 4
    names = [one.get("aria-label") for one in pictures]
    assert names == [
        "Encrypted and plain files of 2 snapshots, from 2026-09-21 to 2026-09-22",
        "1 master keys and 2 KEKs",
        "Bytes that each KEK opens",
        "Ages of 2 KEKs against 730 days",
    ]
    space = "{http://www.w3.org/2000/svg}"
    for one in pictures:
        _, _, width, height = map(float, str(one.get("viewBox")).split())
        for rect in one.iter(f"{space}rect"):
            x, y, wide, high = (float(str(rect.get(name))) for name in ("x", "y", "width", "height"))
            assert x >= 0
            assert y >= 0
            assert x + wide <= width + 0.1
            assert y + high <= height + 0.1
    plain = [rect for rect in pictures[0].iter(f"{space}rect") if rect.get("class") == "plain"]
    assert ["1: 11 encrypted, 2 plain files" in str(one.findtext(f"{space}title")) for one in plain] == [False]
    assert [str(one.findtext(f"{space}title")).endswith("11 encrypted, 2 plain files") for one in plain] == [True]
    assert [rect.get("class") for rect in pictures[3].iter(f"{space}rect")] == ["encrypted", "old"]


def test_many_snapshots_share_columns_and_the_plain_one_is_seen() -> None:
    made = page(report(snapshots=tuple(snapshot(number, plain=number == 777) for number in range(1000)), keks=tuple(map(kek, range(100)))))
    assert made.count('class="plain"') == 1
    assert "snapshot 777, " in made
    assert "Pictures show 24 of 100 KEKs" in made
    assert len(made) < 1_000_000


@pytest.mark.parametrize(
    "change",
    [
        {"keks": (), "master_keys": (), "snapshots": (), "files": {}, "objects": {}, "findings": (), "counts": {}, "unseen": ()},
        {"snapshots": (replace(snapshot(0), encrypted=None, plain=None),), "keks": (replace(kek(0), age_days=None, snapshots=()),)},
        {"snapshots": (replace(snapshot(0), encrypted=0),), "keks": (kek(0, age_days=-3), kek(1, age_days=10**6))},
    ],
    ids=["plain table", "depth metadata", "odd numbers"],
)
def test_what_there_is_not_is_left_out(change: dict[str, object]) -> None:
    Page(page(report(**change)))
    for one in re.findall("<svg.*?</svg>", page(report(**change)), re.DOTALL):
        ET.fromstring(one)  # noqa: S314 - ours


def test_without_tables_and_with_several() -> None:
    Page(page(replace(report(), tables=())))
    assert page(replace(report(), tables=report().tables * 2)).count('href="#t') == 2
