"""The two commits that change what a table is: a plain one becomes encrypted, and, while its plain files are there, plain again.

Both are made in the table's turn, by the same ``Turn.commit`` as all others, so that Hive's parameters, facts and hashes change with them;
each has a guard of its own (``table.guard.conversion``).

Not here: other commits (``catalog.base``), the work around these (``table.maintenance.conversion.convert``,
``table.maintenance.conversion.undo_conversion``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import _update_table_metadata_log

from icelock.catalog.commit.loadable import check_loadable
from icelock.catalog.commit.store import Change, StoreTurn
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.metadata.updates import apply_updates, commit_time_ms
from icelock.table.commit.protocol import Stage
from icelock.table.guard.conversion import check_conversion, check_undo

if TYPE_CHECKING:
    from icelock.catalog.base import EncryptedCatalog


def make_encrypted(catalog: EncryptedCatalog, plain: IcebergTable, empty: TableMetadataV3, updates: tuple[Any, ...]) -> TableMetadata:
    """See ``EncryptedCatalog.commit_conversion``."""
    name = plain.name()
    with catalog.turn(name) as turn:
        base = _base(turn, plain)
        made = apply_updates(empty, updates, now_ms=catalog.encryption.clock, metadata_location=base.metadata_location)
        check_conversion(base.metadata, made, table=".".join(name))
        catalog._check_new_lists(name, made, plain.io, made.snapshots)
        response = _swap(catalog, turn, base, made, updates)
    catalog._check_kept(response, plain, updates, new=False)
    return response.metadata


def make_plain(catalog: EncryptedCatalog, encrypted: IcebergTable, plain: TableMetadata) -> TableMetadata:
    """See ``EncryptedCatalog.commit_undo``."""
    name = encrypted.name()
    with catalog.turn(name) as turn:
        base = _base(turn, encrypted)
        check_undo(base.metadata, plain, table=".".join(name))
        logged = _update_table_metadata_log(plain, base.metadata_location, base.metadata.last_updated_ms)
        made = logged.model_copy(update={"last_updated_ms": commit_time_ms(base.metadata, catalog.encryption.clock())})
        response = _swap(catalog, turn, base, made, ())
        catalog.pins.forget(name)  # it was seen encrypted, and comes back plain
    catalog._check_kept(response, encrypted, (), new=False)
    return response.metadata


def _base(turn: StoreTurn, held: IcebergTable) -> IcebergTable:
    """Return the table as it is, which must be the version that the caller holds."""
    turn.stage = Stage.PREPARING
    base = turn.base(new=False)
    if base is None or base.metadata_location != held.metadata_location:
        raise CommitFailedException(f"table {'.'.join(held.name())} was changed meanwhile; nothing was changed")
    return base


def _swap(
    catalog: EncryptedCatalog, turn: StoreTurn, base: IcebergTable, made: TableMetadata, updates: tuple[Any, ...]
) -> CommitTableResponse:
    staged = catalog._staged_as(base, made)
    check_loadable(None, made, updates, location=staged.metadata_location, table=".".join(base.name()))
    metadata, location = turn.make(Change(base=base, staged=staged, requirements=(), updates=updates, config=base.config))
    return CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)
