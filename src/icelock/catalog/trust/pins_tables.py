"""When a catalog compares tables with its pins: at every load, and in a commit on what is there then.

Not here: what is compared (``catalog.trust.pins``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from icelock import properties as names
from icelock.catalog.trust.dropped import check_left
from icelock.catalog.trust.pins import Pins
from icelock.metadata.table_metadata import is_encrypted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.typedef import Identifier

    from icelock.catalog.trust.pins import Known


class PinnedTables(Catalog):
    """Mixin, before PyIceberg's catalog among the bases of a concrete one."""

    def __init__(self, name: str, **properties: str) -> None:
        self.pins = Pins.from_properties(properties, catalog=name)
        super().__init__(name, **properties)

    def load_table(self, identifier: str | Identifier) -> IcebergTable:
        """Load a table and compare it with the pins (``catalog.trust.pins``).

        Raises:
            IntegrityError: it is not what was pinned, or what was seen before, such as an encrypted table that is plain now.
            NoSuchTableError: as PyIceberg.
        """
        name = self.identifier_to_tuple(identifier)
        seen = self.pins.seen(name)
        try:
            table = super().load_table(identifier)  # type: ignore[safe-super]  # the concrete catalog is next
        except NoSuchTableError:
            self.pins.gone(name)
            raise
        self.pins.check(name, table.metadata, table.metadata_location, seen)
        return table

    def create_table_if_not_exists(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> IcebergTable:
        """Create a table, or return the one that is there; a plain one takes rows of this catalog if ``icelock.plain=true`` says so.

        Raises:
            PolicyError, KeyUnavailableError, NoSuchNamespaceError, CommitError, CommitStateUnknownException: as ``create_table``.
        """
        given = dict(properties or {})
        table = super().create_table_if_not_exists(identifier, schema, location, partition_spec, sort_order, given)
        if names.flag(given, names.PLAIN, default=False) and not is_encrypted(table.metadata):
            self.pins.made_plain(table.name(), table.metadata.table_uuid)
        return table

    def drop_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> None:
        """Drop a table as PyIceberg, and forget what was seen of it.

        Raises:
            NoSuchTableError: as PyIceberg.
            CommitStateUnknownException: the catalog says that it was dropped, and still has it (``catalog.trust.dropped``).
        """
        name = self.identifier_to_tuple(identifier)
        known = self.pins.seen(name)
        super().drop_table(identifier, *args, **kwargs)  # type: ignore[safe-super]  # likewise
        self._check_left(name, known, "dropped")
        self.pins.forget(name)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> IcebergTable:
        """Rename a table as PyIceberg; what was seen of it goes with it.

        Raises:
            IntegrityError: it is not what was seen before, which has its new name now.
            NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError: as PyIceberg.
            CommitStateUnknownException: the catalog says that it was renamed, and has it under the old name.
        """
        old, new = self.identifier_to_tuple(from_identifier), self.identifier_to_tuple(to_identifier)
        seen, plain = self.pins.seen(old), self.pins.made_plain_as(old)
        table = super().rename_table(from_identifier, to_identifier)  # type: ignore[safe-super]  # likewise
        self.pins.check(new, table.metadata, table.metadata_location, seen)
        if plain == table.metadata.table_uuid:
            self.pins.made_plain(new, plain)
        self._check_left(old, seen, "renamed", uuid=str(table.metadata.table_uuid))
        self.pins.forget(old)
        return table

    def _check_left(self, name: Identifier, known: Known, what: str, *, uuid: str | None = None) -> None:
        """Look whether a table has left its name; what is there now is not compared with the pins."""
        load = partial(super().load_table, name)  # type: ignore[safe-super]  # likewise
        uuid = known.here.seen.table_uuid if uuid is None and known.here is not None else uuid
        check_left(load, table=".".join(name), uuid=uuid, catalog=self.name, what=what, settings=self.properties)

    def check_current(self, current: IcebergTable, known: Known) -> None:
        """Compare the table on which a commit is to be made with what was known when its turn began.

        Raises:
            IntegrityError: it is not what was pinned, or goes back behind what was seen; nothing was committed.
        """
        self.pins.check_base(current.name(), current.metadata, current.metadata_location, known)
