"""PySpark's daemon with a watch on it: what executors' Python processes reach for, one line each, in the file ``ICELOCK_WATCH``.

Spark takes it by ``spark.python.daemon.module``, which is for tasks only: the driver's planning keeps PySpark's own. Lines:

    executor PID   the process that started this daemon
    worker PID     a worker was forked
    reached WHAT   code of catalogs or key services was imported, or a database, a network address or a keyring was opened
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

WATCH = os.environ["ICELOCK_WATCH"]
FORBIDDEN = ("icelock.catalog.load", "icelock.kms", "boto3", "hive_metastore", "psycopg", "requests", "sqlalchemy")


def tell(line: str) -> None:
    """Write one line; several processes do."""
    file = os.open(WATCH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def watch(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook."""
    if (event == "import" and str(arguments[0]).startswith(FORBIDDEN)) or event == "sqlite3.connect":
        tell(f"reached {event} {arguments[0]!r}")
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        tell(f"reached {event} {arguments[1]!r}")
    elif event == "open" and Path(str(arguments[0])).name.startswith("keyring."):
        tell(f"reached {event} {arguments[0]!r}")


tell(f"executor {os.getppid()}")
sys.addaudithook(watch)
os.register_at_fork(after_in_child=lambda: tell(f"worker {os.getpid()}"))

if __name__ == "__main__":
    from pyspark import daemon

    daemon.manager()
