"""Which settings go to executors: those of the storage, by an allow-list (docs/threat-model.md, "Spark").

A catalog's properties hold its credentials and the KMS's settings. Executors need neither; what is not known to be a setting of the
storage stays with the driver. A FileIO class of the user's own (``py-io-impl``) may need more: the catalog property
``icelock.spark.executor-properties`` lists prefixes of properties to send, separated by commas.

Not here: which tables a write uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from icelock import properties as names
from icelock.errors import PolicyError

# PyIceberg's names (pyiceberg/io/__init__.py). "client." are credentials and region that S3 and other AWS clients share.
_PREFIXES: Final = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "oss.", "client.", "py-io-impl", names.LIMITS_PREFIX)
_NEVER: Final = ("encryption.", "kms.", "py-kms-impl", "credential", "token", "uri", "header.", "auth", "rest.", "oauth2")


def executor_properties(storage: Mapping[str, str], catalog: Mapping[str, str]) -> dict[str, str]:
    """Return what of a table's storage properties executors get.

    Args:
        storage: properties of the table's FileIO.
        catalog: the catalog's properties, for ``icelock.spark.executor-properties``.

    Raises:
        PolicyError: that property asks for key or catalog settings.
    """
    more = tuple(prefix for prefix in (part.strip() for part in catalog.get(names.SPARK_EXECUTOR_PROPERTIES, "").split(",")) if prefix)
    bad = [prefix for prefix in more if prefix.startswith(_NEVER) or any(never.startswith(prefix) for never in _NEVER)]
    if bad:
        raise PolicyError(
            f"{names.SPARK_EXECUTOR_PROPERTIES} names {', '.join(map(repr, bad))}: settings of keys and catalogs never go to executors"
        )
    return {name: value for name, value in storage.items() if name.startswith(_PREFIXES + more)}
