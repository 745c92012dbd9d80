"""icelock: Apache Iceberg table encryption for Python and PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icelock import _moved
from icelock.errors import (
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
    from icelock.catalog.load import load_catalog
    from icelock.table.table import StaticTable

_moved.install()

__all__ = [
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
    "__version__",
    "load_catalog",
]


def __getattr__(name: str) -> Any:
    """Import what is heavy when it is first used: a Spark executor needs neither catalogs nor SQLAlchemy."""
    if name == "load_catalog":
        from icelock.catalog.load import load_catalog  # noqa: PLC0415

        return load_catalog
    if name == "StaticTable":
        from icelock.table.table import StaticTable  # noqa: PLC0415

        return StaticTable
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("icelock")
    raise AttributeError(f"module 'icelock' has no attribute {name!r}")
