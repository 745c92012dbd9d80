"""A new table has only what the commit that created it added.

If a catalog's new table has other key entries, snapshots, branches or statistics, it is another table: the next commit would be sealed
under a KEK that this client did not make, and rows would be read that it did not write.

Not here: columns, partitions and places of a new table (``catalog.rest.form``), what a table has lost (``table.kept``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icelock.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table.metadata import TableMetadata


def check_new(made: TableMetadata, *, table: str, catalog: str, sent: TableMetadata | None = None) -> None:
    """Check that a new table has no more than was sent.

    Args:
        made: the table as the catalog has it.
        table: its name.
        catalog: the catalog's name.
        sent: the table that the commit was to create; None for an empty one.

    Raises:
        IntegrityError: names what it has besides; what was written to it is left in place.
    """
    strange = next(_surplus(made, sent), "")
    if strange:
        raise IntegrityError(
            f"table {table}: it was made just now, and comes from catalog {catalog} with {strange} that this client did not send. Do not "
            "write to it: drop it, without deleting files, and find out who gave it to the catalog"
        )


def _surplus(made: Any, sent: TableMetadata | None) -> Iterator[str]:
    held, mine = _parts(made), {} if sent is None else _parts(sent)
    for what, there in held.items():
        more = sorted(there - mine.get(what, set()))
        if more:
            yield f"{what} {', '.join(more)[:200]}"
    for name in ("last_sequence_number", "next_row_id") if sent is None else ():
        counted = getattr(made, name, 0)
        if counted:
            yield f"{name.replace('_', ' ')} {counted}"


def _parts(metadata: Any) -> dict[str, set[str]]:
    return {
        "key entries": {key.key_id for key in getattr(metadata, "encryption_keys", ())},
        "snapshots": {str(one.snapshot_id) for one in (*metadata.snapshots, *metadata.snapshot_log)},
        "branches or tags": set(metadata.refs),
        "statistics": {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)},
    }
