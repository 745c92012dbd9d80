"""What a table that was just made may have: only what the commit that made it brought.

A new table is empty. A catalog whose new table comes with key entries, snapshots, branches or statistics hands out somebody's else: the
next commit would be sealed under a KEK that this client did not make, and rows would be read that it did not write.

Not here: columns, partitions and places of a new table (``catalog.rest.form``), what a table has lost (``table.kept``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icelock.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table.metadata import TableMetadata


def check_new(made: TableMetadata, *, table: str, catalog: str, sent: TableMetadata | None = None) -> None:
    """Check that a table that was just made has no more than was sent.

    Args:
        made: what the catalog has or answers with.
        table: for the message.
        catalog: for the message.
        sent: what the commit was to make; None for a table without rows.

    Raises:
        IntegrityError: says what it has besides; nothing was written to it, or what was written is left where it is.
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
