"""Statements that are interrupted: what they do, and a session whose storage, catalog and KMS have steps (``tests.crash.steps``).

All steps are in this process, those of tasks too: the statements have few rows, which are collected here, as ``write_here`` does of those
that Spark knows to be few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final
from unittest.mock import patch

from pyspark.sql import SparkSession

import icelock.spark
from icelock.catalog.commit import outcome
from icelock.spark.driver import jobs_here, unreached
from icelock.spark.settings import catalogs
from tests.crash.operations import BEFORE, Operation, Restored
from tests.crash.steps import step_through_sql, stepping, watch
from tests.lakes.sqlite import KEY

COMMITTED: Final = "after SQL COMMIT"
MERGE: Final = """
    merge into test.db.t t using (select * from values (3l, 'x'), (50l, 'y') as v(id, name)) s on t.id = s.id
    when matched then update set id = t.id + 200 when not matched then insert (id, name) values (s.id, s.name)
    when not matched by source and t.id = 14 then delete
"""


@dataclass(frozen=True)
class Statement(Operation):
    """An operation that is a statement of the session in ``session``."""

    session: ClassVar[SparkSession]
    text: str = ""


def statement(text: str, after: tuple[int, ...], **more: Any) -> Statement:
    """Return what a statement does to table ``t``, whose ids are ``BEFORE``, 0 to 9 in one file and the others in a second one."""

    def act(_: object) -> None:
        Statement.session.sql(text).collect()

    return Statement(act, after, text=text, **more)


def _without(*gone: int) -> tuple[int, ...]:
    return tuple(number for number in BEFORE if number not in gone)


UPDATE: Final = "update test.db.t set id = id + 100 where id in (3, 14)"
STATEMENTS: Final = {
    "update, copy-on-write": statement(UPDATE, (*_without(3, 14), 103, 114)),
    "update, merge-on-read": statement(UPDATE, (*_without(3, 14), 103, 114), properties={"write.update.mode": "merge-on-read"}),
    "merge": statement(MERGE, (*_without(3, 14), 50, 203)),
    "delete": statement("delete from test.db.t where id % 7 = 3", _without(3, 10, 17), properties={"write.delete.mode": "merge-on-read"}),
    "compaction": statement("call test.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))", BEFORE),
    "create table as": statement(
        f"create table test.db.new {KEY} as select * from test.db.t where id < 2",
        (0, 1),
        before=None,
        table="db.new",
    ),
}


@contextmanager
def in_this_process(spark: SparkSession) -> Iterator[None]:
    """Let statements of the session do all in this process, and have steps in the catalogs that they open."""
    load = catalogs.load_configured
    Statement.session = spark
    with (
        patch.object(jobs_here, "is_small", lambda _: True),
        patch.object(jobs_here, "are_few_changes", lambda *_: True),
        patch.object(unreached, "_SWEEPS", (0.0,)),  # no task writes any more
        patch.object(outcome, "waits", lambda _: [0.0]),  # nor is any request on its way
        patch.object(catalogs, "load_configured", lambda *given: step_through_sql(load(*given))),
    ):
        yield


class Stage:
    """A lake that is put back as it was before each run."""

    def __init__(self, spark: SparkSession, folder: Path, operation: Operation) -> None:
        self._spark = spark
        self._operation = operation
        self._restored = Restored(folder, operation)
        self.lake = self._restored.lake

    def run(self, hook: Callable[[str, str], None]) -> Exception | None:
        """Run the statement on the lake as it was; return what it raised."""
        icelock.spark.register(self._spark, {"test": stepping(self._restored.again().properties())})
        with watch(hook):
            try:
                self._operation.act(None)
            except Exception as e:  # noqa: BLE001 - looked at by the caller
                return e
        return None
