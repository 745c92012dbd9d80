"""A driver of its own that copies a table by a stream: ``python -m tests.spark.stream_driver``.

It kills itself and its JVM at a step, or hangs there until it is told to go on; or it goes on until it is killed. It says when it begins.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import icelock.spark
from icelock.catalog.base import EncryptedCatalog
from icelock.spark.driver import jobs_here
from icelock.spark.statements import streams, tables
from tests.helpers.spark import session

STEPS = ("stream opened", "offsets asked for", "files planned", "batch begun", "files written", "commit begun", "batch committed")
HANGS = "hangs: "  # before a step: there the driver and its JVM stop
# In the place of a step: the stream does not end; or it takes all that is there at once.
ENDLESS = "endless"
REST = "rest"
BEGINS = "the stream begins"
# Or Spark refuses a checkpoint in which a driver that was killed has left the temporary file of the first offsets.
NOT_EMPTY = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"


def killed(step: str, wanted: str, act: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """Return a function that does the same, and ends or stops all of this process group when it is its turn, once."""
    turn = {step: signal.SIGKILL, HANGS + step: signal.SIGSTOP}
    sent = [turn[wanted]] if wanted in turn else []

    def do(*arguments: Any, **named: Any) -> Any:
        if sent and not after:
            os.killpg(0, sent.pop())
        done = act(*arguments, **named)
        if sent:
            os.killpg(0, sent.pop())
        return done

    return do


def main(properties: str, checkpoint: str, step: str) -> None:
    """Copy what table ``t`` has, one file a batch or all, to table ``copy``; end at a step, if one is named."""
    opened: Any = streams._OpenStream
    opened._latest = killed("offsets asked for", step, opened._latest, after=True)
    opened._batch = killed("files planned", step, opened._batch, after=True)
    write = killed("batch begun", step, streams.write_batch, after=False)
    tables.write_batch = killed("batch committed", step, write, after=True)  # type: ignore[attr-defined]
    tables.open_stream = killed("stream opened", step, streams.open_stream, after=True)  # type: ignore[attr-defined]
    jobs_here.end_job = killed("files written", step, jobs_here.end_job, after=False)  # type: ignore[attr-defined]
    EncryptedCatalog.commit_table = killed("commit begun", step, EncryptedCatalog.commit_table, after=False)  # type: ignore[method-assign]
    spark = session({"spark.master": "local[1]", NOT_EMPTY: "false"})
    icelock.spark.register(spark, {"test": json.loads(properties)})
    limits = {} if step == REST else {"streaming-max-files-per-micro-batch": "1"}
    rows = spark.readStream.options(**limits).table("test.db.t")
    trigger: dict[str, Any] = {"processingTime": "0 seconds"} if step == ENDLESS else {"availableNow": True}
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(**trigger)
    print(BEGINS, flush=True)
    writer.toTable("test.db.copy").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
