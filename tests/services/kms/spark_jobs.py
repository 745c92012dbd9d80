"""The process of ``spark_job.py``, started with the first job; after a job that failed, with the next one.

A process of its own: the JVM keeps the environment that it was started with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.spark import WARM, spark_environment

_SECONDS = 300.0


class SparkJobs:
    """Runs jobs one after another; ``end`` it."""

    def __init__(self, folder: Path) -> None:
        self._environment = dict(os.environ)
        self._folder = folder
        self._log = folder / "errors.log"
        self._process: subprocess.Popen[str] | None = None

    def run(self, properties: Mapping[str, str], calls: Path) -> dict[str, Any]:
        """Run one job with what the environment has more than when this was made."""
        more = {name: value for name, value in os.environ.items() if self._environment.get(name) != value}
        more.pop("PYTEST_CURRENT_TEST", None)
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps({"properties": dict(properties), "calls": str(calls), "environment": more}), file=process.stdin, flush=True)
        limit = threading.Timer(_SECONDS, process.kill)
        limit.start()
        told = next((line for line in process.stdout if line.startswith("{")), None)
        limit.cancel()
        if told is None:
            self.end()
        assert told is not None, self._log.read_text(errors="replace")[-5000:]
        return json.loads(told)

    def end(self) -> None:
        """End the process, if one was started; it sees the end of its input."""
        if self._process is not None:
            with self._process as process:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(60)
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.services.kms.spark_job", str(self._folder / "warehouse")],
                    env={**self._environment, **spark_environment(WARM)},
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                )  # fmt: skip
        return self._process
