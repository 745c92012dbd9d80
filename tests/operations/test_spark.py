"""What there is for Spark, tried as in ``test_matrix``, in one session."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import icelock.spark
from tests.helpers.jvm import WARM, end_jvm
from tests.helpers.places import python_path
from tests.lakes.sqlite import TestLake
from tests.operations import op_surface
from tests.operations.op_check import run
from tests.operations.op_recipe import Outcome, Recipe
from tests.operations.op_spark import CATALOG, RECIPES, SparkPlace

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYTHONPATH", python_path(WARM))
        environment.setenv("TMPDIR", str(tmp_path_factory.mktemp("driver")))
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
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
    assert op_surface.spark_surface() - have == set(), "without a recipe in tests/operations/op_spark.py"
    assert have - op_surface.spark_surface() == set(), "recipes of what is not there"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_operation(recipe: Recipe, shared: SparkPlace) -> None:
    run(recipe, shared if recipe.outcome in (Outcome.READS, Outcome.REFUSED) else shared.twin())
