"""What a classic session's JVM is asked for.

Safe filter push-down: an optimizer rule, compiled by the Janino that Spark has among its jars. Without it Spark 4.1 to 4.3 hands the
pushed filters of one query to the next one on the same DataFrame (see ``FreshScans.java``), so filters are pushed only where the rule is in
place. A Connect session has no JVM at hand: no push-down there, and equal results.

Not here: which filters are pushed (``filters``).
"""

from __future__ import annotations

import logging
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS: Final = "icelock.FreshScans"
_logger = logging.getLogger(__name__)


def install_fresh_scans(spark: SparkSession, name: str) -> bool:
    """Give each scan of the format a plan of its own; return whether that could be done. Calling it again changes nothing."""
    session: Any = getattr(spark, "_jsparkSession", None)
    jvm: Any = getattr(spark, "_jvm", None)
    if session is None or jvm is None:
        return False
    try:
        if has_rule(session, _CLASS):
            return True
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(files("icelock.spark").joinpath("FreshScans.java").read_text(encoding="utf-8"))
        rule = compiler.getClassLoader().loadClass(_CLASS)
        method = rule.getMethod("builder", _classes(spark, jvm.java.lang.Class.forName("java.lang.String")))
        session.extensions().injectOptimizerRule(method.invoke(None, _objects(spark, name)))
    except Exception as e:  # noqa: BLE001 - a platform that hides its JVM: then filters are not pushed
        _logger.debug("filters are not pushed to icelock tables in this session: %s", str(e).partition("\n\tat")[0])
        return False
    return True


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
    except Exception as e:  # noqa: BLE001 - a platform that hides its JVM
        _logger.debug("the session could not be made that of this thread: %s", str(e).partition("\n\tat")[0])


def _classes(spark: SparkSession, *values: Any) -> Any:
    return _array(spark, "java.lang.Class", values)


def _objects(spark: SparkSession, *values: Any) -> Any:
    return _array(spark, "java.lang.Object", values)


def _array(spark: SparkSession, kind: str, values: tuple[Any, ...]) -> Any:
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark has no other way to its JVM
    array = gateway.new_array(getattr(gateway.jvm, kind), len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array
