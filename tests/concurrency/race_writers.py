"""Writers in processes of their own: a program that takes a race as JSON, one a line, and prints how many of its writers failed.

It loads what they need once and then forks, before any thread is there: one import instead of one for each writer, of 6 s of CPU.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import icelock.catalog.hive.catalog
import icelock.catalog.rest.catalog
import icelock.catalog.sql.catalog  # noqa: F401
from tests.concurrency.race_jobs import JOBS


def race(wanted: dict[str, Any]) -> int:
    """Run ``writers`` processes; each calls a job with its number, the catalog's properties and the table's name."""
    job = JOBS[wanted["job"]]
    children = []
    for number in range(wanted["writers"]):
        child = os.fork()
        if child == 0:
            try:
                job(wanted, number)
            except BaseException:  # noqa: BLE001 - the process ends here either way
                sys.excepthook(*sys.exc_info())
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    for line in sys.stdin:
        print(race(json.loads(line)), flush=True)
