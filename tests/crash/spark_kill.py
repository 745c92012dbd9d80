"""A FileIO for a Spark job that is to be killed: planning, tasks and commit use it, each in a process of its own.

``ICELOCK_KILL`` is a JSON object: ``moments`` that a process has to go through in this order before it kills, ``whom`` (``driver``: the
process group of the driver's Python and JVM; ``worker``: the process itself), and ``once``, a file that is made by who kills.

Run as a program it is that job: with the catalog given as JSON it runs a statement, or appends ids 100-139 in four tasks to ``test.db.t``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tests.crash.steps import HOOKS, SteppingFileIO


class Killer:
    def __init__(self, wanted: str) -> None:
        plan = json.loads(wanted)
        self._moments: list[str] = plan["moments"]
        self._whom: str = plan["whom"]
        self._once = Path(plan["once"])

    def __call__(self, moment: str, location: str) -> None:
        del location
        if self._moments and moment == self._moments[0]:
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
    HOOKS.append(Killer(os.environ["ICELOCK_KILL"]))


def job(properties: dict[str, str], statement: str) -> None:
    import icelock.spark  # noqa: PLC0415 - workers import this module too
    from tests.helpers.spark import session  # noqa: PLC0415

    spark = session({"spark.master": "local[2,3]", "spark.sql.warehouse.dir": f"{os.environ['TMPDIR']}/warehouse"})
    icelock.spark.register(spark, {"test": properties})
    if statement:
        spark.sql(statement).collect()
    else:
        rows = spark.range(100, 140, 1, 4).selectExpr("id", "concat('n', id) name", "'x' city")
        rows.write.format("icelock").mode("append").save("test.db.t")
    spark.stop()


if __name__ == "__main__":
    os.environ["ICELOCK_DRIVER"] = str(os.getpid())
    job(json.loads(sys.argv[1]), sys.argv[2])
