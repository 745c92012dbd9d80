"""Whether a table that a catalog says it dropped or renamed is gone from its name.

A catalog that answers success and did nothing leaves a table that its users think gone, or one table with two names, of which a purge of
either takes the files. So the name is looked at: it has no table now, or one with another uuid, which somebody made since. A catalog may
show the change to a later look only.

Not here: purges, which delete nothing before they know (``catalog.base``), answers that got lost (``catalog.rest.store``).
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
    """Look whether a name has lost its table.

    Args:
        load: loads what the name has now.
        table: the name.
        uuid: that of the table that had it, if it is known.
        catalog: for the message.
        what: what was done, for the message.
        settings: with ``commit.status-check.*``: how long to wait between two looks.

    Raises:
        CommitStateUnknownException: it still has it.
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
        "one at this moment. No file was deleted: look before you repeat it"
    )
