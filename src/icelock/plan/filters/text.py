r"""Filters given as text, in PyIceberg's language: ``city = 'Oslo' and day >= '2026-01-31'``.

``like`` takes ``%`` at the end only. ``_`` means any character in SQL and itself in PyIceberg's parser, so that a delete
would remove other rows than intended: it must be written ``\_``.

Not here: what a filter means (``plan.filters.exact``).
"""

from __future__ import annotations

import re
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyparsing import ParseBaseException

from icelock.errors import PolicyError
from icelock.metadata.column_names import shortened
from icelock.plan.filters.hints import where_wrong

_EXAMPLE: Final = "city = 'Oslo' and day >= '2026-01-31'"
_QUOTED: Final = re.compile(r"(\blike\s*)?'((?:[^']|'')*)'", re.IGNORECASE)
_ANY_CHARACTER: Final = re.compile(r"(?<!\\)_")
_ANY_TEXT: Final = re.compile(r"(?<!\\)%(?!$)")
_EXCERPT: Final = 30


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
