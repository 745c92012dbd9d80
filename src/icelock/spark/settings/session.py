"""The settings of a registered session: what ``register`` was given.

They travel inside the data source class to the driver's planning processes, and are kept on the session object, where operations such as
``write_to`` find the key that seals their jobs (``spark.sealed.job``). Catalog properties hold credentials and KMS settings, so the repr
leaves them out, and executors never get them (``spark.driver.source``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from pyspark.sql import SparkSession

from icelock.errors import PolicyError
from icelock.spark.jvm.caller import check_caller

# Spark's setting of a catalog's class, and our class.
CATALOG: Final = "spark.sql.catalog."
SPARK_CATALOG: Final = "icelock.SparkCatalog"
# What ``register`` adds to the settings of a catalog.
SESSION: Final = "icelock-session"
_ATTRIBUTE: Final = "_icelock_settings"
# Sessions by what SESSION says: a copy of one, as ``foreachBatch`` gets it from Spark, has the same settings of catalogs.
_CONNECTED: Final[WeakValueDictionary[str, SparkSession]] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Session-wide settings of the data source.

    Args:
        catalogs: properties by catalog name; other catalogs come from PyIceberg's configuration.
        given: which of them ``register`` was given itself; those of the session's own settings are read again.
        push_down: whether Spark may push filters.
        case_sensitive: ``spark.sql.caseSensitive`` when ``register`` was called.
        parallelism: how many tasks the cluster runs at once, as far as known.
        plain_rpc: whether keys would cross the network unencrypted (``rpc``).
        session_key: seals the options of jobs; 32 random bytes.
    """

    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    given: tuple[str, ...] = ()
    push_down: bool = True
    case_sensitive: bool = False
    parallelism: int = 2
    plain_rpc: bool = False
    session_key: bytes = field(default=b"", repr=False)


def is_classic(spark: SparkSession) -> bool:
    """Whether a session's JVM is at hand: over Spark Connect it is not, and some platforms hide it."""
    return getattr(spark, "_jsparkSession", None) is not None and getattr(spark, "_jvm", None) is not None


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is a client of Spark Connect."""
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(spark).__mro__)


def setting(spark: SparkSession, name: str, default: str) -> str:
    """Return one of Spark's settings in lower case."""
    return str(spark.conf.get(name, default)).strip().lower()


def catalogs_set(spark: SparkSession) -> dict[str, dict[str, str]]:
    """Return the properties of the catalogs that a classic session's own settings describe (``spark.sql.catalog.<name>.<property>``)."""
    found: dict[str, dict[str, str]] = {}
    if is_classic(spark):
        for name, value in spark.conf.getAll.items():
            catalog, _, key = name.removeprefix(CATALOG).partition(".")
            if name.startswith(CATALOG) and key not in {"", SESSION} and spark.conf.get(f"{CATALOG}{catalog}", "") == SPARK_CATALOG:
                found.setdefault(catalog, {})[key] = value
    return found


def attach(spark: SparkSession, settings: Settings) -> None:
    """Keep the settings on a session object."""
    setattr(spark, _ATTRIBUTE, settings)


def remember(spark: SparkSession, number: str) -> None:
    """Let copies of a session be known by the number that its catalogs have."""
    _CONNECTED[number] = spark


def original(spark: SparkSession) -> SparkSession:
    """Return the session that a session object is a copy of, as far as it is known by its catalogs, else itself."""
    if getattr(spark, _ATTRIBUTE, None) is None and is_classic(spark):
        numbers = {value for name, value in spark.conf.getAll.items() if name.startswith(CATALOG) and name.endswith(f".{SESSION}")}
        known = [one for number in numbers if (one := _CONNECTED.get(number)) is not None]
        return known[0] if len(known) == 1 else spark
    return spark


def attached(spark: SparkSession) -> Settings | None:
    """Return the settings of a session object, if it, or the session that it is a copy of, is registered."""
    found = getattr(original(spark), _ATTRIBUTE, None)
    return found if isinstance(found, Settings) else None


def settings_of(spark: SparkSession) -> Settings:
    """Return the settings of a registered session.

    Raises:
        PolicyError: it is not registered, or a program that is not Spark's JVM called this function (``jvm.caller``).
    """
    if is_classic(spark):
        check_caller()
    found = attached(spark)
    if found is None:
        raise PolicyError(
            "this Spark session does not know icelock: call icelock.spark.register(spark, catalogs=...) with this session object first"
        )
    return found
