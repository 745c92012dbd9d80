"""One process for the Spark jobs of all services."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.kms.spark_jobs import SparkJobs


@pytest.fixture(scope="session")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkJobs]:
    jobs = SparkJobs(tmp_path_factory.mktemp("spark-jobs"))
    yield jobs
    jobs.end()
