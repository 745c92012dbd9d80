"""``checked``: a public function says in one sentence which argument has the wrong type, or that a session was stopped.

Arguments may be swapped. It goes by the annotations of the function's parameters. A kind that is not in ``_KINDS`` is not checked here.

Not here: what values mean, such as names and filters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from numbers import Integral, Real
from os import PathLike
from typing import Any, Final, ParamSpec, TypeVar

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.sorting import SortOrder

from icelock.errors import PolicyError

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def is_session(value: object) -> bool:
    """Whether a value is a Spark session, classic or of Spark Connect."""
    return all(_has(value, name) for name in ("createDataFrame", "conf"))


def _has(value: object, name: str) -> bool:
    """Whether a value has an attribute, without asking for it: that of a session which was stopped before it was used asks the JVM."""
    try:
        inspect.getattr_static(value, name)
    except AttributeError:
        return False
    return True


def is_stopped(value: object) -> bool:
    """Whether a value is a classic session that was stopped, or rows of one: its context has no Java context any more."""
    session = getattr(value, "sparkSession", value)
    return is_session(session) and getattr(getattr(session, "sparkContext", None), "_jsc", session) is None


def _is_rows(value: object) -> bool:
    return hasattr(value, "sparkSession") and hasattr(value, "schema")


def _is_names(value: object) -> bool:
    return not isinstance(value, str | bytes | Mapping) and isinstance(value, Iterable) and not _is_rows(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_scan(value: object) -> bool:
    return hasattr(value, "plan_files")


# By an annotation's beginning: what it must be, and how that is said.
_KINDS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "SparkSession": (is_session, "a Spark session"),
    "DataFrame": (_is_rows, "a Spark DataFrame"),
    "str": (lambda value: isinstance(value, str), "text"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (_is_whole, "a whole number"),
    "float": (lambda value: isinstance(value, Real), "a number"),
    "None": (lambda value: value is None, "None"),
    "Into": (lambda value: isinstance(value, str), "text"),
    "History": (lambda value: isinstance(value, str), "text"),
    "Level": (lambda value: isinstance(value, str), "text"),
    "timedelta": (lambda value: isinstance(value, timedelta), "a timedelta"),
    "os.PathLike": (lambda value: isinstance(value, PathLike), "a path"),
    "Progress": (callable, "a function"),
    "Callable": (callable, "a function"),
    "SortOrder": (lambda value: isinstance(value, SortOrder), "a sort order"),
    "Iterable": (_is_names, "a list"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a dict"),
    "Sequence": (_is_names, "a list"),
    "tuple": (lambda value: isinstance(value, tuple), "a tuple"),
    "BooleanExpression": (lambda value: isinstance(value, BooleanExpression), "an expression"),
    "DataScan": (_is_scan, "a scan"),
}


def checked(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Return a function that raises a PolicyError for an argument of another type than it is annotated with."""
    signature = inspect.signature(function)
    kinds = {name: _alternatives(str(parameter.annotation)) for name, parameter in signature.parameters.items()}

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            known = [_KINDS[kind] for kind in kinds[name] if kind in _KINDS]
            if len(known) == len(kinds[name]) and not any(fits(value) for fits, _ in known):
                raise PolicyError(_refusal(function.__name__, signature, name, value, [said for _, said in known]))
            if is_stopped(value):
                raise PolicyError(
                    f"{function.__name__}: the Spark session was stopped, and nothing can be asked of it; build a new one with "
                    "SparkSession.builder.getOrCreate(), and call icelock.spark.register(spark) for it"
                )
        return function(*args, **kwargs)

    return call


def _alternatives(annotation: str) -> list[str]:
    """Return the kinds of an annotation without what is in brackets."""
    plain, depth = "", 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        plain += letter if not depth and letter != "]" else ""
    return [part.strip() for part in plain.split("|")]


def _refusal(function: str, signature: inspect.Signature, name: str, value: object, kinds: list[str]) -> str:
    wanted = " or ".join(dict.fromkeys(kind for kind in kinds if kind != "None" or len(kinds) == 1))
    shape = ", ".join(one.name for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD)
    return f"{name} must be {wanted}, and is a {type(value).__name__}: {function}({shape})"
