"""A FileIO for a Spark job that is to be killed: planning, tasks and commit use it, each in a process of its own.

``ICELOCK_KILL`` is a JSON list of objects: ``moments`` that a process has to go through in this order before it kills, ``under``, the
folder of the files that count, ``whom`` (``driver``: the process group of the driver's Python and JVM; ``worker``: the process itself),
and ``once``, a file that is made by who kills.

Run as a program it is that job. It takes a JSON list of pairs, a catalog and a statement, and runs each; an empty statement appends
ids 100-139 in four tasks to ``test.db.t``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.crash.steps import HOOKS, SteppingFileIO


class Killer:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._moments: list[str] = plan["moments"]
        self._under: str = plan["under"]
        self._whom: str = plan["whom"]
        self._once = Path(plan["once"])

    def __call__(self, moment: str, location: str) -> None:
        if self._moments and moment == self._moments[0] and self._under in location:
            self._moments.pop(0)
            if not self._moments:
                self._kill()

    def _kill(self) -> None:
        try:
            self._once.touch(exist_ok=False)
        except FileExistsError:
            return
        if self._whom == "driver":
            os.killpg(int(os.environ["ICELOCK_DRIVER"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class KillingFileIO(SteppingFileIO):
    """Importing it is what counts."""


if "ICELOCK_KILL" in os.environ and not HOOKS:
    HOOKS.extend(map(Killer, json.loads(os.environ["ICELOCK_KILL"])))


def job(wanted: list[tuple[dict[str, str], str]]) -> None:
    import icelock.spark  # noqa: PLC0415 - workers import this module too
    from tests.helpers.spark import session  # noqa: PLC0415

    spark = session({"spark.master": "local[2,3]", "spark.sql.warehouse.dir": f"{os.environ['TMPDIR']}/warehouse"})
    for properties, statement in wanted:
        icelock.spark.register(spark, {"test": properties})
        if statement:
            spark.sql(statement).collect()
        else:
            # Spark does not know how few these are, or the driver itself would write them.
            rows = spark.range(100, 140, 1, 4).selectExpr("id", "concat('n', id) name", "explode(array('x')) city")
            rows.write.format("icelock").mode("append").save("test.db.t")
    spark.stop()


if __name__ == "__main__":
    os.environ["ICELOCK_DRIVER"] = str(os.getpid())
    job(json.loads(sys.argv[1]))
