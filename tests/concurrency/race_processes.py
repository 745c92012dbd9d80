"""The process that forks the writers of all tests here (``race_writers``), started with the first of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.helpers.places import python_path

_SECONDS = 300.0


class Processes:
    """Runs one race after another; ``end`` it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "errors.log"
        self._process: subprocess.Popen[str] | None = None

    def run(self, wanted: dict[str, Any]) -> None:
        """Run what ``race_writers`` takes.

        Raises:
            AssertionError: a writer failed, said something on standard error, or did not end in time.
        """
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(_SECONDS, process.kill)
        limit.start()
        print(json.dumps(wanted), file=process.stdin, flush=True)
        failed = process.stdout.readline()
        limit.cancel()
        told = self._log.read_text(errors="replace")
        if (failed, told) != ("0\n", ""):
            self.end()
            raise AssertionError(f"{failed.strip() or 'no answer about'} writers failed: {told[-3000:]}")

    def end(self) -> None:
        """End the process, if one was started; it sees the end of its input."""
        if self._process is not None:
            with self._process as process:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(60)
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.concurrency.race_writers"], env={**os.environ, "PYTHONPATH": python_path()},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
