"""Tables by their names: load, drop, rename, and check that a name is free. The first of the three classes that make a catalog.

A table is compared with the client's pins (``catalog.trust.pins``) whenever it is loaded, and again by a commit. Metadata is parsed by
our model; v1 and v2 tables pass through to PyIceberg unchanged. Properties of tables configure no storage access: whoever writes
metadata.json could send the client's credentials elsewhere.

Not here: what a location may be (``io.locations``), creating tables (``catalog.create``), commits (``catalog.base``).
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, Final, cast
from uuid import UUID

from pyiceberg.catalog import WAREHOUSE_LOCATION, Catalog
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from icelock import metrics, telemetry
from icelock import properties as names
from icelock.catalog.commit.outcome import waits
from icelock.catalog.commit.queue import CommitQueues
from icelock.catalog.commit.store import Store, StoreTurn
from icelock.catalog.described import DescribedCatalog
from icelock.catalog.new_properties import NewProperties
from icelock.catalog.tables_below import namespace_hint, not_there
from icelock.catalog.trust.kept import Kept
from icelock.catalog.trust.metadata_cache import MetadataCache
from icelock.catalog.trust.pins import Known, Pins
from icelock.errors import IcelockError, PolicyError
from icelock.io.checked_io import CheckedFileIO
from icelock.io.failed import failed
from icelock.io.limits import read_all
from icelock.io.locations import check_given_location
from icelock.io.storage import open_storage
from icelock.metadata.entry_reader import checked_avro
from icelock.metadata.table_metadata import TableMetadataV3, decode_metadata
from icelock.table.encryption import TableEncryption
from icelock.table.guard.rules import check_metadata
from icelock.table.plain import PlainTable
from icelock.table.table import Table

logger = logging.getLogger(__name__)

# A catalog may show a change to a later look only.
_LOOKS: Final = 3


def check_names(parts: Identifier) -> None:
    """Check a new table's or namespace's names: folders are called after them, and must stay in the warehouse.

    Raises:
        PolicyError: a part is ``.`` or ``..``, or has a slash or a character that no file name has.
    """
    bad = next((part for part in parts if part.strip() in {".", ".."} or any(char in "/\\" or ord(char) < ord(" ") for char in part)), None)
    if bad is not None:
        raise PolicyError(f"{bad!r} cannot be a name: a folder is called after it, so it is neither . nor .., and has no / or \\ in it")


class NamedTables(DescribedCatalog, Catalog):
    """Base of ``catalog.create.TableCreation``."""

    # Whether each process that loads the catalog has one of its own.
    one_process: ClassVar[bool] = False
    # Whether a table's metadata is read from the file at its metadata_location, and not from an answer that says where that file is.
    reads_metadata_files: ClassVar[bool] = True
    # A REST server knows its warehouses by name.
    warehouse_is_place: ClassVar[bool] = True
    table_defaults: ClassVar[Mapping[str, str]] = {}
    """Properties that every new table of the catalog gets unless it says otherwise."""

    def __init__(self, name: str, **properties: str) -> None:
        self.encryption = TableEncryption.from_properties(_without_aliases(properties), owner=f"catalog {name}")
        self.pins = Pins.from_properties(properties, catalog=name, open_kek=self.encryption.open_kek)
        self.metadata_cache = MetadataCache()
        self._queues = CommitQueues()
        self._plain_tables: set[UUID] = set()
        if self.warehouse_is_place and properties.get(WAREHOUSE_LOCATION):
            what = f"{WAREHOUSE_LOCATION} of catalog {name}"
            check_given_location(properties[WAREHOUSE_LOCATION], what=what, any_scheme=bool(properties.get(PY_IO_IMPL)))
        self._store = self._make_store()
        super().__init__(name, **properties)
        # After a REST server has had its say.
        self.new_tables = NewProperties.of(name, self.properties, built_in=self.table_defaults)

    @abstractmethod
    def _make_store(self) -> Store[Any]:
        """Return what the service does; PyIceberg's ``__init__`` has not run yet."""

    @property
    def _iceberg(self) -> Any:
        """PyIceberg's methods of the concrete catalog, without ours over them."""
        return super()

    def load_table(self, identifier: str | Identifier, *, hint: bool = True) -> Table:
        """Load a table and compare it with the pins (``catalog.trust.pins``).

        A plain table of version 1 or 2 is PyIceberg's own, which has its methods alone (``table.plain``): ``isinstance`` tells.
        ``hint``: of a table that is not there, the catalog is asked for the names beside it, for the message.

        Raises:
            IntegrityError: it is not what was pinned, or what was seen before, such as an encrypted table that is plain now.
            FormatError: the metadata file or the server's answer is not table metadata of version 1 to 3.
            PolicyError: see ``table.guard.rules.check_metadata``.
            NoSuchTableError: as PyIceberg; the message names the table that may be meant.
        """
        name = self.identifier_to_tuple(identifier)
        with telemetry.on_table("catalog", "load", name, self.name):
            seen = self.pins.seen(name)
            try:
                with self._naming(name, hint=hint):
                    table = self._store.load(name)
            except NoSuchTableError:
                self.pins.gone(name)
                raise
            self.pins.check(name, table.metadata, table.metadata_location, seen)
        return cast("Table", table)

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Whether a name has a table; errors of one that is there and cannot be loaded are those of ``load_table``."""
        try:
            self.load_table(identifier, hint=False)  # a message that nobody reads is not worth a listing
        except NoSuchTableError:
            return False
        return True

    @contextmanager
    def _naming(self, name: Identifier, *, hint: bool = True) -> Iterator[None]:
        """Let the error of a table that is not there say which one may be meant; a name without a namespace is such an error too."""
        if len(name) < 2:  # noqa: PLR2004 - a namespace and a table
            table = ".".join(name)
            raise NoSuchTableError(f"{table!r} is not of the form namespace.table, such as {f'shop.{table}'!r}")
        try:
            yield
        except NoSuchIcebergTableError:
            raise
        except NoSuchTableError as e:
            said = not_there(self, ".".join(name)) if hint else f"catalog {self.name} has no table {'.'.join(name)}"
            raise NoSuchTableError(said) from e.__cause__ or e  # the cause tells what was asked of a server

    def kept(self, identifier: str | Identifier) -> Kept:
        """Return what the catalog and the pins say of a table; nothing is checked or remembered, and its metadata file is not read.

        Raises:
            NoSuchTableError: as PyIceberg.
            FormatError, PolicyError: the pins file is damaged, or cannot be read.
        """
        name = self._store.name_of(identifier)
        pinned = self.pins.seen(name).pinned
        return replace(self._store.kept(name), pinned_key_id=self.pins.pinned_key_id(name), seen=pinned)

    def names_for_any(self, locations: Iterable[str]) -> bool:
        """Whether the service is known to name one of these metadata files for a table, also for a catalog of another name."""
        return self._store.names_for_any(locations)

    def load_from_metadata(self, identifier: Identifier, metadata_location: str) -> IcebergTable:
        """Read and check a metadata file and return its table.

        Raises:
            FormatError: not table metadata of version 1 to 3.
            IntegrityError, PolicyError: see ``table.guard.rules.check_metadata``.
        """
        metadata = self.read_metadata_file(metadata_location)
        check_metadata(metadata, location=metadata_location)
        return self.table_of(identifier, metadata, metadata_location)

    def read_metadata_file(self, metadata_location: str) -> TableMetadata:
        """Read and parse a metadata file, without checking what it says.

        Raises:
            FormatError: not table metadata of version 1 to 3.
            FileNotFoundError, PermissionError: the file is not there, or may not be read.
        """
        return self._read(metadata_location)[0]

    def _read(self, location: str) -> tuple[TableMetadata, bytes]:
        """Return what a metadata file holds, and the SHA-256 of its bytes; of the storage's errors say what to do."""
        limit = names.limit(self.properties, names.LIMIT_METADATA_BYTES)
        try:
            with self._load_file_io(location=location).new_input(location).open() as stream:
                data = read_all(stream, location, limit=limit, name=names.LIMIT_METADATA_BYTES)
        except FileNotFoundError as e:
            remedy = "put the table's folder back, if it was moved or deleted; or this machine lacks the storage that others write to"
            raise failed(e, f"catalog {self.name}: {location} cannot be read", remedy) from e
        except PermissionError as e:
            raise failed(e, f"catalog {self.name}: {location} cannot be read", "let this user read the files of the table's folder") from e
        metrics.add(files_read=1, bytes_read=len(data))
        digest = sha256(data).digest()
        return self.metadata_cache.get(digest, lambda: decode_metadata(data, location=location, limit=limit)), digest

    def table_of(self, identifier: Identifier, metadata: TableMetadata, metadata_location: str) -> IcebergTable:
        """Return the table object of checked metadata: ours for version 3, PyIceberg's in essence below."""
        return self._table_with(identifier, metadata, metadata_location, self._load_file_io(location=metadata_location), {})

    def _table_with(
        self, identifier: Identifier, metadata: TableMetadata, location: str, io: FileIO, config: dict[str, str]
    ) -> IcebergTable:
        if isinstance(metadata, TableMetadataV3):
            return Table(identifier, metadata, location, io, self, config, encryption=self.encryption)
        return PlainTable(identifier, metadata, location, CheckedFileIO(io, checked_avro), self, config)

    def drop_table(self, identifier: str | Identifier) -> None:
        """Drop a table, and forget what was seen of it; its files stay.

        Raises:
            NoSuchTableError: as PyIceberg.
            CommitStateUnknownException: the catalog says that it was dropped, and still has it, or did not say.
        """
        self._drop(self.identifier_to_tuple(identifier))

    def _drop(self, name: Identifier, *, uuid: UUID | None = None, purge: bool = False) -> None:
        """Drop a table; if its ``uuid`` is given, it is certainly gone afterwards. ``purge`` asks a server to delete its files."""
        known = self.pins.seen(name).here
        seen = str(uuid) if uuid is not None else None if known is None else known.seen.table_uuid
        with self._naming(name):
            self._store.drop(name, purge=purge)
        self._check_left(name, "dropped", seen, certain=uuid is not None)
        telemetry.event("catalog", logging.INFO, "drop", catalog=self.name, table=".".join(name))
        self.pins.forget(name)
        self._store.forget(name)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table; what was seen of it goes with it.

        Raises:
            PolicyError: a name that a folder cannot have (``check_names``).
            IntegrityError: it is not what was seen before, which has its new name now.
            NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError: as PyIceberg.
            CommitFailedException: another writer holds the table's lock; nothing was changed.
            CommitStateUnknownException: the catalog says that it was renamed, and has it under the old name, or did not say.
        """
        old, new = self.identifier_to_tuple(from_identifier), self.identifier_to_tuple(to_identifier)
        check_names(new)
        seen, plain = self.pins.seen(old), self.pins.made_plain_as(old)
        with self._naming(old):
            table = self._store.rename(old, new)
        self.pins.check(new, table.metadata, table.metadata_location, seen)
        if plain == table.metadata.table_uuid:
            self.pins.made_plain(new, plain)
        self._check_left(old, "renamed", str(table.metadata.table_uuid))
        telemetry.event("catalog", logging.INFO, "rename", catalog=self.name, table=".".join(old), to=".".join(new))
        self.pins.forget(old)
        self._store.move(old, new)
        return cast("Table", table)

    def _check_left(self, name: Identifier, what: str, uuid: str | None, *, certain: bool = False) -> None:
        """Check that a table that the catalog says it dropped or renamed (``what``) no longer has its name.

        If the catalog did nothing, a table remains that its users believe dropped, or one table has two names, and a purge of either
        deletes the files. So the name is loaded, without pins: it has no table now, or one with another uuid, which was created since.

        Raises:
            CommitStateUnknownException: the name still has the table; or the catalog does not say, and this has to be ``certain``.
        """
        table = ".".join(name)
        for seconds in waits(self.properties)[:_LOOKS]:
            time.sleep(seconds)
            try:
                if uuid not in {None, str(self._store.load(name).metadata.table_uuid)}:
                    return
            except (NoSuchTableError, NoSuchIcebergTableError):
                return
            except IcelockError as e:
                logger.debug("table %s is there and cannot be loaded: %s", table, e)
            except Exception as e:
                if certain:
                    raise CommitStateUnknownException(
                        f"catalog {self.name} says that table {table} was {what}, but does not say whether it still has it ({e}): "
                        "no file was deleted, so check, and repeat it"
                    ) from e
                logger.warning("catalog %s says that table %s was %s, but cannot be asked whether it was: %s", self.name, table, what, e)
                return
        raise CommitStateUnknownException(
            f"catalog {self.name} says that table {table} was {what}, but has a table of this name: it was not done, or somebody made "
            "another one at this moment. No file was deleted: check before you repeat it"
        )

    def free_name(self, identifier: str | Identifier) -> Identifier:
        """Return the name of a table that is not there, in a namespace that is.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
            PolicyError: the service makes no encrypted tables in this namespace.
        """
        name = self._store.name_of(identifier)
        if not self.namespace_exists(name[:-1]):
            space = ".".join(name[:-1])
            raise NoSuchNamespaceError(f"catalog {self.name} has no namespace {space}{namespace_hint(self, space)}")
        if self._store.has(name):
            raise TableAlreadyExistsError(f"Table {'.'.join(name)} already exists")
        self.pins.gone(name)
        return name

    @contextmanager
    def turn(self, identifier: Identifier) -> Iterator[StoreTurn]:
        """Wait for the turn to commit to a table and hold it inside; a thread that holds it gets it again.

        Raises:
            CommitFailedException: the catalog gave no lock, or does not answer; nothing was changed.
        """
        held = self._queues.held(identifier)
        if held is not None:
            yield held  # type: ignore[misc]  # made below
            return
        with self._queues.queue(identifier):
            known = self.pins.seen(identifier)  # before the service is asked: others go on meanwhile
            with self._store.exclusive(identifier) as turn, self._queues.holding(identifier, turn):
                turn.check = partial(self.check_current, known=known)
                yield turn

    def check_current(self, current: IcebergTable, known: Known) -> None:
        """Compare the table that a commit is to be made on with what was known when its turn began.

        Raises:
            IntegrityError: it is not what was pinned, or older than what was seen; nothing was committed.
        """
        self.pins.check_base(current.name(), current.metadata, current.metadata_location, known)

    def _check_given_location(self, location: str, *, what: str) -> None:
        """Check a location that was given for new files.

        Raises:
            PolicyError: it is not one folder, or of no known storage.
        """
        check_given_location(location, what=what, any_scheme=bool(self.properties.get(PY_IO_IMPL)))

    def _resolve_table_location(self, location: str | None, database_name: str, table_name: str) -> str:
        """Return where a new table goes; PyIceberg's catalogs call it, too."""
        name = f"{database_name}.{table_name}"
        try:
            found: str = self._iceberg._resolve_table_location(location, database_name, table_name)
        except IcelockError:
            raise
        except ValueError as e:
            raise PolicyError(
                f"table {name} has no location: catalog {self.name} has no warehouse; set warehouse to a location such as "
                "file:///data/warehouse or s3://bucket/warehouse, or give create_table a location"
            ) from e
        self._check_given_location(found, what=f"location of table {name}")
        return found

    def _load_file_io(self, properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        return open_storage({**without_kms(self.properties), **(properties or {})}, location)


def without_kms(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what the storage does not need: KMS settings stay with the catalog."""
    left_out = ("encryption.", "kms.", "py-kms-impl", names.TABLE_DEFAULT_PREFIX, names.TABLE_OVERRIDE_PREFIX)
    return {key: value for key, value in properties.items() if not key.startswith(left_out)}


def _without_aliases(properties: Mapping[str, Any]) -> dict[str, str]:
    names.check_nested(properties)
    return {key: str(value) for key, value in properties.items() if value is not None}
