"""``load_catalog``: PyIceberg's function for catalogs whose tables can be encrypted.

PyIceberg's configuration file and environment variables are honoured, and given properties win over them.

Not here: the catalogs themselves. Each is imported when it is asked for, because some need an extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, URI, infer_catalog_type
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.utils.config import Config, merge_config

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.configuration import configured, default_catalog, not_configured, read_configuration
from icelock.errors import PolicyError

_CLASSES: Final[Mapping[str, str]] = {
    "sql": "icelock.catalog.sql.SqlCatalog",
    "in-memory": "icelock.catalog.memory.InMemoryCatalog",
    "hive": "icelock.catalog.hive.HiveCatalog",
    "glue": "icelock.catalog.glue.GlueCatalog",
    "rest": "icelock.catalog.rest.RestCatalog",
}
_URIS: Final[Mapping[str, str]] = {
    "icelock.catalog.sql.SqlCatalog": "sqlite:////data/catalog.db",
    "icelock.catalog.hive.HiveCatalog": "thrift://metastore.example.com:9083",
    "icelock.catalog.rest.RestCatalog": "https://catalog.example.com/api",
}
_EXTRAS: Final[Mapping[str, str]] = {"icelock.catalog.hive": "hive", "icelock.catalog.glue": "glue"}


def load_catalog(name: str | None = None, **properties: str | None) -> EncryptedCatalog:
    """Load a catalog by name, as ``pyiceberg.catalog.load_catalog`` does.

    ``type`` is ``sql``, ``hive``, ``rest``, ``glue`` or ``in-memory``, or follows from ``uri``; ``py-catalog-impl`` names one of
    icelock's classes.

    Raises:
        PolicyError: the catalog is not configured, its type cannot hold encrypted tables, or a setting is misspelt.
        NotInstalledError: the catalog needs an extra that is not installed.
    """
    config = read_configuration()
    return load_configured(config, name or default_catalog(config), properties)


def load_configured(config: Config, name: str, properties: Mapping[str, str | None]) -> EncryptedCatalog:
    """Load a catalog as ``load_catalog`` does, by a configuration that was read already."""
    conf: Mapping[str, Any] = merge_config(cast("Any", configured(config, name)), cast("Any", properties))
    if not any(value is not None for value in conf.values()):
        raise PolicyError(not_configured(config, name))
    class_name = _class_name(name, conf)
    chosen = _load(name, class_name)
    if class_name in _URIS and not conf.get(URI):
        raise PolicyError(f"catalog {name} has no uri: set it to where the catalog is, such as {_URIS[class_name]}")
    left_out = (PY_CATALOG_IMPL, TYPE)
    return chosen(name, **{key: value for key, value in conf.items() if key not in left_out and value is not None})


def _class_name(name: str, conf: Mapping[str, Any]) -> str:
    impl = conf.get(PY_CATALOG_IMPL)
    kind = conf.get(TYPE)
    if impl:
        if str(impl) not in _CLASSES.values():
            raise PolicyError(
                f"catalog {name}: {PY_CATALOG_IMPL} {impl} is not one of icelock's: {', '.join(_CLASSES.values())}; or use type"
            )
        if kind is not None and _CLASSES.get(str(kind).lower()) != impl:
            raise PolicyError(f"catalog {name}: type {kind!r} and {PY_CATALOG_IMPL} {impl} do not fit; leave one of them out")
        return str(impl)
    if kind is None:
        kind = _inferred(name, conf)
    found = _CLASSES.get(str(kind).lower())
    if found is None:
        raise PolicyError(f"catalog {name}: type {kind!r} cannot hold encrypted tables in this version; use one of {', '.join(_CLASSES)}")
    return found


def _inferred(name: str, conf: Mapping[str, Any]) -> str | None:
    try:
        inferred = infer_catalog_type(name, cast("Any", conf))
    except ValueError:
        uri = conf.get(URI)
        scheme = str(uri).partition(":")[0][:20]  # the rest may have a password in it
        what = f"its uri begins with {scheme!r}, which tells no type" if uri else "it has neither type nor uri"
        raise PolicyError(f"catalog {name}: {what}; set type to one of {', '.join(_CLASSES)}, and uri to where the catalog is") from None
    return inferred.value if inferred else None


def _load(name: str, class_name: str) -> type[EncryptedCatalog]:
    module, _, attribute = class_name.rpartition(".")
    try:
        return cast("type[EncryptedCatalog]", getattr(import_module(module), attribute))
    except ModuleNotFoundError as e:
        extra = _EXTRAS.get(module)
        if extra is None:
            raise
        raise NotInstalledError(
            f"catalog {name} needs {e.name}, which is not installed: add icelock's extra, in a clone by pip install '.[{extra}]'"
        ) from e
