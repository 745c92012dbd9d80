"""Metadata that is about to be committed is read once as everybody will read it, so that no commit makes a table that cannot be loaded.

The ordinary updates of a write, whose parts icelock makes by itself, are left out: reading costs as much as writing the file.

Not here: what may become of an encrypted table (``table.guard``), what a metadata file may not say (``metadata.coherence``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from icelock.catalog.commit.pointer import MetadataForm
from icelock.errors import FormatError, PolicyError
from icelock.metadata.table_metadata import parse_metadata
from icelock.metadata.updates import AddEncryptionKeyUpdate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.sorting import SortOrder


def check_loadable(base: TableMetadata | None, staged: TableMetadata, updates: Iterable[Any], *, location: str, table: str) -> None:
    """Check that what is about to be committed can be loaded.

    Args:
        base: what is there; None for a table that is being made.
        staged: what would be committed.
        updates: what leads from one to the other.
        location: where the metadata file goes.
        table: for messages.

    Raises:
        PolicyError: it cannot; says why. Nothing was changed.
    """
    if base is not None and all(_ordinary(base, update) for update in updates):
        return
    try:
        parse_metadata(MetadataForm.of(staged).text.encode(), location=location)
    except UnicodeEncodeError as e:
        raise PolicyError(
            f"table {table}: a name, comment or property has half of a surrogate pair in it, which is no text; nothing was changed"
        ) from e
    except FormatError as e:
        problem = str(e).removeprefix(f"{location} is not valid table metadata: ")
        raise PolicyError(f"table {table}: the change would make metadata that nobody can load, so nothing was changed: {problem}") from e


def check_form(spec: PartitionSpec, order: SortOrder, schema: Schema) -> None:
    """Check that a new table's partition spec and sort order can be of its columns: Java loads no table where they cannot.

    Raises:
        PolicyError: a transform that the type of its column does not have.
    """
    try:
        spec.check_compatible(schema)
        order.check_compatible(schema)
    except (ValidationError, ValueError) as e:
        raise PolicyError(f"the table cannot be made: {e}; choose another transform or column") from e


def _ordinary(base: TableMetadata, update: Any) -> bool:
    if isinstance(update, SetSnapshotRefUpdate):
        ref = base.refs.get(update.ref_name)
        kept = (update.min_snapshots_to_keep, update.max_snapshot_age_ms, update.max_ref_age_ms)
        before = (None, None, None) if ref is None else (ref.min_snapshots_to_keep, ref.max_snapshot_age_ms, ref.max_ref_age_ms)
        return kept == before
    return isinstance(update, (AddSnapshotUpdate, AddEncryptionKeyUpdate))
