"""A request of Spark's catalog class to this process, and the session that it comes from."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from icelock.catalog.base import EncryptedCatalog
from icelock.spark.driver.interrupts import begin
from icelock.spark.jvm.callbacks import callbacks_of
from icelock.spark.read_table import session_catalog
from icelock.spark.settings.options import TableName
from icelock.spark.settings.session import settings_of
from icelock.table.change_result import ChangeResult
from icelock.table.epochs import Epoch

_STATEMENT: Final = "icelock.statement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked: fields of ``PythonProcess.request``, and an object of the JVM that goes with them, if any."""

    fields: Mapping[str, Any]
    given: Any = None

    def __getitem__(self, name: str) -> Any:
        """Return a field."""
        return self.fields[name]

    def get(self, name: str) -> Any:
        """Return a field, or None."""
        return self.fields.get(name)

    @property
    def table(self) -> TableName:
        """The table that is asked for."""
        return TableName(catalog=self.fields["catalog"], identifier=tuple(self.fields["table"]))

    @property
    def namespace(self) -> tuple[str, ...]:
        """The namespace that is asked for."""
        return tuple(self.fields["namespace"])


Answer = Callable[["StatementSession", Asked], Any]


class Results:
    """What statements of this process did, for those who ask for it: Spark returns nothing of a command."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._wanted: dict[str, ChangeResult] = {}
        self._epochs: dict[str, Epoch | None] = {}

    def of(self, run: Callable[[], object], epoch: Epoch | None = None) -> ChangeResult:
        """Run a statement that changes a table, for a batch of a stream if that is given; return what it did."""
        number = uuid.uuid4().hex
        before = self._context.getLocalProperty(_STATEMENT)
        self._wanted[number] = ChangeResult()
        self._epochs[number] = epoch
        # It goes with the statement to the thread that answers, as Spark's job group does.
        self._context.setLocalProperty(_STATEMENT, number)
        try:
            run()
        finally:
            self._context.setLocalProperty(_STATEMENT, before)  # type: ignore[arg-type]  # None takes it away
            result = self._wanted.pop(number)
            del self._epochs[number]
        return result

    @property
    def epoch(self) -> Epoch | None:
        """The batch of a stream that the statement of this thread is for."""
        return self._epochs.get(str(self._context.getLocalProperty(_STATEMENT)))

    def put(self, result: ChangeResult) -> None:
        """Keep what the statement of this thread did, if anybody asked for it."""
        number = self._context.getLocalProperty(_STATEMENT)
        if number in self._wanted:
            self._wanted[number] = result


class StatementSession:
    """A classic session, as the answers need it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.results = Results(spark)
        # Each name on the way to a method is a question to the JVM.
        process: Any = spark._jvm.icelock.PythonProcess  # type: ignore[union-attr]  # a classic session has a JVM
        self._work_for, self._take, self._give = process.workFor, process.take, process.give
        self._callbacks = callbacks_of(spark)

    def catalog(self, name: str) -> EncryptedCatalog:
        """Return a catalog of the session, open."""
        return session_catalog(self.spark, settings_of(self.spark), TableName(catalog=name, identifier=()))

    def rows(self, given: Any) -> DataFrame:
        """Return a DataFrame that the JVM gave."""
        return DataFrame(given, self.spark)

    def give(self, rows: DataFrame) -> int:
        """Hand a DataFrame to the JVM; return its number there."""
        return int(self._give(rows._jdf))

    def target(self, answers: Mapping[str, Answer]) -> int:
        """Return the number of a function of this process that the JVM can ask these things."""
        return self._callbacks.statement_number(self.function(answers))

    def function(self, answers: Mapping[str, Answer]) -> Callable[[bytes], bytes]:
        """Return a function from requests to answers, both JSON."""

        def answer(question: bytes) -> bytes:
            begin()
            fields: dict[str, Any] = json.loads(question)
            self._work_for(fields["caller"], self.spark._jsparkSession)
            given = None if fields["object"] is None else self._take(fields["object"])
            return json.dumps(answers[fields["do"]](self, Asked(fields=fields, given=given))).encode()

        return answer
