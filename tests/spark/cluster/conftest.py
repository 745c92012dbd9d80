"""One standalone cluster for the tests here; a session that is connected to it has it for itself."""

from __future__ import annotations

import pytest

from tests.spark.standalone import Cluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory):
    with Cluster.start(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
