"""Keys on Spark's own connections: whether these are encrypted, and what happens if not.

Splits carry the keys of their files to executors. Messages from tasks to the driver are sealed (``spark.sealed.hpke``); rows, and what the
driver sends to tasks, are not. So on a master that is not local, without ``spark.network.crypto.enabled`` or ``spark.ssl.rpc.enabled``,
a session is warned once, and a catalog with ``icelock.spark.plain-rpc`` = ``refuse`` is not used at all.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from icelock.errors import PolicyError
from icelock.properties import SPARK_PLAIN_RPC, SPARK_PLAIN_RPC_REFUSE
from icelock.spark.settings.session import Settings, setting

_ENCRYPTION: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
_WARNED: Final = "_icelock_warned_of_plain_rpc"
_logger = logging.getLogger(__name__)


def is_plain(spark: SparkSession) -> bool:
    """Whether keys go to other machines unencrypted; an unknown master counts as another machine."""
    master = setting(spark, "spark.master", "unknown")
    if master == "local" or master.startswith("local["):
        return False
    return not any(setting(spark, name, "false") == "true" for name in _ENCRYPTION)


def warn_once(spark: SparkSession) -> None:
    """Warn a session that its RPC is not encrypted, once."""
    if getattr(spark, _WARNED, False):
        return
    setattr(spark, _WARNED, True)
    _logger.warning(
        "Spark's RPC is not encrypted: data keys of the files that are read cross the network in the clear. "
        "Set spark.network.crypto.enabled or spark.ssl.rpc.enabled; the catalog property %s=%s makes it an error.",
        SPARK_PLAIN_RPC,
        SPARK_PLAIN_RPC_REFUSE,
    )


def all_refuse(catalogs: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether all catalogs, PyIceberg's configuration included, refuse plain RPC."""
    from icelock.catalog.configuration import configured, known_catalogs, read_configuration

    config = read_configuration()
    names = {*known_catalogs(config), *catalogs}
    known = [{**configured(config, name), **catalogs.get(name, {})} for name in names]
    return bool(known) and all(_refuses(properties) for properties in known)


def check_rpc(settings: Settings, table: object, properties: Mapping[str, str]) -> None:
    """Check that a registered session may send a table's keys; a catalog (``properties``) that refuses plain RPC is a PolicyError."""
    if settings.plain_rpc and _refuses(properties):
        raise _refusal(table)


def check_session_rpc(spark: SparkSession, table: object, properties: Mapping[str, str]) -> None:
    """Check the same for any session, and warn it if plain RPC is not refused."""
    if is_plain(spark):
        if _refuses(properties):
            raise _refusal(table)
        warn_once(spark)


def _refuses(properties: Mapping[str, object]) -> bool:
    return properties.get(SPARK_PLAIN_RPC) == SPARK_PLAIN_RPC_REFUSE


def _refusal(table: object) -> PolicyError:
    return PolicyError(
        f"the catalog of {table} has {SPARK_PLAIN_RPC}={SPARK_PLAIN_RPC_REFUSE}, and data keys would cross the network in the clear: "
        "set spark.network.crypto.enabled or spark.ssl.rpc.enabled, then register again"
    )
