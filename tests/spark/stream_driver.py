"""A driver of its own that copies a table by a stream, and kills itself and its JVM at a step: ``python -m tests.spark.stream_driver``."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import icelock.spark
from icelock.spark.statements import streams, tables
from tests.helpers.spark import session

STEPS = ("offsets asked for", "files planned", "batch begun", "batch committed")


def killed(step: str, wanted: str, act: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """Return a function that does the same, and ends all of this process group when it is its turn."""

    def do(*arguments: Any) -> Any:
        if step == wanted and not after:
            os.killpg(0, signal.SIGKILL)
        done = act(*arguments)
        if step == wanted:
            os.killpg(0, signal.SIGKILL)
        return done

    return do


def main(properties: str, checkpoint: str, step: str) -> None:
    """Copy what table ``t`` has, one file a batch, to table ``copy``; end at the second time of a step, if one is named."""
    opened: Any = streams._OpenStream
    opened._latest = killed("offsets asked for", step, opened._latest, after=True)
    opened._batch = killed("files planned", step, opened._batch, after=True)
    write = killed("batch begun", step, streams.write_batch, after=False)
    tables.write_batch = killed("batch committed", step, write, after=True)  # type: ignore[attr-defined]
    spark = session({"spark.master": "local[1]"})
    icelock.spark.register(spark, {"test": json.loads(properties)})
    rows = spark.readStream.option("streaming-max-files-per-micro-batch", "1").table("test.db.t")
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.toTable("test.db.copy").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
