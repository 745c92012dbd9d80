"""Pages of the documentation that need neither Spark nor a server run as they stand there, block by block, from an empty folder.

Those with Spark are in ``tests/spark/test_pages.py``, those with a catalog's or a key's service in ``tests/services/test_pages.py``.
"""

from __future__ import annotations

import pytest

from tests.pages.blocks import PAGES, read_page
from tests.pages.run import run_page

LIGHT = [page for page in map(read_page, PAGES) if page.runs and not page.needs]


@pytest.mark.parametrize("page", LIGHT, ids=lambda page: page.name)
def test_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
    run_page(page, tmp_path, monkeypatch)
