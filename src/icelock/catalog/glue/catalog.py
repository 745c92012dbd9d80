"""The Glue catalog: encrypted tables in the AWS Glue Data Catalog.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.glue.GlueCatalog``. Needs the extra ``glue`` (boto3). A
table's Parameters hold, beside what PyIceberg puts there,

    encryption.key-id  encryption.data-key-length      the table's properties, as all others
    metadata_hash  metadata_hash_location              Java's hash, and the metadata file that it is of

Java's Glue catalog keeps parameters that it does not know, so after its commit the hash is of another file and says nothing.

A table's entry is replaced if it is still the version that was read. Glue has no lock: ``update_table`` names the version that it expects
to replace, and refuses if another client committed first. A turn keeps the threads of this process from losing against each other. boto3
repeats requests by itself, so a refusal may be about our own change: after every error the entry is read (``catalog.commit.outcome``).

Not here: rules (``catalog.base``), what the parameters prove (``catalog.trust.facts``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError
from pyiceberg.catalog import METADATA_LOCATION, TABLE_TYPE
from pyiceberg.catalog.glue import GLUE_SKIP_ARCHIVE, GLUE_SKIP_ARCHIVE_DEFAULT, _construct_table_input
from pyiceberg.catalog.glue import GlueCatalog as IcebergGlueCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.commit.loadable import MetadataForm
from icelock.catalog.commit.pointer import PointerStore, PointerTurn, named_metadata
from icelock.catalog.trust.facts import Facts, check_facts
from icelock.catalog.trust.kept import Kept
from icelock.errors import PolicyError
from icelock.metadata.canonical_json import metadata_hash
from icelock.metadata.table_metadata import TableMetadataV3

HASH: Final = "metadata_hash"
HASH_OF: Final = "metadata_hash_location"
_OWN: Final = (TABLE_TYPE, METADATA_LOCATION, "previous_metadata_location", HASH, HASH_OF)
_SERVER_ERROR: Final = 500


class GlueCatalog(EncryptedCatalog, IcebergGlueCatalog):
    """PyIceberg's ``GlueCatalog`` whose tables can be encrypted. Safe to share between threads."""

    commit_retries: Final = 20

    def _make_store(self) -> GlueStore:
        return GlueStore(self)

    def _convert_glue_to_iceberg(self, glue_table: Any) -> IcebergTable:
        name = (glue_table["DatabaseName"], glue_table["Name"])
        location = metadata_location(glue_table)
        table = self.load_from_metadata(name, location)
        facts = _facts(glue_table["Parameters"], location)
        check_facts(facts, table.metadata, table=".".join(name), location=location, hash_of=self.metadata_cache.hash_of)
        return table


class GlueStore(PointerStore[GlueCatalog]):
    """The entries of the AWS Glue Data Catalog."""

    server: ClassVar[str] = "Glue"

    def name_of(self, identifier: str | Identifier) -> Identifier:
        """Return database and table."""
        return self.catalog.identifier_to_database_and_table(identifier)

    def has(self, name: Identifier) -> bool:
        """Whether a name has a table.

        Raises:
            PolicyError: the database is one of S3 Tables, whose storage icelock has not been tried on.
        """
        found = super().has(name)
        if not found and self.catalog._is_s3tables_database(name[0]):
            raise PolicyError(f"database {name[0]} is one of S3 Tables, where icelock makes no encrypted tables")
        return found

    @contextmanager
    def exclusive(self, name: Identifier) -> Iterator[GlueTurn]:
        """Read the entry; nothing keeps other processes out."""
        try:
            entry = self.entry(name)
        except (BotoCoreError, ClientError) as e:
            raise CommitFailedException(f"Glue does not say what table {'.'.join(name)} is: {e}; nothing was changed") from e
        yield GlueTurn(self, entry)

    def entry(self, name: Identifier) -> Any | None:
        """Return a table's entry, if there is one."""
        try:
            return self.catalog._get_glue_table(*self.name_of(name))
        except NoSuchTableError:
            return None

    def named(self, name: Identifier) -> str | None:
        """Return the metadata file that the entry names now."""
        entry = self.entry(name)
        return None if entry is None else metadata_location(entry)

    def kept(self, name: Identifier) -> Kept:
        """Return what the entry has."""
        entry = self.entry(name)
        if entry is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}")
        location = metadata_location(entry)
        facts = _facts(entry["Parameters"], location)
        return Kept(location=location, io=self.catalog._load_file_io(location=location), where=self.server, facts=facts)

    def put(self, staged: StagedTable, entry: Any | None, *, digest: str | None) -> None:
        """Create the entry, or replace the version that ``entry`` is; ``digest`` is the metadata's hash."""
        database, name = staged.name()
        metadata = staged.metadata
        properties = {key: value for key, value in metadata.properties.items() if key not in _OWN}
        if isinstance(metadata, TableMetadataV3) and names.ENCRYPTION_KEY_ID in metadata.properties:
            properties |= {HASH: digest or metadata_hash(metadata), HASH_OF: staged.metadata_location}
        glue = self.catalog.glue
        if entry is None:
            described = _construct_table_input(name, staged.metadata_location, properties, metadata)
            glue.create_table(DatabaseName=database, TableInput=described)
            return
        described = _construct_table_input(name, staged.metadata_location, properties, metadata, entry, metadata_location(entry))
        glue.update_table(
            DatabaseName=database,
            TableInput=described,
            SkipArchive=property_as_bool(self.catalog.properties, GLUE_SKIP_ARCHIVE, GLUE_SKIP_ARCHIVE_DEFAULT),
            VersionId=entry.get("VersionId", "0"),
        )


