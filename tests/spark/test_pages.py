"""Pages of the documentation with Spark run as they stand there, each from an empty folder, in the session that all tests here share.

The folder is the one where the session's JVM is, since Spark's processes find what a page names from there. What a session of one's own
takes is for tests/catalogs/test_spark_job.py and tests/demo.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.blocks import PAGES, read_page
from tests.pages.run import run_page

WITH_SPARK = [page for page in map(read_page, PAGES) if page.runs and page.needs == {"spark"}]
DAILY = "README.md"


@pytest.fixture
def here(spark) -> Iterator[Path]:
    """The folder of the session's JVM, as it is; what the test leaves in it goes."""
    folder = Path(spark._jvm.System.getProperty("user.dir"))
    before = {*folder.iterdir()}
    yield folder
    for query in spark.streams.active:
        query.stop()
    spark.catalog.setCurrentCatalog("spark_catalog")
    for view in (table.name for table in spark.catalog.listTables() if table.isTemporary):
        spark.catalog.dropTempView(view)
    for path in {*folder.iterdir()} - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.spark
@pytest.mark.newest
def test_the_first_page_runs_as_it_stands(spark, here, monkeypatch):
    names = run_page(next(page for page in WITH_SPARK if page.name == DAILY), here, monkeypatch)
    assert names["spark"] is spark


@pytest.mark.spark
@pytest.mark.turns(4)
@pytest.mark.parametrize("page", [page for page in WITH_SPARK if page.name != DAILY], ids=lambda page: page.name)
def test_a_page_with_spark_runs_as_it_stands(page, here, monkeypatch):
    run_page(page, here, monkeypatch)
