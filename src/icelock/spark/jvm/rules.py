"""icelock's optimizer rules in a classic session, which ``register`` installs.

    FreshScans   without it Spark 4.1 to 4.3 hands the pushed filters of one query to the next query on the same DataFrame, so filters are
                 pushed only where this rule is in place
    OwnRows      tells an overwrite which versions of tables its rows come from

A Connect session has no JVM at hand: filters are not pushed there, with equal results, and the versions come from the client's plan.

Not here: which filters are pushed (``spark.columns.filters``), versions of tables (``spark.sealed.seen``).
"""

from __future__ import annotations

import logging
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from icelock.spark.jvm.classes import load_native, load_rules
from icelock.spark.settings.session import is_classic

_OWN_ROWS: Final = "_icelock_own_rows"
_ACTIVATE: Final = "_icelock_activate"
_READ_AGAIN: Final = "_icelock_read_again"
_logger = logging.getLogger(__name__)


def install_fresh_scans(spark: SparkSession, name: str) -> bool:
    """Give each scan of the format a plan of its own; return whether that was possible. Calling it again changes nothing."""
    if not is_classic(spark):
        return False
    try:
        _install(spark, "FreshScans", name)
    except Exception as e:
        _logger.debug("filters are not pushed to icelock tables in this session: %s", first_line(e))
        return False
    return True


def install_own_rows(spark: SparkSession, name: str) -> None:
    """Tell overwrites of the format which versions of tables their rows come from (``seen``). Calling it again changes nothing."""
    if not is_classic(spark):
        return
    try:
        setattr(spark, _OWN_ROWS, _install(spark, "OwnRows", name))
    except Exception as e:
        _logger.warning(
            "in this session icelock cannot tell whether the rows of an overwrite come from the table itself; "
            "say it by the option validate-from-snapshot-id (%s)",
            first_line(e),
        )


def seen_in_plan(rows: DataFrame, name: str) -> str:
    """Return the versions of tables that a DataFrame's plan reads, as ``OwnRows.seen`` writes them; nothing where that cannot be had."""
    rule: Any = getattr(rows.sparkSession, _OWN_ROWS, None)
    return "" if rule is None else str(rule.seen(rows._jdf.queryExecution().analyzed(), name))


def read_again(spark: SparkSession, table: str, table_uuid: str | None = None) -> None:
    """Let what a classic session has cached of a table be read again; a table has other names, of the same uuid."""
    try:
        known: Any = getattr(spark, _READ_AGAIN, None)
        if known is None:
            known = load_native(spark).CachedTables.readAgain
            setattr(spark, _READ_AGAIN, known)
        known(spark._jsparkSession, table, table_uuid)
    except Exception as e:  # the table is changed, whatever a platform's Spark says
        _logger.warning("what is cached of table %s stays as it was; call spark.catalog.refreshTable (%s)", table, first_line(e))


def _install(spark: SparkSession, rule: str, name: str) -> Any:
    """Give a session one of our rules, if it does not have it; return the rule's class."""
    found = getattr(load_rules(spark), rule)
    session: Any = spark._jsparkSession
    if not has_rule(session, f"icelock.{rule}"):
        session.extensions().injectOptimizerRule(found.builder(name))
    return found


def has_rule(session: Any, name: str) -> bool:
    """Whether a session of the JVM has an optimizer rule of a class."""
    rules = session.extensions().buildOptimizerRules(session)
    return any(rules.apply(index).getClass().getName() == name for index in range(rules.size()))


def activate(spark: SparkSession) -> None:
    """Make a classic session the active one of this thread: Spark 4.1 to 4.3 looks for data sources only there."""
    if not is_classic(spark):
        return
    jvm: Any = spark._jvm
    try:
        known: Any = getattr(spark, _ACTIVATE, None)
        if known is None:  # each name on the way there is a question to the JVM
            known = jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession
            setattr(spark, _ACTIVATE, known)
        known(spark._jsparkSession)
    except Exception as e:
        _logger.debug("the session could not be made the active one of this thread: %s", first_line(e))


def first_line(error: Exception) -> str:
    """Return an error of the JVM without its stack trace."""
    return str(error).partition("\n\tat")[0]
