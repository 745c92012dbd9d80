"""SQL on encrypted tables: ``sql`` runs a query that names them, ``attach`` makes a namespace's tables temporary views.

``sql`` lets Spark parse the query, calls ``read`` for each table ``catalog.namespace.table`` of a known catalog, and puts the rows in its
place: in joins, subqueries and common table expressions too. Columns may be qualified by the table's name or its last part. Columns and
files that the query does not need are not read. Other names are Spark's: views and tables of the session.

Queries only: ``write_to``, ``delete`` and ``upsert`` change tables.

Not here: reading (``read_table``), the parse (``SqlTables.java``).
"""

from __future__ import annotations

from typing import Final

from pyiceberg.expressions import AlwaysTrue
from pyspark.sql import DataFrame, SparkSession

from icelock.catalog.configuration import known_catalogs, read_configuration
from icelock.errors import PolicyError
from icelock.properties import is_number
from icelock.spark.arguments import checked
from icelock.spark.columns.types import quoted
from icelock.spark.driver.scan_rows import Engine
from icelock.spark.jvm.native import native_jvm
from icelock.spark.read_table import read, read_options, session_catalog
from icelock.spark.settings.options import ReadOptions, TableName
from icelock.spark.settings.session import is_classic, settings_of

_PARTS: Final = 3
_VERSION: Final = "version:"


@checked
def sql(spark: SparkSession, query: str, *, engine: str = Engine.AUTO) -> DataFrame:
    """Return the rows of a query; tables are named ``catalog.namespace.table``, with or without VERSION AS OF a snapshot id, branch or tag.

    Args:
        spark: a classic session that ``register`` was called with.
        query: one SELECT, with or without WITH.
        engine: as for ``read``.

    Raises:
        PolicyError: a statement that is not a query, TIMESTAMP AS OF, or a session of Spark Connect; or as ``read``.
        NoSuchTableError, KeyUnavailableError, IntegrityError: as ``read``.
        pyspark.errors.ParseException, AnalysisException: Spark's own.
    """
    settings = settings_of(spark)
    jvm = native_jvm(spark)
    if jvm is None:
        raise PolicyError("icelock.spark.sql needs a classic session: over Spark Connect, read the table and query it as a temporary view")
    named = jvm.sql_tables(query)
    if named is None:
        raise PolicyError("icelock.spark.sql runs queries; to change a table, use icelock.spark.write_to, delete or upsert")
    catalogs = {*settings.catalogs, *known_catalogs(read_configuration())}
    tables = {name: _rows(spark, name, engine) for name in dict.fromkeys(named) if name.split("\0")[0] in catalogs}
    return jvm.sql_rows(query, tables)


@checked
def attach(spark: SparkSession, namespace: str, *, prefix: str = "", replace: bool = False, engine: str = Engine.AUTO) -> tuple[str, ...]:
    """Create a temporary view of each table of ``catalog.namespace``, and return the views' names: ``prefix`` and the table's name.

    A view has the table's rows as they are now; attach again (``replace``) to see later snapshots.

    Raises:
        PolicyError: a view exists and ``replace`` is not set (then none is created), or a session of Spark Connect; or as ``read``.
        NoSuchNamespaceError: no such namespace.
        KeyUnavailableError, IntegrityError: as ``read``.
    """
    settings = settings_of(spark)
    if not is_classic(spark):
        raise PolicyError(
            "icelock.spark.attach needs a classic session: over Spark Connect, read each table and call createOrReplaceTempView"
        )
    catalog, _, path = namespace.partition(".")
    if not path:
        raise PolicyError(f"namespace {namespace!r} is not of the form catalog.namespace, such as 'lake.demo'")
    found = session_catalog(spark, settings, TableName.parse(f"{namespace}.any"))
    names = sorted(identifier[-1] for identifier in found.list_tables(tuple(path.split("."))))
    taken = [prefix + name for name in names if spark.catalog.tableExists(quoted(prefix + name))]
    if taken and not replace:
        raise PolicyError(f"the session has a table or view named {', '.join(taken)}: give a prefix, or replace=True")
    views = {prefix + name: read(spark, f"{catalog}.{path}.{name}", engine=engine) for name in names}
    for name, rows in views.items():
        rows.createOrReplaceTempView(quoted(name))
    return tuple(views)


def _rows(spark: SparkSession, name: str, engine: str) -> DataFrame:
    *parts, version = name.split("\0")
    table = ".".join(parts)
    if len(parts) < _PARTS or any("." in part for part in parts):
        raise PolicyError(f"table name {table!r} in the query is not of the form catalog.namespace.table")
    if not version:
        return read(spark, table, engine=engine)
    if not version.startswith(_VERSION):
        raise PolicyError(
            f"TIMESTAMP AS OF is not supported: use icelock.spark.read(spark, {table!r}, as_of_timestamp=...), or VERSION AS OF"
        )
    at = version.removeprefix(_VERSION)
    if is_number(at):
        return read(spark, table, snapshot_id=int(at), engine=engine)
    return read_options(spark, ReadOptions(table=TableName.parse(table), ref=at), AlwaysTrue(), engine)
