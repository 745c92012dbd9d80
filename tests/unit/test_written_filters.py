"""A filter as text: it is what people write, and PyIceberg's parser, from outside, makes the same filter of it."""

from __future__ import annotations

from typing import Any

import pyiceberg.expressions as ice
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from icelock.plan.filters.written import written

NAMES = st.sampled_from(["id", "a.b", "odd name", "_x$", "né"])
VALUES = st.one_of(
    st.integers(-(10**12), 10**12),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.booleans(),
    st.text("aé '_%x", max_size=5),
)
NUMBERS = st.lists(st.integers(-9, 9), min_size=2, max_size=4, unique=True)
PREDICATES = st.one_of(
    st.builds(
        lambda kind, name, value: kind(name, value),
        st.sampled_from([ice.EqualTo, ice.NotEqualTo, ice.LessThan, ice.LessThanOrEqual, ice.GreaterThan, ice.GreaterThanOrEqual]),
        NAMES,
        VALUES,
    ),
    st.builds(lambda kind, name: kind(name), st.sampled_from([ice.IsNull, ice.NotNull, ice.IsNaN, ice.NotNaN]), NAMES),
    st.builds(lambda kind, name, values: kind(name, values), st.sampled_from([ice.In, ice.NotIn]), NAMES, NUMBERS),
    st.builds(
        lambda kind, name, text: kind(name, text),
        st.sampled_from([ice.StartsWith, ice.NotStartsWith]),
        NAMES,
        st.text("aé '%x", max_size=5),
    ),
)
FILTERS = st.recursive(
    PREDICATES,
    lambda inner: st.one_of(st.builds(ice.And, inner, inner), st.builds(ice.Or, inner, inner), st.builds(ice.Not, inner)),
    max_leaves=8,
)


def plain(expression: ice.BooleanExpression) -> str:
    """What two filters have in common that say the same: literals by value, lists in order, no parentheses in a row of ``and``."""
    if isinstance(expression, ice.And | ice.Or):
        return f"{type(expression).__name__}[{', '.join(parts(expression, type(expression)))}]"
    if isinstance(expression, ice.Not):
        return f"Not[{plain(expression.child)}]"
    if isinstance(expression, ice.In | ice.NotIn):
        return f"{type(expression).__name__}[{expression.term.name} {sorted(one.value for one in expression.literals)}]"
    if isinstance(expression, ice.NotStartsWith):
        return f"not like[{expression.term.name} {expression.literal.value!r}]"
    value = getattr(getattr(expression, "literal", None), "value", None)
    return f"{type(expression).__name__}[{expression.term.name} {value!r}]"


def parts(expression: Any, kind: type[ice.BooleanExpression]) -> list[str]:
    if not isinstance(expression, kind):
        return [plain(expression)]
    return [*parts(expression.left, kind), *parts(expression.right, kind)]


@given(FILTERS)
def test_the_text_is_parsed_to_the_same_filter(expression: ice.BooleanExpression) -> None:
    assert plain(parse(written(expression))) == plain(expression)


@pytest.mark.parametrize(
    "text",
    [
        "id > 1 and name in ('a', 'b')",
        "(id > 1 or id is null) and not (name = 'it''s' or x is nan)",
        'a.b <= 2.50 or "odd name" is not null or id = true',
        "name like 'a%' and name not like 'b%'",
        "id not in (1, 2) and (id < 3 or id >= -4)",
        "true",
    ],
)
def test_what_people_write_comes_back(text: str) -> None:
    assert written(parse(text)) == text


def test_what_the_grammar_lacks_is_shown_as_it_is() -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    bound = ice.GreaterThan("id", 1).bind(schema, case_sensitive=True)
    assert "BoundGreaterThan" in written(ice.And(bound, ice.IsNull("id")))
