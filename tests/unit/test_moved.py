"""Modules are found by the names that they had before they moved into folders, and are the same modules."""

from __future__ import annotations

import importlib

import pytest

from icelock._moved import MOVED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_a_module_is_found_by_the_name_that_it_had(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{old} is {MOVED[old]} now"):
        found = importlib.import_module(old)
    assert found is importlib.import_module(MOVED[old])
    assert found.__name__ == MOVED[old]
