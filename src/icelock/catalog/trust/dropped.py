"""Checks that a table that a catalog says it dropped or renamed no longer has its name.

If a catalog answers success and did nothing, a table remains that its users believe dropped, or one table has two names, and a purge of
either deletes the files. So the name is loaded: it has no table now, or one with another uuid, which was created since. A catalog may show
the change to a later look only.

Not here: purges, which delete nothing before that is certain (``catalog.base``), answers that got lost (``catalog.rest.store``).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import CommitStateUnknownException, NoSuchIcebergTableError, NoSuchTableError

from icelock.catalog.commit.outcome import waits
from icelock.errors import IcelockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyiceberg.table import Table

logger = logging.getLogger(__name__)

_LOOKS: Final = 3


def check_left(load: Callable[[], Table], *, table: str, uuid: str | None, catalog: str, what: str, settings: Mapping[str, str]) -> None:
    """Check that a name has lost its table.

    Args:
        load: loads the table that has the name now.
        table: the name.
        uuid: of the table that had the name, if it is known.
        catalog: the catalog's name.
        what: "dropped" or "renamed".
        settings: ``commit.status-check.*``: how long to wait between two looks.

    Raises:
        CommitStateUnknownException: the name still has the table.
    """
    for seconds in waits(settings)[:_LOOKS]:
        time.sleep(seconds)
        try:
            there = str(load().metadata.table_uuid)
            if uuid is not None and there != uuid:
                return
        except (NoSuchTableError, NoSuchIcebergTableError):
            return
        except IcelockError as e:
            logger.debug("table %s is there and cannot be loaded: %s", table, e)
        except Exception as e:  # noqa: BLE001 - the catalog has said that it was done, and nothing says otherwise
            logger.warning("catalog %s says that table %s was %s, but cannot be asked whether it was: %s", catalog, table, what, e)
            return
    raise CommitStateUnknownException(
        f"catalog {catalog} says that table {table} was {what}, but has a table of this name: it was not done, or somebody made another "
        "one at this moment. No file was deleted: check before you repeat it"
    )
