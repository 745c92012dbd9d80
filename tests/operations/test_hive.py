"""What the Hive catalog does its own way, tried as in ``test_matrix``."""

from __future__ import annotations

import pytest

from tests.lakes.hive import HiveLake
from tests.operations.check import run
from tests.servers.metastore import Metastore
from tools.operations import hive
from tools.operations.hive import HivePlace
from tools.operations.recipe import Outcome, Recipe

pytestmark = pytest.mark.hive


@pytest.fixture(scope="module")
def lake(metastore: Metastore, tmp_path_factory: pytest.TempPathFactory) -> HiveLake:
    return HiveLake(tmp_path_factory.mktemp("operations"), metastore.uri)


@pytest.fixture(scope="module")
def shared(lake: HiveLake) -> HivePlace:
    return HivePlace(lake)


@pytest.mark.turns(3)
@pytest.mark.parametrize("recipe", hive.RECIPES, ids=lambda recipe: recipe.name)
def test_operation(recipe: Recipe, shared: HivePlace) -> None:
    run(recipe, shared if recipe.outcome in (Outcome.READS, Outcome.REFUSED) else shared.twin())
