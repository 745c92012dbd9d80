"""docs/operations.md is what the recipes prove, and names every operation that changes something or is refused."""

from __future__ import annotations

from tools.operations import page


def test_the_committed_page_is_the_matrix() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.render(), "run make operations-docs"


def test_every_change_and_refusal_is_in_one_row_with_one_outcome() -> None:
    assert list(page.faults()) == []
