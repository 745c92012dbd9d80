"""A process that imported everything once; each case is a fork of it, which kills itself at one of its steps.

Asked on standard input, one JSON object a line: ``operation`` (or ``table``, to append to), ``properties`` and ``at``, the number of the
step (from 0, of those that match ``only``) at which the child sends SIGKILL to itself; it answers with the child's wait status and the
steps that it went through.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from typing import Any, Self

from tests.helpers.places import ROOT, python_path

# What an operation imports late; none of them starts a thread.
PRELOADED = (
    *("tests.crash.operations", "tests.crash.steps", "icelock.catalog.sql.catalog", "pyarrow.parquet.encryption", "pyiceberg.serializers"),
    *("pyiceberg.avro.decoder_fast", "sqlalchemy.dialects.sqlite"),
)


class Server:
    """The process, as its user sees it; a context manager."""

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": python_path()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=30)

    def run(self, operation: str, properties: dict[str, str], at: int, *, table: str = "", only: str = "") -> tuple[int, list[str]]:
        """Return the child's exit code (negative: signal) and its steps."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"operation": operation, "properties": properties, "at": at, "table": table, "only": only}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return os.waitstatus_to_exitcode(answer["status"]), answer["steps"]


def serve() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        assert threading.active_count() == 1, "a fork takes one thread along"
        print(json.dumps(_forked(json.loads(line))), flush=True)


def _forked(request: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            _child(request, writing)
        except BaseException:  # noqa: BLE001 - the exit code tells
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        steps = stream.read().splitlines()
    return {"status": os.waitpid(pid, 0)[1], "steps": steps}


def _child(request: dict[str, Any], writing: int) -> None:
    import icelock  # noqa: PLC0415
    from tests.crash import operations, steps  # noqa: PLC0415
    from tests.lakes.sqlite import people  # noqa: PLC0415

    lock, count = threading.Lock(), iter(range(1_000_000))

    def hook(name: str, location: str) -> None:
        del location
        if " read " in name or not re.search(request["only"], name):
            return  # reading changes nothing, wherever it ends
        with lock:
            os.write(writing, f"{name}\n".encode())
            if next(count) == request["at"]:
                os.kill(os.getpid(), signal.SIGKILL)

    catalog = icelock.load_catalog("test", **request["properties"])
    if request["table"]:
        table = steps.step_through_metastore(catalog).load_table(request["table"])
        with steps.watch(hook):
            table.append(people(100, 2))
        return
    steps.step_through_sql(catalog)
    with steps.watch(hook):
        operations.OPERATIONS[request["operation"]].act(catalog)


if __name__ == "__main__":
    serve()
