"""Metadata as text, which is parsed once before it is committed, so that no commit makes a table that cannot be loaded.

Parsing costs as much as writing the file, so the ordinary updates of a write, which icelock makes itself, are not parsed.

Not here: what may become of an encrypted table (``table.guard.rules``), what a metadata file may not say (``metadata.coherence``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.utils.config import Config

from icelock.errors import FormatError, PolicyError
from icelock.metadata.canonical_json import canonical_form
from icelock.metadata.table_metadata import TableMetadataV3, parse_metadata
from icelock.metadata.updates import AddEncryptionKeyUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataForm:
    """Metadata as text; ``metadata_hash`` is Java's, None for versions 1 and 2."""

    text: str
    metadata_hash: str | None

    @classmethod
    def of(cls, metadata: TableMetadata) -> MetadataForm:
        """Serialize metadata, once for all that needs its text."""
        if isinstance(metadata, TableMetadataV3):
            text, digest = canonical_form(metadata)
            return cls(text=text, metadata_hash=digest)
        exclude_none = not Config().get_bool("legacy-current-snapshot-id")
        return cls(text=metadata.model_dump_json(exclude_none=exclude_none), metadata_hash=None)


def check_loadable(base: TableMetadata | None, staged: TableMetadata, updates: Iterable[Any], *, location: str, table: str) -> None:
    """Check that metadata that is about to be committed to ``location`` can be loaded; ``base`` is None for a new table.

    Raises:
        PolicyError: it cannot be loaded; says why. Nothing was changed.
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
    """Check that a new table's partition spec and sort order fit its columns: Java loads no table where they do not.

    Raises:
        PolicyError: a transform does not fit the type of its column.
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
