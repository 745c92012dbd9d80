"""What ``register`` was told, as it travels inside the data source class to the driver's planning processes.

It holds catalog properties with credentials and KMS settings, so its repr shows names only. It never goes to executors: see
``source`` for how that is kept.

Not here: what is done with it (``tables``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Session-wide settings of the data source.

    Args:
        catalogs: properties by catalog name; other catalogs come from PyIceberg's configuration.
        push_down: whether Spark may push filters.
        case_sensitive: ``spark.sql.caseSensitive`` when ``register`` was called.
        parallelism: how many tasks the cluster runs at once, as far as known.
        plain_rpc: keys would cross the network in the clear.
    """

    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    push_down: bool = True
    case_sensitive: bool = False
    parallelism: int = 2
    plain_rpc: bool = False
