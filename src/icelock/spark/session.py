"""``register``: makes the format "icelock" known to a Spark session, classic or Connect. Importing this module loads no catalog.

Not here: the data source (``spark.driver.source``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from icelock.errors import PolicyError
from icelock.keys.entropy import SystemEntropy
from icelock.properties import check_catalog_properties, check_nested, is_number
from icelock.spark.arguments import checked
from icelock.spark.driver.source import NAME, data_source
from icelock.spark.jvm.ahead import begin
from icelock.spark.jvm.caller import check_callers
from icelock.spark.jvm.data_sources import register_before, spare_search
from icelock.spark.jvm.errors import install
from icelock.spark.jvm.rules import activate, install_fresh_scans, install_own_rows
from icelock.spark.settings.rpc import all_refuse, is_plain, warn_once
from icelock.spark.settings.session import Settings, attach, attached, catalogs_set, is_classic, is_connect, setting

PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"
_PARALLELISM_DEFAULT: Final = 2
_SESSION_KEY_LENGTH: Final = 32
_logger = logging.getLogger(__name__)


@checked
def register(spark: SparkSession, catalogs: Mapping[str, Mapping[str, object]] | None = None) -> None:
    """Make ``spark.read.format("icelock")`` and ``df.write.format("icelock")`` work in a session.

    Filter push-down for Python data sources is switched on, unless the session has it set to false; results are the same. In a classic
    session, queries raise icelock's own errors, and Spark's statements know the catalogs: ``spark.sql("select * from lake.shop.orders")``.
    A session whose connections would show keys is warned once. Call it again after a change of ``catalogs``, of that setting or of
    ``spark.sql.caseSensitive``: without ``catalogs`` it keeps those that it was given before, else a warning names those that are gone.

    Args:
        spark: a classic or Connect session.
        catalogs: properties by catalog name, as for ``load_catalog``, KMS settings included; the driver's planning processes get them,
            executors never do. Others are those that the session's settings have (``spark.sql.catalog.lake`` is ``icelock.SparkCatalog``,
            properties begin with ``spark.sql.catalog.lake.``), and those of PyIceberg's configuration.

    Raises:
        PolicyError: what is no session or no catalog's properties, a catalog name with a dot, or an unknown or misspelt setting.
    """
    if is_classic(spark):
        check_callers()
        begin(spark)
        from icelock.spark.statements.session import connect_catalogs

        install()
        spare_search(spark)
    activate(spark)
    before = attached(spark)
    own = _given_now(before, catalogs)
    given = {**catalogs_set(spark), **own}
    checked = {name: _checked(name, properties) for name, properties in given.items()}
    push_down = setting(spark, PUSH_DOWN, "true") == "true" and install_fresh_scans(spark, NAME)
    install_own_rows(spark, NAME)
    if push_down:
        spark.conf.set(PUSH_DOWN, "true")
    plain_rpc = is_plain(spark)
    if plain_rpc and not all_refuse(checked):
        warn_once(spark)
    settings = Settings(
        catalogs=checked,
        given=tuple(own),
        push_down=push_down,
        case_sensitive=setting(spark, "spark.sql.caseSensitive", "false") == "true",
        parallelism=_parallelism(spark),
        plain_rpc=plain_rpc,
        # The same as before, for operations under way in other threads.
        session_key=SystemEntropy().random_bytes(_SESSION_KEY_LENGTH) if before is None else before.session_key,
    )
    if is_classic(spark):
        register_before(spark, NAME)
    spark.dataSource.register(data_source(settings))
    attach(spark, settings)
    if is_classic(spark):
        connect_catalogs(spark, checked)
    elif is_connect(spark):
        from icelock.spark.connect_errors import explain_statements

        explain_statements(checked)


def _given_now(before: Settings | None, catalogs: Mapping[str, Mapping[str, object]] | None) -> Mapping[str, Mapping[str, object]]:
    """Return the properties of the catalogs that a call names, or that the call before it did, if this one names none."""
    known = {} if before is None else {name: before.catalogs[name] for name in before.given}
    if catalogs is None:
        return known
    gone = [name for name in known if name not in catalogs]
    if gone:
        _logger.warning(
            "register was called without the catalogs %s that it was given before: this session does not know them any more; give all of "
            "them in one call",
            ", ".join(gone),
        )
    return catalogs


def _checked(name: str, properties: Mapping[str, object]) -> dict[str, str]:
    if not isinstance(name, str) or not name or "." in name or name != name.strip():
        raise PolicyError(
            f"catalog name {name!r}: it is the first part of catalog.namespace.table, so it cannot have a dot, or white space around it"
        )
    if not isinstance(properties, Mapping):
        raise PolicyError(
            f"catalog {name} is given as a {type(properties).__name__}; it must be a dict: {{{name!r}: {{'type': 'sql', ...}}}}"
        )
    check_nested(properties)
    given = {key: str(value) for key, value in properties.items() if value is not None}
    check_catalog_properties(given)
    return given


def _parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once, as far as known: a Connect session has settings only."""
    context = getattr(spark, "_sc", None)
    if context is not None:
        return max(_PARALLELISM_DEFAULT, int(context.defaultParallelism))
    value = setting(spark, "spark.default.parallelism", "")
    return max(_PARALLELISM_DEFAULT, int(value)) if is_number(value) else _PARALLELISM_DEFAULT
