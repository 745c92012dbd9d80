"""Which cases of a sweep also run on the second version of Spark (the mark ``spark43``); tests/unit/test_second_spark.py says what for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def on_second(cases: Iterable[Any], *chosen: Any) -> list[Any]:
    """Return the cases of ``parametrize``, of which the chosen ones have the mark. Raises ValueError if one of these is no case.

    A case of several arguments is a tuple, for one argument that is a tuple write ``pytest.param`` out.
    """
    found = [case if isinstance(case, tuple) else (case,) for case in cases]
    marked = [one if isinstance(one, tuple) else (one,) for one in chosen]
    if missing := [one for one in marked if one not in found]:
        raise ValueError(f"not among the cases: {missing}")
    return [pytest.param(*case, marks=pytest.mark.spark43) if case in marked else pytest.param(*case) for case in found]
