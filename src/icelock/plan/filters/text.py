r"""Filters given as text, in PyIceberg's language: ``city = 'Oslo' and day >= '2026-01-31'``.

``like`` takes ``%`` at the end only. ``_`` means any character in SQL and itself in PyIceberg's parser, so that a delete
would remove other rows than intended: it must be written ``\_``.

Where an unreadable filter goes wrong, and what was probably meant, is found here: PyIceberg's parser tries one form of a condition after
another and reports where the first of them begins. The text is read once, by the same grammar, up to the first word that does not fit:

    filter     condition, "not" filter, "(" filter ")", joined by "and" and "or"
    condition  name op value, value op name, name "is" ["not"] "null" or "nan", name ["not"] "in" "(" values ")",
               name ["not"] "like" text, name "between" value "and" value; "true" and "false" as the whole filter

Not here: what a filter means (``plan.filters.exact``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyparsing import ParseBaseException

from icelock.errors import PolicyError
from icelock.metadata.schema_paths import shortened

_EXAMPLE: Final = "city = 'Oslo' and day >= '2026-01-31'"
_QUOTED: Final = re.compile(r"(\blike\s*)?'((?:[^']|'')*)'", re.IGNORECASE)
_ANY_CHARACTER: Final = re.compile(r"(?<!\\)_")
_ANY_TEXT: Final = re.compile(r"(?<!\\)%(?!$)")
_EXCERPT: Final = 30
_TOKEN: Final = re.compile(
    r"""(?P<string>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"\\]|\\.)*")
      | (?P<number>[+-]?(?:\d+\.\d*|\.\d+|\d+))
      | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
      | (?P<op>[<>=!]+)
      | (?P<other>&&?|\|\|?|->>?|::|--|[^\s])""",
    re.VERBOSE,
)
_OPS: Final = frozenset({"<", "<=", ">", ">=", "=", "==", "!=", "<>"})
_BOOLEANS: Final = frozenset({"true", "false"})
_KEYWORDS: Final = frozenset({"and", "or", "not", "is", "in", "like", "between", "null"})

_SINGLE: Final = "text is written in single quotes, such as 'Oslo'"
_DATE: Final = "dates and times are text in single quotes, such as '2026-01-31' or '2026-01-31T12:00:00'"
_NO_FUNCTION: Final = "functions and arithmetic are not supported: compare the column itself with a value"
_JOINED: Final = "conditions are joined by and, or"
_CLOSE: Final = "the quote is not closed; a single quote inside text is written twice, such as 'it''s'"

# What is in place of a value, in order; the first that matches the rest of the filter counts.
_FOR_VALUE: Final = (
    (r'"', f'{_SINGLE}; double quotes are for names of columns, such as "first name"'),
    (r"[`\u2018\u2019\u201c\u201d\u00b4]", f"{_SINGLE}; other quotes are not supported"),
    (r"'", _CLOSE),
    (r"null\b", "nothing equals null: write is null or is not null"),
    (r"(nan|inf|infinity)\b", "NaN is found by is nan and is not nan, and infinity by expressions (EqualTo)"),
    (r"(date|time|timestamp|timestamptz|interval|datetime)\s*['(]", f"{_DATE}, without a word before them"),
    (r"(x|b)'[^']*'", 'bytes are given by expressions, such as EqualTo("b", b"\\x00")'),
    (r"[A-Za-z_]\w*\s*\(|current_(date|time|timestamp)\b|now\b", "functions are not supported: write their value"),
    (r"[A-Za-z_]", f"{_SINGLE}; two columns cannot be compared"),
    (r"[?:$@{%]", "parameters are not supported: write the value itself"),
    (r"[+-]\s", "write the sign right before the number, such as -5"),
    (r"\(\s*select\b", "subqueries are not supported: write their values"),
    (r"[\[({]", "only in takes a list, such as n in (1, 2)"),
    (r"[=<>!~]", "operators are =, !=, <, <=, > and >="),
    (r"", "a value is missing"),
)
# Likewise in place of an operator, after the name of a column.
_FOR_OPERATOR: Final = (
    (r"=>|\u2265", "write >="),
    (r"=<|\u2264", "write <="),
    (r"\u2260|!", "write !="),
    (r"[=<>]", "operators are =, !=, <, <=, > and >="),
    (r"(isnull|notnull)\b", "write is null or is not null"),
    (r"(ilike|rlike|regexp|similar|contains|starts|startswith|ends|endswith|glob)\b|~", "the only pattern is like 'a%'"),
    (r"\[", "elements of lists and maps cannot be filtered by; fields of a struct are named by dots, such as address.zip"),
    (r"->|::|[-+*/%|&^]", f'{_NO_FUNCTION}; a name with other characters is written in double quotes, such as "a-b"'),
    (r"(and|or)\b|\)|$", "a comparison is missing, such as n = 1; a boolean column is compared too, such as done = true"),
    (
        r"\w",
        'a name with a space is written in double quotes, such as "first name"; operators are =, !=, <, <=, >, >=, is, in, like, between',
    ),
    (r"", "operators are =, !=, <, <=, >, >=, is, in, like and between"),
)
# Where a condition should begin.
_FOR_CONDITION: Final = (
    (r"(where|select|delete|from|having)\b", "write the condition alone, such as n = 1"),
    (r"(case|exists|cast)\b", _NO_FUNCTION),
    (r"!", "write not"),
    (r'"', "the double quote is not closed"),
    (r"'", _CLOSE),
    (
        r"[`\u2018\u2019\u201c\u201d\u00b4]",
        'names with other characters than a-z, digits and _ are written in double quotes, such as "first name"',
    ),
    (r"(and|or|is|in|like|between)\b|\)|$", "a condition is missing, such as n = 1"),
    (r"[^\W\d_]", 'names with other characters than a-z, digits and _ are written in double quotes, such as "größe"'),
    (r"", "a condition begins with the name of a column, such as n = 1"),
)
# After a whole condition.
_FOR_MORE: Final = (
    (r"&", "write and"),
    (r"\|", "write or"),
    (r";", "leave the semicolon out"),
    (r"--|/\*|#", "comments are not supported"),
    (r"\)", "this parenthesis has no opening one: leave it out"),
    (r"[\])}]|,", f"{_JOINED}, such as a = 1 and b = 2"),
    (r"[-+*/%]", _NO_FUNCTION),
    (r"", f"{_JOINED}, such as a = 1 and b = 2"),
)


def parse_filter(row_filter: str | BooleanExpression) -> BooleanExpression:
    """Return a filter that was given as text, or as an expression.

    Raises:
        PolicyError: it is neither, or cannot be read; says from which character on.
    """
    if isinstance(row_filter, BooleanExpression):
        return row_filter
    if not isinstance(row_filter, str):
        raise PolicyError(f'the filter is a {type(row_filter).__name__}; it must be text such as "{_EXAMPLE}", or a PyIceberg expression')
    text = _QUOTED.sub(_plain_underscores, row_filter)
    try:
        return parse(text)
    except ParseBaseException as e:
        raise PolicyError(_unreadable(row_filter, where_wrong(row_filter) or (e.loc, f'it is text such as "{_EXAMPLE}"'))) from e
    except RecursionError as e:
        raise PolicyError("the filter cannot be read: its parentheses are too deep; give a PyIceberg expression") from e
    except (ValueError, TypeError, ArithmeticError) as e:
        wrong = where_wrong(row_filter)
        if wrong is not None:
            raise PolicyError(_unreadable(row_filter, wrong)) from e
        raise PolicyError(f'the filter cannot be read: {shortened(" ".join(str(e).split()))}; it is text such as "{_EXAMPLE}"') from e


def _unreadable(text: str, wrong: tuple[int, str]) -> str:
    at, hint = wrong
    return f"the filter cannot be read from character {at + 1} on ({text[at : at + _EXCERPT]!r}): {hint}"


def _plain_underscores(match: re.Match[str]) -> str:
    like, pattern = match.groups()
    if like is None:
        return match[0]
    if _ANY_CHARACTER.search(pattern):
        raise PolicyError(
            f"like {shortened(pattern)!r}: _ stands for any character in SQL, which is not supported; write \\_ for the character itself"
        )
    if _ANY_TEXT.search(pattern):
        raise PolicyError(
            f"like {shortened(pattern)!r}: % stands for any text at the end of a pattern only; write \\% for the character itself"
        )
    return f"{like}'{pattern}'".replace(r"\_", "_")


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The word in lower case; empty for anything else."""
        return self.text.lower() if self.kind == "word" else ""


