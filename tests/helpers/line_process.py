"""A program that works for many tests: it takes a question as JSON, one a line, and answers with a line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_SECONDS = 300.0


class LineProcess:
    """Started with the first question, and after it ended with the next one; ``end`` it.

    Args:
        module: what is run, with its arguments.
        environment: all that it gets.
        log: its standard error; written anew by each start.
    """

    def __init__(self, module: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._module = module
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: Mapping[str, Any], *, is_answer: Callable[[str], bool] = bool) -> str | None:
        """Return the next line that is an answer; None if it ended, or was killed as it took 5 minutes."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(_SECONDS, process.kill)
        limit.start()
        print(json.dumps(question), file=process.stdin, flush=True)
        answer = next(filter(is_answer, process.stdout), None)
        limit.cancel()
        return answer

    def told(self) -> str:
        """Return what it wrote to standard error."""
        return self._log.read_text(errors="replace")

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
                [sys.executable, "-m", *self._module], env=dict(self._environment),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
