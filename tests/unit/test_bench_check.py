"""``make bench-check``: a fifth more CPU than recorded ends with 1, what the machine's noise is does not; costs are given, not measured."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

PLACE = Path(__file__).parents[2] / "benchmarks" / "check.py"


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with one case whose costs are ``check.cost`` and 10 ms in each process, and a record of its own."""
    spec = importlib.util.spec_from_file_location("bench_check", PLACE)
    assert spec is not None
    assert spec.loader is not None
    made: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_check", made)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "RECORDED", tmp_path / "recorded.json")
    monkeypatch.setattr(made, "one_process", lambda _wanted: {"scan": (made.cost, 0.01)})
    made.cost = 0.02
    return made


def run(check: Any, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(check.main, list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize(("cost", "code"), [(0.020, 0), (0.021, 0), (0.024, 1), (0.025, 1), (0.010, 0)])
def test_a_fifth_more_than_recorded_ends_with_1(check: Any, cost: float, code: int) -> None:
    assert run(check, "--record")[0] == 0
    assert json.loads(check.RECORDED.read_text())["ratios"] == {"scan": 2.0}
    check.cost = cost
    found, output = run(check)
    assert (found, "SLOWER" in output) == (code, bool(code))


def test_what_looks_slower_is_run_again_before_it_counts(check: Any) -> None:
    """One process of six is as fast as recorded: the least counts."""
    run(check, "--record")
    costs = iter([0.024] * 5 + [0.020])
    check.one_process = lambda _wanted: {"scan": (next(costs), 0.01)}
    assert run(check)[0] == 0


def test_the_least_of_each_side_is_compared(check: Any) -> None:
    costs = iter([(0.03, 0.02), (0.02, 0.01), (0.04, 0.04)])
    check.one_process = lambda _wanted: {"scan": next(costs)}
    run(check, "--record")
    assert json.loads(check.RECORDED.read_text())["ratios"] == {"scan": 2.0}


def test_a_case_that_was_not_recorded_is_told(check: Any) -> None:
    code, output = run(check)
    assert (code, "new: record it" in output) == (0, True)


def test_a_round_is_measured_from_both_sides(check: Any) -> None:
    """The answers have to be the same."""
    assert all(cost >= 0 for cost in check.least(check.Case(name="scan", ours=lambda: 7, theirs=lambda: 7)))
    with pytest.raises(AssertionError, match="the answers differ"):
        check.least(check.Case(name="scan", ours=lambda: 7, theirs=lambda: 8))
