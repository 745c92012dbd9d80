"""The catalogs of a classic session, as Spark's statements know them: ``spark.sql.catalog.<name>`` is ``icelock.SparkCatalog``.

1 Spark's settings name that class for each catalog. 2 it asks this process (``PythonProcess.java``), where an answer is found by what is
asked. 3 an optimizer rule puts the plan of ``icelock.spark.read`` in the place of each relation (``TableRelations.java``), a planner
strategy gives the rows of writes to this process (``TableCommands.java``).

Not here: tables (``tables``), their definitions (``definitions``), changes of rows (``changes``).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from icelock.catalog.configuration import known_catalogs, read_configuration
from icelock.spark.driver.interrupts import watch
from icelock.spark.jvm.callbacks import callbacks_of
from icelock.spark.jvm.classes import load_native
from icelock.spark.jvm.rules import first_line, has_rule
from icelock.spark.settings.session import CATALOG, SESSION, SPARK_CATALOG, is_classic, original, remember
from icelock.spark.statements import changes, definitions, tables
from icelock.spark.statements.asked import Answer, Results, StatementSession
from icelock.spark.statements.procedures import registry

_SPARKS: Final = frozenset({"builtin", "default", "global_temp", "session", "spark_catalog", "system"})
_CONNECTED: Final = "_icelock_statements"
_RULE: Final = "icelock.TableRelations"
_ANSWERS: Final[Mapping[str, Answer]] = {
    **tables.ANSWERS,
    **definitions.ANSWERS,
    **changes.ANSWERS,
    **registry.ANSWERS,
}
_logger = logging.getLogger(__name__)


def connect_catalogs(spark: SparkSession, names: Iterable[str]) -> None:
    """Let a classic session's statements find catalogs, with those of PyIceberg's configuration.

    One that the session has under another class is left alone, and so are names that mean something else to Spark: with a catalog
    ``default`` Spark would no longer find the tables of its own database of that name.
    """
    if not is_classic(spark):
        return
    try:
        session = _connected(spark)
        known = {*names, *known_catalogs(read_configuration())}
    except Exception as e:  # noqa: BLE001 - whatever a platform's Spark says
        _logger.warning("in this session SQL does not know icelock's tables: %s", first_line(e))
        return
    for name in sorted(known):
        setting = f"{CATALOG}{name}"
        if name in _SPARKS or "." in name:
            _logger.info("SQL does not know catalog %s, whose name is Spark's own: give it another one", name)
            continue
        if spark.conf.get(setting, SPARK_CATALOG) != SPARK_CATALOG:
            _logger.warning("the session has a catalog %s of class %s, so SQL uses that one", name, spark.conf.get(setting))
            continue
        spark.conf.set(setting, SPARK_CATALOG)
        spark.conf.set(f"{setting}.{SESSION}", session)


def _connected(spark: SparkSession) -> str:
    """Return the id of a session that the JVM can ask; it is connected once."""
    found: tuple[str, StatementSession] | None = getattr(spark, _CONNECTED, None)
    if found is not None:
        return found[0]
    classes = load_native(spark)
    session: Any = spark._jsparkSession
    if not has_rule(session, _RULE):
        session.extensions().injectOptimizerRule(classes.TableRelations.builder())
        session.extensions().injectPlannerStrategy(classes.TableCommands.builder())
    number, statements = uuid.uuid4().hex, StatementSession(spark)
    classes.SparkCatalog.serve(number, callbacks_of(spark).statement_target(statements.function(_ANSWERS)))
    setattr(spark, _CONNECTED, (number, statements))
    remember(spark, number)
    watch(spark)
    return number


def results_of(spark: SparkSession) -> Results:
    """Return what keeps the results of a session's statements."""
    connected = original(spark)
    _connected(connected)
    statements: StatementSession = getattr(connected, _CONNECTED)[1]
    return statements.results
