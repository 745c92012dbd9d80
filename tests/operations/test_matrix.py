"""Every public method, found by reflection, on an encrypted table: encrypted files, or a typed refusal with nothing changed.

C-09, C-48, J-04, J-05. A method without a recipe fails a test: write one in tools/operations, beside its like.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icelock.catalog import load
from icelock.catalog.memory import InMemoryCatalog
from tests.lakes.sqlite import TestLake
from tests.operations.check import run
from tools.operations import surface
from tools.operations.all_recipes import RECIPES
from tools.operations.place import Place, StaticPlace
from tools.operations.recipe import Outcome, Recipe


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> TestLake:
    made = TestLake(tmp_path_factory.mktemp("operations"))
    made.catalog().create_namespace("db")
    return made


@pytest.fixture(scope="module")
def shared(lake: TestLake) -> Place:
    """A place for what changes nothing."""
    return Place(lake)


def test_every_public_method_has_a_recipe() -> None:
    have = {recipe.method for recipe in RECIPES}
    assert surface.surface() - have == set(), "methods without a recipe in tools/operations"
    assert have - surface.surface() == set(), "recipes of methods that are not there"


def test_each_recipe_is_there_once() -> None:
    names = [recipe.name for recipe in RECIPES]
    assert sorted(set(names)) == sorted(names)


def plain_python() -> list[Recipe]:
    return [recipe for recipe in RECIPES if not recipe.name.startswith("HiveCatalog.")]


@pytest.mark.turns(3)
@pytest.mark.parametrize("recipe", plain_python(), ids=lambda recipe: recipe.name)
def test_operation(recipe: Recipe, lake: TestLake, shared: Place) -> None:
    place: Any = shared
    if recipe.outcome is Outcome.REMOVES:
        place = Place(lake)
    elif recipe.outcome not in (Outcome.READS, Outcome.REFUSED):
        place = shared.twin()
    if recipe.name.startswith("StaticTable."):
        place = StaticPlace(place)
    run(recipe, place)


def test_no_summary_file_is_written(lake: TestLake) -> None:
    """C-64: Arrow's _metadata and _common_metadata files are not there."""
    assert not [path for path in Path(lake.folder).rglob("*") if path.name.startswith("_")]


def test_every_catalog_is_on_the_list() -> None:
    """C-07: the one of memory is the SQL catalog; the others are beside it, or have tests of their own."""
    elsewhere = {"icelock.catalog.glue.GlueCatalog", "icelock.catalog.rest.RestCatalog"}
    known = {f"{kind.__module__.removesuffix('.catalog')}.{kind.__qualname__}" for kind in surface.CLASSES.values()}
    assert set(load._CLASSES.values()) - known - elsewhere == {"icelock.catalog.memory.InMemoryCatalog"}
    assert surface.methods_of(InMemoryCatalog) == surface.methods_of(surface.CLASSES["SqlCatalog"])
