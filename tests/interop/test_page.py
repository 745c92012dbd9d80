"""docs/interop.md is what the tests declare, for the pinned versions; and the generator does not write what did not pass."""

from __future__ import annotations

from tests.interop import page
from tests.interop.features import FEATURES
from tests.interop.matrix import CELLS, Absent


def all_passed() -> dict[str, dict[str, str]]:
    cells = {f"{f.name} {cell}": "passed" for f in FEATURES for cell in CELLS if not isinstance(f.cell(cell), Absent)}
    return {"versions": page.pinned_versions(), "cells": cells}


def test_the_committed_page_is_the_matrix():
    wanted = page.render(page.pinned_versions())
    assert page.PAGE.read_text(encoding="utf-8") == wanted, "run make interop-docs"


def test_names_of_features_are_unique():
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)


def test_a_run_in_which_every_cell_passed_may_be_written():
    assert page.faults(all_passed()) == []


def test_a_cell_that_failed_or_did_not_run_or_ran_on_other_versions_is_told():
    found = all_passed()
    first, second, *_ = found["cells"]
    found["cells"][first] = "failed"
    del found["cells"][second]
    found["versions"]["pyarrow"] = "1.0"
    assert page.faults(found) == [
        f"pyarrow is 1.0, pinned is {page.pinned_versions()['pyarrow']}",
        f"{first}: failed",
        f"{second}: did not run",
    ]
