"""Writers in processes of their own: ``python -m tests.concurrency.race_writers '<json>'``; all must come to a good end.

The program loads what it needs once and then forks, before any thread is there: one import instead of one for each writer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main(wanted: dict[str, Any]) -> int:
    """Run ``writers`` processes; each calls a job with its number, the catalog's properties and the table's name."""
    import icelock.catalog.hive.catalog  # noqa: PLC0415
    import icelock.catalog.rest.catalog  # noqa: PLC0415
    import icelock.catalog.sql.catalog  # noqa: F401, PLC0415
    from tests.concurrency.race_jobs import JOBS  # noqa: PLC0415

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
    sys.exit(main(json.loads(sys.argv[1])))
