"""What a classic session's JVM is asked for.

Safe filter push-down: an optimizer rule, compiled by the Janino that Spark has among its jars. Without it Spark 4.1 to 4.3 hands the
pushed filters of one query to the next one on the same DataFrame (see ``FreshScans.java``), so filters are pushed only where the rule is in
place. A Connect session has no JVM at hand: no push-down there, and equal results.

Not here: which filters are pushed (``spark.columns.filters``).
"""

from __future__ import annotations

import logging
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLASS: Final = "icelock.FreshScans"
_OWN_ROWS: Final = "icelock.OwnRows"
_COMPILED: Final = "_icelock_own_rows"
_logger = logging.getLogger(__name__)


def install_fresh_scans(spark: SparkSession, name: str) -> bool:
    """Give each scan of the format a plan of its own; return whether that could be done. Calling it again changes nothing."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None or getattr(spark, "_jvm", None) is None:
        return False
    try:
        if not has_rule(session, _CLASS):
            _inject(spark, _compiled(spark, _CLASS), name)
    except Exception as e:
        _logger.debug("filters are not pushed to icelock tables in this session: %s", str(e).partition("\n\tat")[0])
        return False
    return True


def install_own_rows(spark: SparkSession, name: str) -> None:
    """Let overwrites of the format know which versions of tables their rows come from (``seen``). Calling it again changes nothing."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None or getattr(spark, "_jvm", None) is None or getattr(spark, _COMPILED, None) is not None:
        return
    try:
        rule = _compiled(spark, _OWN_ROWS)
        if not has_rule(session, _OWN_ROWS):
            _inject(spark, rule, name)
        setattr(spark, _COMPILED, rule)
    except Exception as e:
        _logger.warning(
            "in this session icelock cannot tell whether the rows of an overwrite come from the table itself; "
            "say it by the option validate-from-snapshot-id (%s)",
            str(e).partition("\n\tat")[0],
        )


def seen_in_plan(rows: DataFrame, name: str) -> str:
    """Return what the scans in a DataFrame's plan say of what they read (``OwnRows.seen``); nothing where that cannot be had."""
    spark: Any = rows.sparkSession
    rule = getattr(spark, _COMPILED, None)
    if rule is None:
        return ""
    of = spark._jvm.java.lang.Class.forName
    kinds = (of("org.apache.spark.sql.catalyst.plans.logical.LogicalPlan", True, rule.getClassLoader()), of("java.lang.String"))  # noqa: FBT003
    plan = rows._jdf.queryExecution().analyzed()
    return str(rule.getMethod("seen", _classes(spark, *kinds)).invoke(None, _objects(spark, plan, name)))


def _compiled(spark: SparkSession, name: str) -> Any:
    """Return a class that is compiled from its source."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files("icelock.spark.jvm").joinpath("java", f"{name.rpartition('.')[2]}.java").read_text(encoding="utf-8"))
    return compiler.getClassLoader().loadClass(name)


def _inject(spark: SparkSession, rule: Any, name: str) -> None:
    session: Any = spark._jsparkSession
    text: Any = spark._jvm.java.lang.Class.forName("java.lang.String")  # type: ignore[union-attr]
    session.extensions().injectOptimizerRule(rule.getMethod("builder", _classes(spark, text)).invoke(None, _objects(spark, name)))


def has_rule(session: Any, name: str) -> bool:
    """Whether a session of the JVM has an optimizer rule of a class, whichever class loader that is of."""
    rules = session.extensions().buildOptimizerRules(session)
    return any(rules.apply(index).getClass().getName() == name for index in range(rules.size()))


def activate(spark: SparkSession) -> None:
    """Make a classic session the one of this thread: Spark 4.1 to 4.3 looks for a data source in the thread's session only."""
    session: Any = getattr(spark, "_jsparkSession", None)
    jvm: Any = getattr(spark, "_jvm", None)
    if session is None or jvm is None:
        return
    try:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    except Exception as e:
        _logger.debug("the session could not be made that of this thread: %s", str(e).partition("\n\tat")[0])


def _classes(spark: SparkSession, *values: Any) -> Any:
    return _array(spark, "java.lang.Class", values)


def _objects(spark: SparkSession, *values: Any) -> Any:
    return _array(spark, "java.lang.Object", values)


def _array(spark: SparkSession, kind: str, values: tuple[Any, ...]) -> Any:
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(getattr(gateway.jvm, kind), len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array
