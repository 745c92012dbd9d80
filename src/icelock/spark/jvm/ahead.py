"""Starts a session's JVM on what its first statement needs, while this process imports what answers statements.

Each takes half a second and more, and they are two processes: side by side, the first result of a session is there sooner. What the JVM
does ahead it would do anyway: the session's state, and Spark's parser, analyzer and planner, which a plan loads that is not run: no job,
and nothing that listeners hear of. Nobody waits for it: a statement finds it done, being done, or does it.

Not here: icelock's classes (``spark.jvm.classes``), statements (``spark.statements``).
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from pyspark.sql import SparkSession

from icelock.spark.jvm.classes import are_loaded
from icelock.spark.jvm.rules import first_line

# Most of what plans statements takes part.
_PLANNED: Final = "SELECT count(*), sum(id) FROM range(1) WHERE id > 0"
_logger = logging.getLogger(__name__)


def begin(spark: SparkSession) -> None:
    """Start a classic session's JVM, if its SparkContext has not got icelock's classes yet, as another session was registered before."""
    if not are_loaded(spark):
        threading.Thread(target=plan, args=(spark,), name="icelock-ahead", daemon=True).start()


def plan(spark: SparkSession) -> None:
    """Let Spark plan a query that is not run."""
    session: Any = spark._jsparkSession
    try:
        session.sql(_PLANNED).queryExecution().executedPlan()
    except Exception as e:
        _logger.debug("Spark's planner is loaded when a statement needs it: %s", first_line(e))
