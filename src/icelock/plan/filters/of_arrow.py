"""Arrow's filter expressions, as far as Iceberg has words for them.

pyarrow shows no tree of an expression, only its text, in which a name or a text may look like anything. So the text is read for a guess, an
expression is made of the guess, and only if Arrow finds it equal to the given one does it count. A text full of quotes and parentheses can
spoil the guess, not the rows.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from icelock.plan.filters.weaker import Among, Both, Compared, Foreign, Negated, Tested

_MADE: Final[dict[str, Any]] = {
    "==": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
}
_NAME: Final = re.compile(r"\w+")
_VALUE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^()"]+')
_OPERATOR: Final = re.compile(r" (and|or|==|!=|<=|>=|<|>) ")
_LIST: Final = r"is_in\((\w+), \{value_set=[^\[]*:\[([^\]]*)\], null_matching_behavior=MATCH\}\)"
_AMONG: Final = re.compile(_LIST)
# DuckDB's, by SQL's rule: unknown for null.
_AMONG_OR_UNKNOWN: Final = re.compile(rf"if_else\(is_valid\((\w+)\), {_LIST}, null\[bool\]\)")
_NULL: Final = re.compile(r"is_null\((\w+), \{nan_is_null=(true|false)\}\)")


class _NotKnownError(ValueError):
    """A text that is none of those that are read."""


def of_arrow(expression: pc.Expression, schema: pa.Schema) -> Foreign:
    """Return what a filter says; None if Iceberg has no word for all of it.

    Args:
        expression: on columns of ``schema``.
        schema: the columns, with Arrow's types.
    """
    reader = _Reader(str(expression), schema)
    try:
        foreign, made = reader.one()
    except (_NotKnownError, RecursionError, pa.ArrowException, LookupError, TypeError, ValueError):
        return None
    return foreign if made.equals(expression) else None


class _Reader:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._at = 0
        self._schema = schema

    def one(self) -> tuple[Foreign, Any]:
        """Read one expression from here; return what it says and what is made of it."""
        if self._skip("("):
            found = self._pair()
            self._need(")")
            return found
        if self._skip("invert("):
            foreign, made = self.one()
            self._need(")")
            return Negated(foreign), ~made
        return self._test()

    def _test(self) -> tuple[Foreign, Any]:
        for form in (_AMONG_OR_UNKNOWN, _AMONG):
            if (found := form.match(self._text, self._at)) is not None:
                self._at = found.end()
                return self._among(*found.groups()[-2:], by_sql=form is _AMONG_OR_UNKNOWN)
        if (found := _NULL.match(self._text, self._at)) is not None:
            self._at = found.end()
            name, nan_too = found[1], found[2] == "true"
            foreign: Foreign = Tested(name, "null")
            if nan_too:
                foreign = Both(foreign, Tested(name, "nan"), either=True)
            return foreign, pc.field(name).is_null(nan_is_null=nan_too)
        for call, test in (("is_valid(", "null"), ("is_nan(", "nan")):
            if self._skip(call):
                name = self._name()
                self._need(")")
                tested = Tested(name, test)
                return (Negated(tested), pc.field(name).is_valid()) if test == "null" else (tested, pc.field(name).is_nan())
        name = self._name()
        return Tested(name, "true"), pc.field(name)

    def _pair(self) -> tuple[Foreign, Any]:
        foreign, made = self.one()
        operator = _OPERATOR.match(self._text, self._at)
        if operator is None:
            raise _NotKnownError
        self._at = operator.end()
        if operator[1] in {"and", "or"}:
            other, also = self.one()
            return Both(foreign, other, either=operator[1] == "or"), (made & also if operator[1] == "and" else made | also)
        if not isinstance(foreign, Tested) or foreign.test != "true":
            raise _NotKnownError
        value = _VALUE.match(self._text, self._at)
        if value is None:
            raise _NotKnownError
        self._at = value.end()
        scalar = self._scalar(foreign.name, value[0])
        return Compared(foreign.name, operator[1], scalar.as_py()), _MADE[operator[1]](made, scalar)

    def _among(self, name: str, listed: str, *, by_sql: bool) -> tuple[Foreign, Any]:
        scalars = [self._scalar(name, text) for text in re.findall(r'"(?:[^"\\]|\\.)*"|[^\s,"][^,\n"]*', listed)]
        field = pc.field(name)
        made = field.isin(pa.array([one.as_py() for one in scalars], self._schema.field(name).type))
        if by_sql:
            made = pc.if_else(field.is_valid(), made, pa.scalar(None, pa.bool_()))
        return Among(name, [one.as_py() for one in scalars], unknown_for_null=by_sql), made

    def _scalar(self, name: str, text: str) -> pa.Scalar:
        kind = self._schema.field(name).type
        if getattr(kind, "unit", None) == "ns":
            raise _NotKnownError  # Python's times have no nanoseconds
        if pat.is_string(kind) or pat.is_large_string(kind):
            if not text.startswith('"'):
                raise _NotKnownError
            return pa.scalar(re.sub(r"\\(.)", r"\1", text[1:-1]), kind)
        return pa.scalar(text.strip()).cast(kind)

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise _NotKnownError
        self._at = found.end()
        return found[0]

    def _skip(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _need(self, text: str) -> None:
        if not self._skip(text):
            raise _NotKnownError