class GlueTurn(PointerTurn):
    """The turn of a thread, and the table's entry as it was when the turn began."""

    exclusive = False
    _store: GlueStore

    def __init__(self, store: GlueStore, entry: Any | None) -> None:
        super().__init__(store, None if entry is None else metadata_location(entry))
        self._entry = entry

    def current(self) -> IcebergTable:
        """Return the table of the entry."""
        return self._store.catalog._convert_glue_to_iceberg(self._entry)

    def prepare(self, current: IcebergTable | None, staged: StagedTable, form: MetadataForm) -> None:
        """Keep the hash, and drop the parameters of properties that the table no longer has."""
        super().prepare(current, staged, form)
        if current is not None and self._entry is not None:
            gone = current.properties.keys() - staged.properties.keys()
            self._entry = {**self._entry, "Parameters": {k: v for k, v in self._entry["Parameters"].items() if k not in gone}}

    def swap(self, staged: StagedTable) -> None:
        """Put the new entry there."""
        table = ".".join(staged.name())
        try:
            self._store.put(staged, self._entry, digest=self._digest)
        except (BotoCoreError, ClientError) as e:
            refused = isinstance(e, (ConnectTimeoutError, EndpointConnectionError)) or _answered(e)
            if self._store.was_made(staged, self.location, e, final=refused):
                return
            known = self._store.catalog.glue.exceptions
            if isinstance(e, known.AlreadyExistsException):
                raise TableAlreadyExistsError(f"Table {table} already exists") from e
            if self.location is None and isinstance(e, known.EntityNotFoundException):
                raise NoSuchNamespaceError(f"Database does not exist: {staged.name()[0]}") from e
            raise CommitFailedException(f"Glue refused the change of table {table}: {e}; nothing was changed") from e


def _facts(parameters: Mapping[str, str], location: str) -> Facts:
    return Facts(
        named=location,
        metadata_location=parameters.get(HASH_OF),
        key_id=parameters.get(names.ENCRYPTION_KEY_ID),
        data_key_length=parameters.get(names.DATA_KEY_LENGTH),
        metadata_hash=parameters.get(HASH),
        where="Glue",
        anew=f"remove {HASH} and {HASH_OF} from its parameters and correct the others",
    )


def metadata_location(row: Any) -> str:
    """Return the metadata file that an entry names.

    Raises:
        NoSuchIcebergTableError, NoSuchPropertyException: see ``named_metadata``.
    """
    return named_metadata(row.get("Parameters"), table=f"{row.get('DatabaseName')}.{row.get('Name')}", where="Glue")


def _answered(error: BotoCoreError | ClientError) -> bool:
    """Whether Glue has dealt with the request."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", _SERVER_ERROR)
    return bool(status < _SERVER_ERROR)
