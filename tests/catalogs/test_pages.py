"""Pages on catalogs that want a server run as they stand there, against the servers of the tests: their addresses are exchanged."""

from __future__ import annotations

import pytest

from tests.helpers.places import ROOT
from tests.pages.blocks import PAGES, read_page
from tests.pages.run import run_page

WITH_A_SERVER = [page.name for page in map(read_page, PAGES) if page.runs and page.needs == {"catalog-server"}]
HOW_TO = "docs/how-to/catalog-"


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run_one(kind, stand_ins):
        run_page(read_page(ROOT / f"{HOW_TO}{kind}.md"), tmp_path, monkeypatch, stand_ins)

    return run_one


def test_every_page_has_a_test():
    assert [f"{HOW_TO}{kind}.md" for kind in ("glue", "hive", "rest")] == WITH_A_SERVER


def test_the_page_on_glue(run, glue, tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__GLUE__ENDPOINT", glue.client.meta.endpoint_url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    run("glue", {"s3://bucket/warehouse": (tmp_path / "warehouse").as_uri()})


@pytest.mark.hive
def test_the_page_on_hive(run, metastore, tmp_path):
    run("hive", {"s3://bucket/warehouse": (tmp_path / "warehouse").as_uri(), "thrift://metastore:9083": metastore.uri})


def test_the_page_on_rest(run, rest_server):
    run("rest", {"https://catalog.example.com/api": rest_server.uri})
