"""Over Spark Connect, an error of a statement on a catalog of icelock's says what to do instead.

A Connect server's JVM has no Python process that answers for icelock's catalogs (docs/adr/0018-statements.md), so Spark takes
``lake.shop.sales`` for a table of its own: ``REQUIRES_SINGLE_PART_NAMESPACE``, which says nothing of the reason. The client converts the
server's errors in one function, ``pyspark.sql.connect.client.core.convert_exception``. ``explain_statements`` wraps it: the error stays
what it is, with a sentence more. Of a table or namespace that is not there the server tells by the traceback of a Python process: it comes
as the error that it is in a classic session, with the name that may be meant.

Not here: classic sessions, which have statements (``statements``), and their errors (``jvm.errors``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

_CONVERT: Final = "convert_exception"
_MARK: Final = "_icelock"
_HINT: Final = (
    "icelock: SQL statements, spark.table and df.writeTo know encrypted tables by name in a classic session, and this one is of Spark "
    "Connect. CREATE TEMPORARY VIEW name USING icelock OPTIONS (path 'catalog.namespace.table') gives SQL a name to query and to insert "
    "into; icelock.spark.read, write_to, delete and upsert do the rest. What changed between snapshots (changes, create_changelog_view) is "
    "read by spark.read.format('icelock').load('catalog.namespace.table.changes'), whose options are the procedure's arguments"
)
# What Spark says of a name of three parts, and of CALL, whose catalog it does not have.
_OF_UNKNOWN_CATALOGS: Final = frozenset({"REQUIRES_SINGLE_PART_NAMESPACE", "MISSING_CATALOG_ABILITY.PROCEDURES"})
_known: set[str] = set()


def explain_statements(catalogs: Iterable[str]) -> None:
    """Let errors of a Connect client that name one of these catalogs, or any catalog that Spark does not know, say what to do instead."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
    from pyspark.errors import AnalysisException
    from pyspark.sql.connect.client import core

    from icelock.spark.jvm.errors import in_traceback

    _known.update(catalogs)
    original: Callable[..., Any] | None = getattr(core, _CONVERT, None)
    if original is None or hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def convert_exception(*arguments: Any, **named: Any) -> Any:
        error = original(*arguments, **named)
        text = str(getattr(error, "_message", ""))
        found = in_traceback(text)
        if isinstance(found, NoSuchTableError | NoSuchNamespaceError):
            return found
        if isinstance(error, AnalysisException) and (error.getCondition() in _OF_UNKNOWN_CATALOGS or _names_a_catalog(text)):
            error._message = f"{text}\n\n{_HINT}"  # noqa: SLF001 - it is the text, and has no setter
        return error

    setattr(convert_exception, _MARK, True)
    setattr(core, _CONVERT, convert_exception)


def _names_a_catalog(text: str) -> bool:
    """Whether Spark's text takes a catalog's name for that of a schema: ``lake.shop.sales``, or `` `spark_catalog`.`lake` ``."""
    return any(re.search(rf"(?:^|[\s:])`?{name}`?\.|`spark_catalog`\.`{name}`", text) for name in map(re.escape, _known))
