"""Keys on Spark's own connections: whether they are encrypted, and what happens when they are not.

Splits carry the keys of their files to executors. What tasks tell the driver is sealed (``spark.sealed.hpke``), but rows, and what the
driver tells tasks, go as Spark sends them. So on a master that is not local, without ``spark.network.crypto.enabled`` or
``spark.ssl.rpc.enabled``, a session is warned once, or a catalog with ``icelock.spark.plain-rpc`` = ``refuse`` is not used at all.

Not here: where that is asked (``session``, ``spark.settings.catalogs``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from icelock.errors import PolicyError
from icelock.properties import SPARK_PLAIN_RPC, SPARK_PLAIN_RPC_REFUSE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icelock.spark.settings.session import Settings

_ENCRYPTION: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
_WARNED: Final = "_icelock_warned_of_plain_wire"
_logger = logging.getLogger(__name__)


def is_plain(spark: SparkSession) -> bool:
    """Whether keys go to other machines unencrypted; a master that cannot be seen counts as another machine."""
    master = _setting(spark, "spark.master", "unknown")
    if master == "local" or master.startswith("local["):
        return False
    return not any(_setting(spark, name, "false") == "true" for name in _ENCRYPTION)


def warn_once(spark: SparkSession) -> None:
    """Say that the wire is plain, unless this session was told so."""
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
    """Whether no catalog would use a plain wire, those of PyIceberg's configuration included."""
    from pyiceberg.utils.config import Config

    config = Config()
    names = {*config.get_known_catalogs(), *catalogs}
    known = [{**(config.get_catalog_config(name) or {}), **catalogs.get(name, {})} for name in names]
    return bool(known) and all(_refuses(properties) for properties in known)


def check_wire(settings: Settings, table: object, properties: Mapping[str, str]) -> None:
    """Check that a table's keys may go over the wires of the session.

    Args:
        settings: of the session.
        table: its name, for the message.
        properties: of its catalog.

    Raises:
        PolicyError: the wire is plain, and the catalog refuses that.
    """
    if settings.plain_rpc and _refuses(properties):
        raise _refusal(table)


def check_wire_of(spark: SparkSession, table: object, properties: Mapping[str, str]) -> None:
    """Check the same for a session that need not be registered, and warn it where that is not refused.

    Raises:
        PolicyError: the wire is plain, and the catalog refuses that.
    """
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


def _setting(spark: SparkSession, name: str, default: str) -> str:
    return str(spark.conf.get(name, default)).strip().lower()
