"""Replacing a table's entry in Glue, and finding out what became of it.

Glue has no lock: ``update_table`` names the version that it expects to replace, and refuses when another client was first. A turn keeps the
threads of this process from losing against each other. boto3 repeats requests by itself, so a refusal may be about our own
change: after every error the table is looked at (``catalog.commit.outcome``).

Not here: what stands in the parameters (``catalog.glue.catalog``), the rules of encrypted tables (``catalog.base``).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError
from pyiceberg.catalog import METADATA_LOCATION, TABLE_TYPE
from pyiceberg.catalog.glue import GLUE_SKIP_ARCHIVE, GLUE_SKIP_ARCHIVE_DEFAULT, _construct_table_input
from pyiceberg.catalog.glue import GlueCatalog as IcebergGlueCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.utils.properties import property_as_bool

from icelock import properties as names
from icelock.catalog.commit.outcome import discard, resolve_outcome, unknown
from icelock.catalog.commit.pointer import PointerCommits, PointerTurn, named_metadata
from icelock.metadata.canonical_json import metadata_hash
from icelock.metadata.table_metadata import TableMetadataV3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import StagedTable
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier

    from icelock.catalog.commit.pointer import MetadataForm

HASH: Final = "metadata_hash"
HASH_OF: Final = "metadata_hash_location"
_OWN: Final = (TABLE_TYPE, METADATA_LOCATION, "previous_metadata_location", HASH, HASH_OF)
_SERVER_ERROR: Final = 500


class GlueRows(PointerCommits, IcebergGlueCatalog):
    """PyIceberg's ``GlueCatalog`` with commits that know their outcome; base of ``catalog.glue.GlueCatalog``."""

    commit_retries: Final = 20

    if TYPE_CHECKING:

        def read_metadata_file(self, metadata_location: str) -> TableMetadata:
            """See ``EncryptedCatalog``."""

    @contextmanager
    def _exclusive(self, identifier: Identifier) -> Iterator[GlueTurn]:
        try:
            row = self._row(identifier)
        except (BotoCoreError, ClientError) as e:
            raise CommitFailedException(f"Glue does not say what table {'.'.join(identifier)} is: {e}; nothing was changed") from e
        yield GlueTurn(self, row)

    def _row(self, identifier: Identifier) -> Any | None:
        try:
            return self._get_glue_table(*self.identifier_to_database_and_table(identifier))
        except NoSuchTableError:
            return None

    def add_row(self, staged: StagedTable) -> None:
        """Make the entry of a table whose metadata file is there, and stays there whatever happens.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError, CommitFailedException: nothing was made.
            CommitStateUnknownException: nobody knows.
        """
        self.persist(staged, None, ours=False)

    def persist(self, staged: StagedTable, row: Any | None, *, digest: str | None = None, ours: bool = True) -> None:
        """Make the entry, or replace the version that ``row`` is; ``ours`` says that the metadata file goes when nothing comes of it."""
        table = ".".join(staged.name())
        replaces = None if row is None else metadata_location(row)
        try:
            self._send(staged, row, replaces, digest)
        except (BotoCoreError, ClientError) as e:
            refused = isinstance(e, (ConnectTimeoutError, EndpointConnectionError)) or _answered(e)
            made = self._made(staged, replaces, patient=not refused)
            if made:
                return
            if made is None or not refused:
                raise unknown(staged, e, who="Glue") from e
            if ours:
                discard(staged)
            if isinstance(e, self.glue.exceptions.AlreadyExistsException):
                raise TableAlreadyExistsError(f"Table {table} already exists") from e
            if row is None and isinstance(e, self.glue.exceptions.EntityNotFoundException):
                raise NoSuchNamespaceError(f"Database does not exist: {staged.name()[0]}") from e
            raise CommitFailedException(f"Glue refused the change of table {table}: {e}; nothing was changed") from e

    def _send(self, staged: StagedTable, row: Any | None, replaces: str | None, digest: str | None) -> None:
        database, name = staged.name()
        metadata = staged.metadata
        properties = {key: value for key, value in metadata.properties.items() if key not in _OWN}
        if isinstance(metadata, TableMetadataV3) and names.ENCRYPTION_KEY_ID in metadata.properties:
            properties |= {HASH: digest or metadata_hash(metadata), HASH_OF: staged.metadata_location}
        if row is None:
            described = _construct_table_input(name, staged.metadata_location, properties, metadata)
            self.glue.create_table(DatabaseName=database, TableInput=described)
            return
        described = _construct_table_input(name, staged.metadata_location, properties, metadata, row, replaces)
        self.glue.update_table(
            DatabaseName=database,
            TableInput=described,
            SkipArchive=property_as_bool(self.properties, GLUE_SKIP_ARCHIVE, GLUE_SKIP_ARCHIVE_DEFAULT),
            VersionId=row.get("VersionId", "0"),
        )

    def _made(self, staged: StagedTable, replaces: str | None, *, patient: bool) -> bool | None:
        def named() -> str | None:
            row = self._row(staged.name())
            return None if row is None else metadata_location(row)

        return resolve_outcome(staged, replaces, named=named, read=self.read_metadata_file, patient=patient)


class GlueTurn(PointerTurn):
    """The turn of a thread, and the table's entry as it was when the turn began."""

    def __init__(self, catalog: GlueRows, row: Any | None) -> None:
        super().__init__(None if row is None else metadata_location(row))
        self._catalog = catalog
        self._row = row
        self._digest: str | None = None

    def current(self) -> IcebergTable:
        """Return the table of the entry."""
        return self._catalog._convert_glue_to_iceberg(self._row)

    def prepare(self, current: IcebergTable | None, staged: StagedTable, form: MetadataForm) -> None:
        """Take the hash, and the properties that the table no longer has out of the parameters that are kept."""
        self._digest = form.metadata_hash
        if current is not None and self._row is not None:
            gone = current.properties.keys() - staged.properties.keys()
            self._row = {**self._row, "Parameters": {k: v for k, v in self._row["Parameters"].items() if k not in gone}}

    def swap(self, staged: StagedTable) -> None:
        """Put the new entry there."""
        self._catalog.persist(staged, self._row, digest=self._digest)


def metadata_location(row: Any) -> str:
    """Return the metadata file that an entry names.

    Raises:
        NoSuchIcebergTableError, NoSuchPropertyException: it is no Iceberg table's entry, or names none.
    """
    return named_metadata(row.get("Parameters"), table=f"{row.get('DatabaseName')}.{row.get('Name')}", where="Glue")


def _answered(error: BotoCoreError | ClientError) -> bool:
    """Whether Glue dealt with the request and refused it."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", _SERVER_ERROR)
    return bool(status < _SERVER_ERROR)
