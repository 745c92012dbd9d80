"""The process of ``spark_job.py``, started with the first job; after a job that failed, with the next one.

A process of its own: the JVM keeps the environment that it was started with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.line_process import LineProcess
from tests.helpers.spark import WARM, spark_environment


class SparkJobs:
    """Runs jobs one after another; ``end`` it."""

    def __init__(self, folder: Path) -> None:
        self._environment = dict(os.environ)
        program = ["tests.services.kms.spark_job", str(folder / "warehouse")]
        self._process = LineProcess(program, {**self._environment, **spark_environment(WARM)}, folder / "errors.log")

    def run(self, properties: Mapping[str, str], calls: Path) -> dict[str, Any]:
        """Run one job with what the environment has more than when this was made."""
        more = {name: value for name, value in os.environ.items() if self._environment.get(name) != value}
        more.pop("PYTEST_CURRENT_TEST", None)
        job = {"properties": dict(properties), "calls": str(calls), "environment": more}
        told = self._process.ask(job, is_answer=lambda line: line.startswith("{"))
        if told is None:
            self.end()
        assert told is not None, self._process.told()[-5000:]
        return json.loads(told)

    def end(self) -> None:
        """End the process."""
        self._process.end()