class _WrongError(Exception):
    def __init__(self, at: int, hint: str) -> None:
        self.at, self.hint = at, hint


def where_wrong(text: str) -> tuple[int, str] | None:
    """Return the position (from 0) from which a filter cannot be read, and what to write; None if nothing is found."""
    try:
        _Walk(text).filter()
    except _WrongError as e:
        return e.at, e.hint
    except RecursionError:
        return None
    return None


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        yield _Token(str(found.lastgroup), found[0], found.start())
    yield _Token("end", "", len(text))


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0

    def filter(self) -> None:
        if self._now.kind == "end":
            raise _WrongError(0, "it is empty: leave the filter out for all rows")
        self._joined()
        if self._now.kind != "end":
            self._wrong(_FOR_MORE if not self._after_text() else ((r"", _CLOSE),))

    @property
    def _now(self) -> _Token:
        return self._tokens[self._next]

    def _after_text(self) -> bool:
        """Whether text ended right before, so that the quote belonged inside it."""
        before = self._tokens[self._next - 1]
        return before.kind == "string" and before.at + len(before.text) == self._now.at

    def _take(self) -> _Token:
        token = self._now
        self._next += token.kind != "end"
        return token

    def _wrong(self, hints: tuple[tuple[str, str], ...]) -> NoReturn:
        rest = self._text[self._now.at :]
        raise _WrongError(self._now.at, next(hint for pattern, hint in hints if re.match(pattern, rest, re.IGNORECASE)))

    def _joined(self) -> None:
        self._one()
        while self._now.word in {"and", "or"}:
            self._take()
            self._one()

    def _one(self) -> None:
        while self._now.word == "not":
            self._take()
        if self._now.text != "(":
            return self._condition()
        opened = self._take()
        self._joined()
        if self._now.kind == "end":
            raise _WrongError(opened.at, "this parenthesis is not closed")
        if self._now.text != ")":
            self._wrong(_FOR_MORE)
        self._take()
        return None

    def _condition(self) -> None:
        first = self._now
        if first.word in _BOOLEANS:
            self._take()
            if self._now.text in _OPS:
                self._compared_with_name()
            elif any(token.text not in {"(", ")", ""} and token is not first for token in self._tokens):
                raise _WrongError(first.at, f"{first.word} can only stand alone: leave it out, or compare a column with it")
        elif first.kind in {"string", "number"}:
            self._value()
            self._compared_with_name()
        else:
            self._name()
            self._after_name(first)

    def _compared_with_name(self) -> None:
        if self._now.text not in _OPS:
            self._wrong(_FOR_OPERATOR)
        self._take()
        if self._now.kind in {"string", "number"} or self._now.word in _BOOLEANS:
            hint = 'one side is the name of a column, which is written plain or in double quotes, such as city or "first name"'
            raise _WrongError(self._now.at, hint)
        self._name()

    def _name(self) -> None:
        while True:
            token = self._now
            if token.word in _KEYWORDS or token.kind not in {"word", "quoted"} or token.word in {"where", "select", "case", "delete"}:
                self._wrong(_FOR_CONDITION)
            if token.kind == "quoted" and "." in token.text:
                raise _WrongError(token.at, 'a name with a dot in it needs an expression, such as EqualTo("a.b", 1)')
            self._take()
            if self._now.text != ".":
                return
            self._take()

    def _after_name(self, first: _Token) -> None:
        token = self._now
        if token.text in _OPS:
            self._take()
            self._value()
        elif token.word == "is":
            self._is()
        elif token.word == "between":
            self._between()
        elif token.word in {"in", "like", "not"}:
            self._member()
        else:
            if token.text == "(":
                raise _WrongError(first.at, "functions are not supported: compare the column itself with a value")
            self._wrong(_FOR_OPERATOR)

    def _is(self) -> None:
        self._take()
        if self._now.word == "not":
            self._take()
        if self._now.word not in {"null", "nan"}:
            self._wrong(((r"(true|false)\b", "write = true or = false"), (r"", "is takes null, not null, nan or not nan")))
        self._take()

    def _between(self) -> None:
        self._take()
        self._value()
        if self._now.word != "and":
            self._wrong(((r"", "between takes two values joined by and, such as n between 1 and 5"),))
        self._take()
        self._value()

    def _member(self) -> None:
        if self._now.word == "not":
            self._take()
        if self._now.word == "in":
            self._take()
            return self._values()
        if self._now.word != "like":
            between = (r"between\b", "write not before the column, such as not (n between 1 and 5)")
            self._wrong((between, (r"", "not in and not like are known here; put other nots before the column, such as not (n = 1)")))
        self._take()
        if self._now.kind != "string":
            self._wrong((*_FOR_VALUE[:3], (r"", "like takes text in single quotes that ends with %, such as 'A%'")))
        self._take()
        return None

    def _values(self) -> None:
        if self._now.text != "(":
            self._wrong(((r"", "in takes a list in parentheses, such as (1, 2)"),))
        opened = self._take()
        kinds = set()
        while True:
            if self._now.text == ")":
                self._wrong(((r"", "a value is missing here: write one, or leave out the condition or the comma"),))
            item = self._now
            if item.word == "null":
                self._wrong(((r"", "a list cannot hold null: add or x is null"),))
            self._value()
            kinds.add("decimal" if item.kind == "number" and "." in item.text else item.kind)
            if len(kinds) > 1:
                raise _WrongError(item.at, "a list holds values of one kind: all text, all whole numbers, or all with a decimal point")
            if self._now.text != ",":
                break
            self._take()
        if self._now.text != ")":
            if self._now.kind == "end":
                raise _WrongError(opened.at, "this parenthesis is not closed")
            self._wrong(((r"", "values of a list are separated by commas"),))
        self._take()

    def _value(self) -> None:
        token = self._now
        if token.kind == "number":
            self._check_number(token)
        elif token.kind != "string" and token.word not in _BOOLEANS:
            self._wrong(_FOR_VALUE)
        self._take()
        if token.kind == "string" and self._after_text() and self._now.kind in {"word", "number"}:
            raise _WrongError(self._now.at, _CLOSE)

    def _check_number(self, token: _Token) -> None:
        rest = self._text[token.at :]
        if re.match(r"\d+-\d+|\d+:\d+|\d+/\d+/\d+", rest):
            raise _WrongError(token.at, _DATE)
        after = rest[len(token.text) :]
        if re.match(r"[eE][+-]?\d|[\w.]|,\d{3}(?!\d)(?!\s*\))(?!\s*,)", after):
            raise _WrongError(
                token.at, "a number is digits with a sign and a point at most, such as -1000.5; text is written in single quotes"
            )
