"""Storage, catalog and KMS fail at each step of a statement: it raises a clear error, and the table is as it was; or it has succeeded.

As ``tests/faults`` does with plain Python, whose steps of a commit are the same.
"""

from __future__ import annotations

import re

import pytest
from pyspark.errors import PySparkException

from icelock.maintenance import leftovers
from tests.crash.test_killed_writers import ids
from tests.faults.test_faults_at_each_step import ASKED, CLEAR, Fault, Kind, kinds
from tests.helpers.turns import todays
from tests.spark.stepped import COMMITTED, STATEMENTS, Stage

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("tasks_here")]


class FaultAt(Fault):
    """A fault at the first moment of a name: threads that plan may change the order."""

    def __init__(self, moment: str, kind: Kind = Kind.ERROR) -> None:
        super().__init__(-1, kind)
        self._moment = moment

    def __call__(self, moment: str, location: str) -> None:
        if moment == self._moment and moment not in self.moments:
            self._at = len(self.moments)
        super().__call__(moment, location)


# The steps of a commit are tried with a merge; with a new table what it does otherwise.
STEPS = {"merge": "^before |^after close ", "create table as": "^before (create data|create meta|wrap|SQL)|^after close meta"}


@pytest.mark.parametrize("name", STEPS)
def test_a_fault_at_each_step(spark, tmp_path, name):
    operation = STATEMENTS[name]
    stage = Stage(spark, tmp_path, operation)
    undisturbed = FaultAt("nowhere")
    assert stage.run(undisturbed) is None
    steps = dict.fromkeys(undisturbed.moments)
    assert {"before read manifest", "before create data", "before unwrap key", COMMITTED} <= {*steps}
    # An error, or half of a file with and without one; a third of them a day.
    cases = [(moment, kind) for moment in filter(re.compile(STEPS[name]).match, steps) for kind in kinds(moment)[-2:]]
    for moment, kind in todays(f"{name} in Spark", cases, 6):
        fault = FaultAt(moment, kind)
        error = stage.run(fault)
        where = f"{name}, {kind.value} {moment}: {error!r}"
        landed = COMMITTED in fault.moments
        assert error is None or isinstance(error, CLEAR), where
        assert not isinstance(error, PySparkException), where
        assert (error is None) == landed, where
        expected = operation.after if landed else operation.before
        catalog = stage.lake.catalog()
        asked = any(sql in one for sql in ASKED for one in fault.moments)
        if expected is None:
            assert not catalog.table_exists(operation.table), where
            assert asked or not any(name.startswith("db/new/") for name in stage.lake.files()), where
            continue
        table = catalog.load_table(operation.table)
        assert ids(table) == expected, where
        if not asked:
            assert [file.path for file in leftovers(table).files] == [], where
    # When the fault is over, the session goes on working.
    assert stage.run(FaultAt("before close metadata.json")) is not None
    operation.act(None)
    assert ids(stage.lake.catalog().load_table(operation.table)) == operation.after
