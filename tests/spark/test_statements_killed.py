"""A statement whose process ends at any of its steps: the table is as before or as after, and what is left is found.

The end of a process is played: from a step on, nothing reaches storage, catalog or KMS any more. Processes that are killed are in
``tests/crash``, which has the checks too.
"""

from __future__ import annotations

import re

import pytest

from icelock.maintenance import leftovers
from tests.crash.test_killed_writers import check, ids
from tests.helpers.turns import todays
from tests.spark.stepped import COMMITTED, STATEMENTS, Stage

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("tasks_here")]

STEPS = {
    "merge": "^halfway |^after close |^after SQL ",
    # Where the others have what a merge has not, and on both sides of the commit.
    "": "^after close (data|vectors|metadata.json)|^after SQL COMMIT",
}


class Death:
    """A hook after which nothing goes on; ``moments`` are those that came."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._dead = False
        self.moments: list[str] = []

    def __call__(self, moment: str, location: str) -> None:
        del location
        if self._dead:
            raise OSError("this process has ended")
        self.moments.append(moment)
        if moment == self._at:
            self._dead = True
            raise OSError("this process has ended")


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_that_ends_at_any_step(spark, tmp_path, name):
    """At one of three steps a day, and always at the two beside the commit."""
    operation = STATEMENTS[name]
    stage = Stage(spark, tmp_path, operation)
    whole = Death("nowhere")
    assert stage.run(whole) is None
    check(stage.lake, operation, landed=True, where=name)
    steps = [moment for moment in dict.fromkeys(whole.moments) if re.match(STEPS.get(name, STEPS[""]), moment)]
    assert {"after close metadata.json", COMMITTED} <= {*steps}
    assert ("after close vectors" in steps) == ("merge-on-read" in {*operation.properties.values()})
    beside = [steps.index(step) for step in ("after close metadata.json", COMMITTED)]
    for step in todays(f"{name}, ended", steps, 3, always=beside):
        death = Death(step)
        error = stage.run(death)
        where = f"{name}, ended {step}: {error!r}"
        assert error is not None, where
        check(stage.lake, operation, landed=COMMITTED in death.moments, where=where)


def test_the_files_of_a_statement_that_ended_are_found_and_it_runs_again(spark, sql, tmp_path):
    operation = STATEMENTS["merge"]
    stage = Stage(spark, tmp_path, operation)
    assert stage.run(Death("after close metadata.json")) is not None
    left = {file.path for file in leftovers(stage.lake.catalog().load_table("db.t")).files}
    kinds = [path.rpartition("/")[2] for path in left]
    # The new row and the two files without their changed rows, two manifests of them, a list and the table's metadata.
    assert sum(name.endswith(".parquet") for name in kinds) >= 2
    assert sum(name.startswith("snap-") for name in kinds) == 1
    assert sum(name.endswith(".metadata.json") for name in kinds) == 1
    assert sql("call test.system.remove_orphan_files(table => 'db.t', dry_run => true)") == []  # they are young
    operation.act(None)
    table = stage.lake.catalog().load_table("db.t")
    assert ids(table) == operation.after
    assert {file.path for file in leftovers(table).files} == left
