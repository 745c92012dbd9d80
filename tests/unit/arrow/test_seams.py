"""States each private name of PyIceberg that ``icelock.arrow.read.prune`` leans on; a new version that moves one fails here."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThan, IsNull, NotNull
from pyiceberg.expressions.visitors import bind, visit
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

import icelock.arrow
from icelock.arrow.read.prune import InclusiveMetricsVisitor
from tests.unit.arrow.support import opt

SCHEMA = Schema(opt(1, "a", LongType()))


@pytest.mark.parametrize(
    ("row_filter", "may_match"),
    [(EqualTo("a", 5), True), (EqualTo("a", 11), False), (GreaterThan("a", 10), False), (IsNull("a"), False), (NotNull("a"), True)],
)
def test_the_metrics_visitor_needs_six_attributes_and_no_data_file(row_filter: BooleanExpression, may_match):
    metrics = SimpleNamespace(
        record_count=3,
        value_counts={1: 3},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={1: to_bytes(LongType(), 1)},
        upper_bounds={1: to_bytes(LongType(), 10)},
    )
    bound = bind(SCHEMA, row_filter, case_sensitive=True)
    assert visit(bound, InclusiveMetricsVisitor(metrics)) is may_match


def test_one_module_of_the_arrow_layer_imports_a_private_name_of_pyiceberg():
    folder = Path(icelock.arrow.__file__).parent
    private = re.compile(r"from pyiceberg[\w.]* import [^\n]*\b_\w|^\s+_\w+,$", re.MULTILINE)
    assert [path.name for path in folder.rglob("*.py") if private.search(path.read_text(encoding="utf-8"))] == ["prune.py"]
