"""icelock: Apache Iceberg table encryption for Python and PySpark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from icelock import _moved
from icelock.errors import (
    CatalogUnreachableError,
    CommitError,
    ExpiredSnapshotError,
    FormatError,
    IcelockError,
    IntegrityError,
    KeyUnavailableError,
    KmsClientError,
    KmsError,
    KmsErrorKind,
    PolicyError,
)

if TYPE_CHECKING:
    from icelock.catalog.base import EncryptedCatalog as Catalog
    from icelock.catalog.load import load_catalog
    from icelock.table.table import StaticTable, Table

    __version__: str

_moved.install()

__all__ = [
    "Catalog",
    "CatalogUnreachableError",
    "CommitError",
    "ExpiredSnapshotError",
    "FormatError",
    "IcelockError",
    "IntegrityError",
    "KeyUnavailableError",
    "KmsClientError",
    "KmsError",
    "KmsErrorKind",
    "PolicyError",
    "StaticTable",
    "Table",
    "__version__",
    "load_catalog",
]

# What is imported when it is first used: a Spark executor needs neither catalogs nor SQLAlchemy.
_LAZY: Final = {
    "Catalog": ("icelock.catalog.base", "EncryptedCatalog"),
    "StaticTable": ("icelock.table.table", "StaticTable"),
    "Table": ("icelock.table.table", "Table"),
    "load_catalog": ("icelock.catalog.load", "load_catalog"),
}
_MODULES: Final = ("duckdb", "errors", "kms", "maintenance", "metrics", "polars", "spark", "testing")


if not TYPE_CHECKING:  # for type checkers, a module with this function has every name

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            module, attribute = _LAZY[name]
            return getattr(import_module(module), attribute)
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415

            return version("icelock")
        raise AttributeError(f"module 'icelock' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what is public, for completion: ``__all__``, and those of the public modules that are imported."""
    return sorted({*__all__, *(name for name in _MODULES if name in globals())})
