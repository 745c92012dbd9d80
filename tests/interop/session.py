"""One Spark session with both engines in it, and the metastore between them.

``ice`` is Java Iceberg's Spark catalog, ``ours`` is icelock's data source and plain Python; both are a Hive catalog on the same
metastore and warehouse, with the same two master keys, so that a table has one name and two engines. ``mixed`` is ``ours`` with
the policy that lets plain files through, ``open`` that which lets plain tables take rows.
``plain`` and ``lake`` are Java's and ours as the SQL cases use them: a table that is made without
properties is a plain one of version 3 there, an encrypted one here.

The session needs a JVM whose class path has Iceberg on it. A JVM that other tests left behind has not, and PySpark would reuse it:
it is ended first, and ours is ended last.

Not here: what each engine does (``java_side``, ``our_side``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import icelock.spark
from tests.helpers.spark import WARM, end_jvm, session, spark_environment
from tests.interop.toolchain import class_path
from tests.servers.metastore import Metastore

DATABASE: Final = "interop"
JAVA_SQL: Final = "plain"
OUR_SQL: Final = "lake"
KEYS: Final = {"keyA": b"0123456789012345", "keyB": b"1123456789012345"}
_SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.session.timeZone": "UTC",
}
_JAVA_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"


@dataclass(frozen=True, kw_only=True)
class Session:
    """``properties`` are those of icelock's catalog."""

    spark: Any
    uri: str
    warehouse: Path
    properties: dict[str, str]


@contextmanager
def interop_session(folder: Path) -> Iterator[Session]:
    """Start the metastore and Spark, and stop what was started.

    Raises:
        MissingToolError: the machine lacks a JDK or Maven.
    """
    jars = class_path()
    # One class loader must see Iceberg and the KMS. Behind Spark's own jars, not before them as spark.driver.extraClassPath stands, so
    # that the archive of Spark's classes fits.
    environment = {**spark_environment(WARM), "SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, jars))}
    with patch.dict(os.environ, environment), Metastore(warehouse=folder) as metastore:
        spark = _spark(folder, metastore.uri)
        try:
            properties = catalog_properties(metastore.uri, folder)
            spark.sql(f"CREATE NAMESPACE ice.{DATABASE} LOCATION '{folder.as_uri()}/{DATABASE}.db'")
            yield Session(spark=spark, uri=metastore.uri, warehouse=folder, properties=properties)
        finally:
            spark.stop()
            end_jvm()


def catalog_properties(uri: str, warehouse: Path) -> dict[str, str]:
    """Return the properties of icelock's catalog on the metastore."""
    return {
        "type": "hive",
        "uri": uri,
        "warehouse": warehouse.as_uri(),
        "encryption.kms-type": "memory",
        **{f"kms.memory.keys.{name}": key.hex() for name, key in KEYS.items()},
    }


def java_settings(folder: Path, uri: str) -> dict[str, str]:
    """Return the settings with which a session has Java's catalogs ``ice`` and ``plain``; its class path needs Iceberg."""
    catalog = {"": _JAVA_CATALOG, ".type": "hive", ".uri": uri, ".warehouse": folder.as_uri()}
    ice = {**catalog, ".cache-enabled": "false", ".encryption.kms-impl": "InteropKms"}
    plain = {**catalog, ".table-default.format-version": "3"}
    return {
        **_SETTINGS,
        "spark.sql.warehouse.dir": str(folder / "spark"),
        **{f"spark.sql.catalog.ice{name}": value for name, value in ice.items()},
        **{f"spark.sql.catalog.{JAVA_SQL}{name}": value for name, value in plain.items()},
    }


def _spark(folder: Path, uri: str) -> Any:
    end_jvm()
    spark = session(java_settings(folder, uri))
    properties = catalog_properties(uri, folder)
    mixed = {**properties, "icelock.plaintext-files": "allow-unkeyed"}
    lake = {**properties, "table-default.encryption.key-id": "keyA"}
    lax = {**properties, "icelock.plain-tables": f"{DATABASE}.plain_*"}
    icelock.spark.register(spark, {"ours": properties, "mixed": mixed, "open": lax, OUR_SQL: lake})
    return spark
