"""Runs a script with a Spark Connect server of its own, in a process of its own, and returns what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers.spark import WARM, spark_environment


def found_by(script: str, *arguments: str, folder: Path) -> Any:
    """Return what a script prints after ``FOUND``, as JSON; ``folder`` is where it runs. Its standard error is in the failure."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYTEST"))},
        **spark_environment(WARM),
    }
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        env=environment,
        cwd=folder,
        check=False,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert answers, done.stderr[-5000:]
    return json.loads(answers[0].removeprefix("FOUND "))
