"""The process that forks the writers of all tests here (``race_writers``), started with the first of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.helpers.line_process import LineProcess
from tests.helpers.places import python_path


class Processes:
    """Runs one race after another; ``end`` it."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": python_path()}
        self._process = LineProcess(["tests.concurrency.race_writers"], environment, folder / "errors.log")

    def run(self, wanted: dict[str, Any]) -> None:
        """Run what ``race_writers`` takes.

        Raises:
            AssertionError: a writer failed, said something on standard error, or did not end in time.
        """
        failed, told = self._process.ask(wanted), self._process.told()
        if (failed, told) != ("0\n", ""):
            self.end()
            raise AssertionError(f"{(failed or 'no answer about').strip()} writers failed: {told[-3000:]}")

    def end(self) -> None:
        """End the process."""
        self._process.end()
