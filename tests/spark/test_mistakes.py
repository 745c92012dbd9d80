"""Mistakes in Spark print what docs/errors.md has. Those without Spark: tests/mistakes."""

from __future__ import annotations

import pytest

from tools.mistakes import page
from tools.mistakes.mistake import Mistake
from tools.mistakes.place import Place
from tools.mistakes.spark_place import SparkPlace

pytestmark = pytest.mark.spark
IN_SPARK = [mistake for each in page.OF_SPARK.values() for mistake in each]


@pytest.fixture(scope="module")
def place(spark, tmp_path_factory):
    return SparkPlace(Place(tmp_path_factory.mktemp("mistakes")), spark)


@pytest.mark.turns(4)
@pytest.mark.parametrize("mistake", IN_SPARK, ids=lambda mistake: mistake.title)
def test_a_message_is_that_of_the_page(mistake: Mistake, place: SparkPlace):
    message = place.message(mistake)
    assert mistake.faults(message) == [], message
    shown = page.sections(page.PAGE.read_text(encoding="utf-8"))
    assert mistake.section(message) == shown[mistake.title], "run make errors-docs"
