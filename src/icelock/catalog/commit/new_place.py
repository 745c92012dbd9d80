"""Where a new table goes that was given no location: the folder of its name, or a folder of its own.

A table that was renamed keeps the folder of its old name, and one that was dropped may leave its files there. Two tables in one folder
can be read, but what one of them no longer needs cannot be told from what the other has (``table.maintenance.removal.leftovers``). Java
has the same property for it, ``unique-table-location``, and looks at nothing without it.

Not here: a REST server, which says itself where a table goes.
"""

from __future__ import annotations

import uuid
from itertools import islice
from typing import Any, Final

from pyiceberg.io import FileIO

from icelock import properties as names
from icelock.io.listing import list_files
from icelock.table.maintenance.removal.neighbours import may_have_table, uuid_in

_METADATA_FILE: Final = ".metadata.json"


def new_place(catalog: Any, folder: str) -> str:
    """Return ``folder``, the one of a table's name, or one that no other table has.

    It is of the new table alone with ``unique-table-location=true``, and without the property if another table's metadata lies in it:
    two versions, or one that the catalog has. A single one that nobody has is what a creation that failed left.

    Raises:
        PolicyError: the property is neither true nor false.
    """
    if names.UNIQUE_TABLE_LOCATION in catalog.properties:
        unique = names.flag(catalog.properties, names.UNIQUE_TABLE_LOCATION, default=False)
    else:
        unique = _is_taken(catalog, folder)
    return f"{folder.rstrip('/')}-{uuid.uuid4().hex}" if unique else folder


def _is_taken(catalog: Any, folder: str) -> bool:
    io: FileIO = catalog._load_file_io(location=folder)
    try:
        listed = (file.location for file in list_files(io, f"{folder.rstrip('/')}/metadata"))
        versions = list(islice((location for location in listed if location.endswith(_METADATA_FILE)), 2))
    except Exception:  # noqa: BLE001 - a storage that cannot list, or not here: a creation goes on as if it were empty
        return False
    if len(versions) != 1:
        return bool(versions)
    found = uuid_in(io, versions[0])
    return found is not None and may_have_table(catalog, {found: versions[0]})
