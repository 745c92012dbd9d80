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
    monkeypatch.setattr(made, "one_process", lambda _wanted: {"scan": made.cost / 0.01})
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


def given(check: Any, *ratios: float) -> list[float]:
    """Let processes have these ratios, one after the other; return those that are left."""
    left = list(ratios)
    check.one_process = lambda _wanted: {"scan": left.pop(0)}
    return left


@pytest.mark.parametrize(
    ("ratios", "code", "processes"),
    [
        ((2.0, 2.6, 2.0), 0, 3),  # one of three is slower
        ((2.6, 2.6, 2.0, 2.0, 2.0), 0, 5),  # the median is again what it was
        ((2.4, 2.5, 2.4, 2.0, 2.4, 2.3, 2.4), 1, 7),
    ],
)
def test_the_median_of_processes_counts_and_what_looks_slower_is_run_again(
    check: Any, ratios: tuple[float, ...], code: int, processes: int
) -> None:
    run(check, "--record")
    left = given(check, *ratios)
    assert run(check)[0] == code
    assert len(ratios) - len(left) == processes


def test_a_record_is_of_all_processes(check: Any) -> None:
    given(check, 2.6, 2.6, 2.6, 2.0, 2.0, 2.0, 2.0)
    run(check, "--record")
    assert json.loads(check.RECORDED.read_text())["ratios"] == {"scan": 2.0}


def test_what_slows_both_sides_for_a_while_is_no_change(check: Any) -> None:
    """Half of the rounds take twice as long, one side of two rounds ten times or more: by hand, (2 + 4 + 2) / (1 + 2 + 1)."""
    assert check.ratio([(0.02, 0.01), (0.04, 0.02), (0.3, 0.01), (0.02, 0.1), (0.02, 0.01)]) == pytest.approx(2)
    assert check.ratio([(0.03, 0.01), (0.01, 0.01)]) == pytest.approx(2)


def test_runs_of_half_a_second_have_fewer_rounds(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for took, wanted in ((0.4, 9), (0.5, 5)):
        monkeypatch.setattr(check, "seconds", lambda _run, _times, took=took: took)
        assert check.rounds(check.Case(name="scan", ours=lambda: 7, theirs=lambda: 7)) == [(took, took)] * wanted


def test_a_case_that_was_not_recorded_is_told(check: Any) -> None:
    code, output = run(check)
    assert (code, "new: record it" in output) == (0, True)


def test_a_round_is_measured_from_both_sides(check: Any) -> None:
    """The answers have to be the same."""
    found = check.rounds(check.Case(name="scan", ours=lambda: 7, theirs=lambda: 7))
    assert all(cost >= 0 for costs in found for cost in costs)
    with pytest.raises(AssertionError, match="the answers differ"):
        check.rounds(check.Case(name="scan", ours=lambda: 7, theirs=lambda: 8))
