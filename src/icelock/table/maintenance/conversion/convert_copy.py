"""``icelock.maintenance.convert(..., copy_to=...)``: a new encrypted table with the rows of a plain one, which is left alone.

The current state of the main branch at one moment is copied: data files are written again as by a conversion (``convert_files``), and one
commit creates the table with them. Nothing of it is visible before. Columns, partition spec and sort order get ids of their own, so rows go
by the columns' names; the properties go along, except those that say where the plain table's files are or name its columns by id.

As only a new table is made, this works in every catalog, and the copy may be in another one.

Not here: a conversion under the table's own name (``table.maintenance.conversion.convert``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Identifier

from icelock import properties as names
from icelock.errors import PolicyError
from icelock.io.file_io import storage_of
from icelock.io.listing import delete_files
from icelock.metadata.table_metadata import is_encrypted
from icelock.table.commit.conversion import with_key
from icelock.table.maintenance.conversion.convert_files import Plan, WriteFiles, Written, checked
from icelock.table.plain import AnyTable

_ITS_OWN: Final = frozenset(
    {
        *(TableProperties.DEFAULT_NAME_MAPPING, TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH),
        *("write.object-storage.path", "write.folder-storage.path", names.FORMAT_VERSION, *names.PLAIN_ORIGIN),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy to make.

    Args:
        table: the plain table.
        to: the new table's name.
        catalog: where it is made, an ``EncryptedCatalog``.
        key_id: its master key.
        data_key_length: bytes of its keys; 16 if None.
        progress: told the bytes of data files that were read so far, and of all.
        write: who writes the rows.
    """

    table: AnyTable
    to: str | Identifier
    catalog: Any
    key_id: str
    data_key_length: int | None
    progress: Callable[[int, int], None]
    write: WriteFiles

    def begin(self) -> Any:
        """Return the transaction that makes the new table; nothing is written.

        Raises:
            PolicyError, KeyUnavailableError: the table is encrypted, or settings, columns or name are not possible.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        metadata, name = self.table.metadata, ".".join(self.table.name())
        if is_encrypted(metadata):
            raise PolicyError(
                f"table {name} is encrypted: plain tables are copied; one that has plain files is converted under its own name"
            )
        if not hasattr(self.catalog, "commit_conversion"):
            raise PolicyError(f"{self.catalog!r} is not one of icelock's catalogs, which alone make encrypted tables")
        self._check_room()
        kept = {key: value for key, value in metadata.properties.items() if key not in _ITS_OWN}
        return self.catalog.create_table_transaction(
            self.to,
            metadata.schema(),
            partition_spec=metadata.spec(),
            sort_order=metadata.sort_order(),
            properties=with_key(kept, key_id=self.key_id, data_key_length=self.data_key_length),
        )

    def _check_room(self) -> None:
        """Refuse a copy in a namespace that is not there, or in the place of a table."""
        *space, _ = identifier = self.catalog.identifier_to_tuple(self.to)
        to, within = ".".join(identifier), ".".join(space)
        if space and not self.catalog.namespace_exists(tuple(space)):
            raise NoSuchNamespaceError(
                f"catalog {self.catalog.name} has no namespace {within} for the copy {to}: create it first "
                f"(catalog.create_namespace({within!r}), in SQL CREATE NAMESPACE {self.catalog.name}.{within})"
            )
        if self.catalog.table_exists(identifier):
            raise TableAlreadyExistsError(
                f"table {to} already exists in catalog {self.catalog.name}: give the copy another name, or drop it"
            )

    def run(self, transaction: Any, plan: Plan) -> tuple[list[Any], Any]:
        """Write the rows and create the table; return its data files and the table.

        Raises:
            Exception: as ``convert``; nothing is left, unless the catalog did not say what became of the commit.
        """
        staged = transaction.staged
        staged.prepare_kek()
        written, read = Written(entropy=self.catalog.encryption.entropy, by=self.write, by_name=True), 0

        def done(task: Any) -> None:
            nonlocal read
            read += task.file_size
            self.progress(read, plan.size)

        try:
            written.write(plan, checked(staged.write_context(), staged.entropy), done)
            files = written.of(plan)
            if files:
                transaction.append_data_files(files)
        except BaseException:
            delete_files(storage_of(staged.table.io), written.paths)
            raise
        return files, transaction.commit_transaction()
