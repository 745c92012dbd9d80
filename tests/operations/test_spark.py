"""What there is for Spark, tried as in ``test_matrix``, in one session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import icelock.spark
from tests.helpers.spark import WARM, end_jvm, session, spark_environment
from tests.lakes.sqlite import TestLake
from tests.operations.check import run
from tools.operations import surface
from tools.operations.recipe import Outcome, Recipe
from tools.operations.spark import CATALOG, RECIPES, SparkPlace

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with patch.dict(os.environ, {**spark_environment(WARM), "TMPDIR": str(tmp_path_factory.mktemp("driver"))}):
        yield session({"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))})
        end_jvm()


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkPlace:
    lake = TestLake(tmp_path_factory.mktemp("operations"))
    lake.catalog().create_namespace("db")
    icelock.spark.register(spark, {CATALOG: lake.properties()})
    SparkPlace.spark = spark
    return SparkPlace(lake)


def test_every_function_option_and_mode_has_a_recipe() -> None:
    have = {recipe.method for recipe in RECIPES}
    assert surface.spark_surface() - have == set(), "without a recipe in tools/operations/spark.py"
    assert have - surface.spark_surface() == set(), "recipes of what is not there"


@pytest.mark.turns(3)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_operation(recipe: Recipe, shared: SparkPlace) -> None:
    place = shared
    if recipe.outcome is Outcome.REMOVES:
        place = SparkPlace(shared.lake)
    elif recipe.outcome not in (Outcome.READS, Outcome.REFUSED):
        place = shared.twin()
    run(recipe, place)
