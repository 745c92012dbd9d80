"""Filters that cannot be read: where they go wrong, counted by hand, and what to write instead."""

from __future__ import annotations

import random
import re

import pytest

from icelock.errors import PolicyError
from icelock.plan.filters.text import parse_filter, where_wrong

# A caret stands before the character that is named.
WRONG = {
    # quotes
    'city = ^"Oslo"': "single quotes",
    '"city" = ^"Oslo" and n = 1': "single quotes",
    "city = ^Oslo": "single quotes.*two columns",
    "a = ^b": "single quotes.*two columns",
    "city = ^`Oslo`": "single quotes",
    "city = ^\u2018Oslo\u2019": "single quotes",
    "city = ^\u201cOslo\u201d": "single quotes",
    "city = ^'Oslo": "not closed",
    "city = 'it'^s'": "written twice",
    "^`city` = 'Oslo'": "double quotes",
    "'city' = ^1": "one side is the name",
    "a = 1 or ^true": "stand alone",
    "not ^false": "stand alone",
    '^"city = 1': "not closed",
    # nulls
    "a = ^null": "is null",
    "a != ^NULL": "is not null",
    "n = 1 and a <> ^null": "is null",
    "a in (1, ^null)": "or x is null",
    "a is ^true": "= true",
    "a is not ^none": "not null",
    "a ^isnull": "is null",
    "a = ^nan": "is nan",
    # dates
    "d >= ^2026-01-31": "'2026-01-31'",
    "d between ^2026-01-01 and 2026-02-01": "'2026-01-31'",
    "d in ('2026-01-01', ^2026-02-01)": "'2026-01-31'",
    "t = ^12:00": "single quotes",
    "d = ^date '2026-01-31'": "without a word",
    "d = ^timestamp('2026-01-31')": "without a word",
    "d >= ^current_date": "write their value",
    # operators
    "a ^=> 1": ">=",
    "a ^=< 1": "<=",
    "a ^=== 1": "operators are",
    "a ^\u2265 1": ">=",
    "a ^\u2260 1": "!=",
    "a > 1 ^&& b < 2": "write and",
    "a > 1 ^|| b < 2": "write or",
    "^!(a = 1)": "write not",
    "a ^ilike 'x%'": "only pattern is like 'a%'",
    "a ^~ 'x'": "only pattern is like 'a%'",
    "a not ^between 1 and 5": "before the column",
    "a between 1 ^5": "joined by and",
    "a between 1 and^": "value is missing",
    # like
    "a like ^A%": "single quotes",
    'a like ^"A%"': "single quotes",
    "a like ^5": "single quotes",
    # lists
    "a in ^1": "in parentheses",
    "a in ^[1, 2]": "in parentheses",
    "a in (^)": "a value is missing here",
    "a in (1,^)": "a value is missing here",
    "a in (1 ^2)": "commas",
    "a in ^(1, 2": "not closed",
    "a in (1, ^'x')": "one kind",
    "a in (1, ^2.5)": "one kind",
    # parentheses
    "^(a = 1": "not closed",
    "b = 2 and ^((a = 1) or c = 3": "not closed",
    "a = 1^)": "has no opening one",
    "(a = 1)^) and b = 2": "has no opening one",
    # functions, arithmetic, other languages
    "^lower(city) = 'oslo'": "functions are not supported",
    "n = 1 and ^year(d) = 2026": "functions are not supported",
    "a = ^lower('X')": "functions are not supported",
    "a ^+ 1 = 2": "functions and arithmetic",
    "a = 1 ^+ 1": "arithmetic",
    "a^[0] = 1": "elements of lists",
    "a^::int = 1": "functions and arithmetic",
    "^where a = 1": "condition alone",
    "^case when a then b end": "functions and arithmetic",
    "a = 1^; drop": "semicolon",
    "a = 1 ^-- comment": "comments",
    "a = ^?": "parameters",
    "a = ^:x": "parameters",
    "a = ^{x}": "parameters",
    "a = ^(select 1)": "queries",
    # numbers
    "a = ^1e5": "digits",
    "a = ^1_000": "digits",
    "a = ^1,000": "digits",
    "a = ^0x10": "digits",
    "a = ^- 5": "right before",
    # what is missing
    "^": "empty",
    "a = 1 and^": "condition is missing",
    "^and a = 1": "condition is missing",
    "a^": "comparison is missing",
    "a =^": "value is missing",
    "a = 1 ^b = 2": "joined by and, or",
    "a = 1^, b = 2": "joined by and, or",
    # names
    "first ^name = 'A'": '"first name"',
    "a^-b = 1": '"a-b"',
    "^gr\u00f6\u00dfe = 1".replace("^gr", "gr^"): "operators|double quotes",
    "^\u00e4 = 1": "double quotes",
    '^"a.b" = 1': "EqualTo",
}
RIGHT = (
    "a = 1",
    "1 < a",
    "'x' != \"first name\"",
    "true = a",
    "a == -1.5 or b <> +2 and not (c >= .5)",
    "not not a = 1",
    "a.b.c is not null and d is nan or e is null",
    "a in (1, 2) and b not in ('x', 'it''s') or c in (1.0, 2.5) or d in (true)",
    "a like 'x%' and b not like 'y\\_%'",
    "a between 1 and 5 and b between '2026-01-01' and '2026-02-01'",
    "((true))",
    "FALSE",
    "A IN (1) AND NOT B IS NULL",
    "a=1 and(b=2)",
    '"größe" = 1',
)


@pytest.mark.parametrize("marked", list(WRONG))
def test_where_it_goes_wrong_and_what_to_write(marked: str) -> None:
    at, text = marked.index("^"), marked.replace("^", "")
    with pytest.raises(PolicyError) as caught:
        parse_filter(text)
    said = str(caught.value)
    assert said.startswith(f"the filter cannot be read from character {at + 1} on ({text[at : at + 30]!r}): ")
    assert re.search(WRONG[marked], said.partition("): ")[2])
    assert len(said) <= 220


def test_patterns_with_a_wildcard_inside() -> None:
    for text in ("a like '%x'", "a like 'x%y'", "a not like '%x%'"):
        with pytest.raises(PolicyError, match="% stands for any text at the end of a pattern only"):
            parse_filter(text)


def test_nothing_is_wrong_with_what_can_be_read() -> None:
    """The walk knows the language that PyIceberg's parser reads."""
    for text in RIGHT:
        parse_filter(text)
        assert where_wrong(text) is None, text


def test_filters_with_one_change() -> None:
    """Whatever is refused is refused with a place in the text."""
    rng = random.Random(13)
    refused = [refusal for refusal in (refusal_of(one_change(rng)) for _ in range(1500)) if refusal is not None]
    assert len(refused) > 500
    for text, said in refused:
        place = re.search(r"from character (\d+) on", said)
        assert place is not None or said.startswith("like '"), (text, said)
        assert place is None or 1 <= int(place[1]) <= len(text) + 1
    assert sum(where_wrong(text) is not None for text, _ in refused) > len(refused) * 0.97


def one_change(rng: random.Random) -> str:
    text = rng.choice(RIGHT)
    at = rng.randrange(len(text) + 1)
    return rng.choice([text[:at] + text[at + 1 :], text[:at] + rng.choice("'\"()=,.;x1 %&") + text[at:], text[:at]])


def refusal_of(text: str) -> tuple[str, str] | None:
    try:
        parse_filter(text)
    except PolicyError as e:
        return text, str(e)
    return None
