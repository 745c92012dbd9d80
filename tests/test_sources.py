"""What the source names as its source is in this repository or public: pages, decisions, and cases by number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.wrap import pages, too_wide

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
CASES = frozenset(re.findall(r"^\| ([CJ]-\d\d) \|", (DOCS / "reference" / "cases.md").read_text(encoding="utf-8"), re.MULTILINE))
PAGES = {path.name for path in DOCS.rglob("*.md")} | {path.name for path in ROOT.glob("*.md")}
OF_PARQUET = {"Encryption.md"}
FILES = sorted(path for folder in ("src", "tests", "tools") for kind in ("*.py", "*.java") for path in (ROOT / folder).rglob(kind))
# Names of what only the developers had: nobody else can look them up.
NOT_HERE = re.compile(r"\bhouse rule|\bshared facts|\bkms row|\bdesign\.md|\bcatalogs\.md row", re.IGNORECASE)


def test_there_are_cases_to_name():
    assert {"C-01", "C-72", "J-09"} <= CASES


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_every_case_that_is_named_is_listed(folder):
    named = {(case, path.name) for path in (ROOT / folder).rglob("*.py") for case in re.findall(r"\b[CJ]-\d\d\b", path.read_text("utf-8"))}
    assert named
    assert {name for name in named if name[0] not in CASES} == set()


def test_every_page_that_is_named_is_there():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if path.is_relative_to(ROOT / "src"):
            assert set(re.findall(r"([\w-]+\.md)\b", text)) <= PAGES | OF_PARQUET, path
            assert not NOT_HERE.search(text), path
        for page in re.findall(r"\bdocs/([\w/-]+\.md)\b", text):
            assert (DOCS / page).is_file(), f"{path} names docs/{page}"


def test_tests_make_spark_sessions_in_one_place():
    made = {path for path in (ROOT / "tests").rglob("*.py") if re.search(r"SparkSession\.builder|SparkContext\(", path.read_text("utf-8"))}
    assert made == {ROOT / "tests" / "helpers" / "spark.py"}, "tests.helpers.spark.session makes them"


def test_pages_have_no_line_that_is_wider_than_a_screen():
    texts = [*pages(), ROOT / "tools" / "operations" / "operations.md.in"]
    wide = [f"{path.relative_to(ROOT)}:{line}" for path in texts for line in too_wide(path.read_text(encoding="utf-8"))]
    assert wide == [], "python -m tools.wrap breaks paragraphs; in code blocks it is for you to do"
