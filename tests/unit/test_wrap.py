"""Paragraphs are broken where that changes nothing of what a page shows."""

from __future__ import annotations

import pytest

from tools.wrap import too_wide, wrap

WORDS = "word " * 30  # 150 letters
LINE = "word " * 27 + "word\n"  # as many words as 140 letters hold


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        ("short\nlines stay\n", "short\nlines stay\n"),
        (f"{WORDS}end\n", f"{LINE}word word end\n"),
        (f"before\n{WORDS}\nafter\n", f"before\n{LINE}word word after\n"),
        (f"- {WORDS}end\n- next\n", f"- {LINE[:-6]}\n  word word word end\n- next\n"),
        (f"> {WORDS}end\n", f"> {LINE[:-6]}\n> word word word end\n"),
        # What would begin a list, a quotation or a table does not begin a line, nor is code broken, nor a link's target.
        ("word " * 27 + "word - and | > 1. end\n", "word " * 26 + "word\nword - and | > 1. end\n"),
        ("word " * 27 + "`a b c d e` end\n", "word " * 26 + "word\n`a b c d e` end\n"),
        ("word " * 27 + "[a](b (c) d) end\n", "word " * 26 + "word\n[a](b (c) d) end\n"),
        # Neither are tables, headings and blocks of code.
        (f"| a |\n| --- |\n| {WORDS} |\n", f"| a |\n| --- |\n| {WORDS} |\n"),
        (f"```\n{WORDS}\n```\n", f"```\n{WORDS}\n```\n"),
    ],
)
def test_a_paragraph_is_broken_before_column_140(text: str, wrapped: str) -> None:
    assert wrap(text) == wrapped


def test_what_is_too_wide_is_told_but_for_tables() -> None:
    wide = "x" * 141
    assert too_wide(f"{wide}\n\n```\n{wide}\n```\n\n| a |\n| --- |\n| {wide} |\n\n{wide[1:]}\n") == [1, 4]
