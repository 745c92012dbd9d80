"""What the Hive catalog does its own way, tried as in ``test_matrix``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lakes.hive import HiveLake
from tests.operations import op_hive
from tests.operations.op_check import run
from tests.operations.op_hive import HivePlace
from tests.operations.op_recipe import Outcome, Recipe
from tests.servers.metastore import Metastore

pytestmark = pytest.mark.hive


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveLake]:
    with Metastore() as metastore:
        yield HiveLake(tmp_path_factory.mktemp("operations"), metastore.uri)


@pytest.fixture(scope="module")
def shared(lake: HiveLake) -> HivePlace:
    return HivePlace(lake)


@pytest.mark.parametrize("recipe", op_hive.RECIPES, ids=lambda recipe: recipe.name)
def test_operation(recipe: Recipe, shared: HivePlace) -> None:
    run(recipe, shared if recipe.outcome in (Outcome.READS, Outcome.REFUSED) else shared.twin())
