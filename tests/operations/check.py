"""Runs a recipe and holds storage and catalog against its outcome."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import StagedTable, Table, TableScan, Transaction
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.update import UpdateTableMetadata

from tools.operations.place import METADATA, plain_files
from tools.operations.recipe import Outcome, Recipe
from tools.operations.surface import CLASSES

# What these methods return has methods of its own to try.
_WITH_METHODS = (InspectTable, Table, TableScan, Transaction, UpdateTableMetadata)


def run(recipe: Recipe, place: Any) -> None:
    """Use the recipe at a place.

    Raises:
        AssertionError: what came of it is not the outcome that the recipe says.
    """
    before = place.state()
    if recipe.outcome is Outcome.REFUSED:
        with pytest.raises(recipe.error):
            recipe.use(place)
        assert place.state() == before
        return
    made = recipe.use(place)
    if isinstance(made, _WITH_METHODS) and not isinstance(made, StagedTable):
        assert type(made) in CLASSES.values(), f"{type(made).__name__} is not in surface.CLASSES"
    after = place.state()
    new = set(after.files) - set(before.files)
    assert plain_files(new) == []
    kept = set(after.files) & set(before.files)
    assert [path for path in kept if after.files[path] != before.files[path]] == [], "a file was written over"
    _check(recipe.outcome, place, before, after, {path for path in new if not path.endswith(METADATA)})


def _check(outcome: Outcome, place: Any, before: Any, after: Any, encrypted: set[str]) -> None:
    committed = before.catalog != after.catalog
    if outcome is Outcome.READS:
        assert before == after
    elif outcome is Outcome.PART:
        assert not committed
    elif outcome is Outcome.ENCRYPTED:
        assert committed
        assert encrypted
        assert place.table.scan().to_arrow() is not None
    else:
        assert not encrypted
        if outcome is Outcome.REMOVES:
            assert set(before.files) - set(after.files)
        if outcome is Outcome.CATALOG:
            assert committed
            assert before.files == after.files
        if outcome is Outcome.METADATA:
            assert committed
            assert set(before.files) < set(after.files)
            assert place.table.scan().to_arrow() is not None
