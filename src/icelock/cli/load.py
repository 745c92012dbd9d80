"""How commands and completion load a catalog.

Not here: which catalog a name means (``cli.table_names``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from icelock.cli.own_process import import_arrow

if TYPE_CHECKING:
    from icelock.catalog.base import EncryptedCatalog


def load_catalog(name: str | None) -> EncryptedCatalog:
    """Load a catalog of PyIceberg's configuration; without a name the default one.

    Raises:
        PolicyError: it is not configured, or the configuration cannot be read.
    """
    from icelock.catalog.configuration import read_configuration

    read_configuration()  # first: PyIceberg reads it while its catalogs are imported
    import_arrow()
    from icelock.catalog import load

    return load.load_catalog(name)
