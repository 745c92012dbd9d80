"""What ``register`` was told, as it travels inside the data source class to the driver's planning processes.

It holds catalog properties with credentials and KMS settings, so its repr shows names only. It never goes to executors: see
``spark.driver.source`` for how that is kept.

``register`` also leaves it at the session object, where the operations beyond reading and writing (``write_to``, ``delete`` ...) find the
key that seals what they tell the planning processes (``spark.sealed.job``).

Not here: what is done with it (``spark.settings.catalogs``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from icelock.errors import PolicyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTRIBUTE: Final = "_icelock_settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Session-wide settings of the data source.

    Args:
        catalogs: properties by catalog name; other catalogs come from PyIceberg's configuration.
        push_down: whether Spark may push filters.
        case_sensitive: ``spark.sql.caseSensitive`` when ``register`` was called.
        parallelism: how many tasks the cluster runs at once, as far as known.
        plain_rpc: keys would cross the network in the clear (``rpc``).
        session_key: seals the options of jobs; 32 random bytes of this session.
    """

    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    push_down: bool = True
    case_sensitive: bool = False
    parallelism: int = 2
    plain_rpc: bool = False
    session_key: bytes = field(default=b"", repr=False)


def attach(spark: SparkSession, settings: Settings) -> None:
    """Leave the settings at a session object."""
    setattr(spark, _ATTRIBUTE, settings)


def attached(spark: SparkSession) -> Settings | None:
    """Return what ``attach`` left at a session object, if anything."""
    found = getattr(spark, _ATTRIBUTE, None)
    return found if isinstance(found, Settings) else None


def settings_of(spark: SparkSession) -> Settings:
    """Return the settings of a session that was registered.

    Raises:
        PolicyError: it was not.
    """
    found = attached(spark)
    if found is None:
        raise PolicyError(
            "this Spark session does not know icelock: call icelock.spark.register(spark, catalogs=...) with this session object first"
        )
    return found
