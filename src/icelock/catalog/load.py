"""``load_catalog``: PyIceberg's function for catalogs whose tables can be encrypted.

PyIceberg's configuration file and environment variables are honoured, and given properties win over them.

Not here: the catalogs themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, infer_catalog_type
from pyiceberg.utils.config import Config, merge_config

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.sql import InMemoryCatalog, SqlCatalog
from icelock.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLASSES: Final[Mapping[str, type[EncryptedCatalog]]] = {"sql": SqlCatalog, "in-memory": InMemoryCatalog}
_IMPL_PREFIX: Final = "icelock."


def load_catalog(name: str | None = None, **properties: str | None) -> EncryptedCatalog:
    """Load a catalog by name, as ``pyiceberg.catalog.load_catalog`` does.

    ``type`` is ``sql`` or ``in-memory``, or follows from ``uri``.

    Raises:
        PolicyError: a catalog type that icelock cannot keep encrypted tables in, or misspelt settings.
        ValueError: no ``uri`` and no ``type``.
    """
    config = Config()
    name = name or config.get_default_catalog_name()
    conf: Mapping[str, Any] = merge_config(config.get_catalog_config(name) or {}, cast("Any", properties))
    impl = conf.get(PY_CATALOG_IMPL)
    kind = conf.get(TYPE) or ("sql" if impl else None)
    if impl and not str(impl).startswith(_IMPL_PREFIX):
        msg = f"catalog {name}: {PY_CATALOG_IMPL} {impl} is not one of icelock's; leave it out, or use icelock.catalog.sql.SqlCatalog"
        raise PolicyError(msg)
    if kind is None:
        inferred = infer_catalog_type(name, cast("Any", conf))
        kind = inferred.value if inferred else None
    chosen = _CLASSES.get(str(kind).lower())
    if chosen is None:
        msg = f"catalog {name}: type {kind!r} cannot hold encrypted tables in this version; use one of {', '.join(_CLASSES)}"
        raise PolicyError(msg)
    left_out = (PY_CATALOG_IMPL, TYPE)
    return chosen(name, **{key: value for key, value in conf.items() if key not in left_out and value is not None})
