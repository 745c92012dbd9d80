"""The Glue catalog: encrypted tables in the AWS Glue Data Catalog.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.glue.GlueCatalog``. Needs the extra ``catalog.glue.catalog`` (boto3). A
table's Parameters hold, beside what PyIceberg puts there,

    encryption.key-id  encryption.data-key-length      the table's properties, as all others
    metadata_hash  metadata_hash_location              Java's hash, and the metadata file that it is of

Java's Glue catalog keeps parameters that it does not know, so after its commit the hash is of another file and says nothing.

Not here: rules (``catalog.base``), commits (``catalog.glue.commit``), what the parameters prove (``catalog.trust.facts``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.table import StagedTable

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.commit.outcome import delete_on_failure
from icelock.catalog.commit.pointer import MetadataForm, PointerTurn
from icelock.catalog.glue.commit import HASH, HASH_OF, GlueRows, metadata_location
from icelock.catalog.trust.facts import Facts, check_facts
from icelock.errors import PolicyError

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.typedef import Identifier


class GlueCatalog(EncryptedCatalog, GlueRows):
    """PyIceberg's ``GlueCatalog`` whose tables can be encrypted. Safe to share between threads."""

    def _make(self, staged: StagedTable) -> IcebergTable:
        """Write a new encrypted table's metadata file and its entry, and return the table."""
        with self.turn(staged.name()) as turn:
            assert isinstance(turn, PointerTurn)  # noqa: S101 - made by _exclusive
            form = MetadataForm.of(staged.metadata)
            with delete_on_failure(staged):
                self._write_form(form, staged.io, staged.metadata_location)
            turn.prepare(None, staged, form)
            turn.swap(staged)
        return self.load_table(staged.name())

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> IcebergTable:
        """Make a table of a metadata file that is there; of an encrypted one every key must resolve and open.

        Raises:
            PolicyError: ``overwrite``, or the metadata breaks a rule.
            KeyUnavailableError, IntegrityError: a key is missing, cannot be opened, or was changed.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        name = self.free_name(identifier)
        if overwrite:
            raise PolicyError(
                f"table {'.'.join(name)}: register_table with overwrite is not supported; drop the table first (its files stay)"
            )
        metadata = self.read_metadata_file(metadata_location)
        self.check_register(metadata, table=".".join(name), location=metadata_location)
        io = self._load_file_io(location=metadata_location)
        self.add_row(StagedTable(identifier=name, metadata=metadata, metadata_location=metadata_location, io=io, catalog=self))
        return self.load_table(name)

    def free_name(self, identifier: str | Identifier) -> Identifier:
        """Return the name of a table that is not there, in a database that is.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
            PolicyError: a database of S3 Tables, whose storage icelock has not been tried on.
        """
        database, name = self.identifier_to_database_and_table(identifier)
        if not self.namespace_exists(database):
            raise NoSuchNamespaceError(f"Database does not exist: {database}")
        if self.table_exists(identifier):
            raise TableAlreadyExistsError(f"Table {database}.{name} already exists")
        if self._is_s3tables_database(database):
            raise PolicyError(f"database {database} is one of S3 Tables, where icelock makes no encrypted tables")
        return database, name

    def _convert_glue_to_iceberg(self, glue_table: Any) -> IcebergTable:
        name = (glue_table["DatabaseName"], glue_table["Name"])
        location, parameters = metadata_location(glue_table), glue_table["Parameters"]
        table = self.load_from_metadata(name, location)
        facts = Facts(
            named=location,
            metadata_location=parameters.get(HASH_OF),
            key_id=parameters.get(names.ENCRYPTION_KEY_ID),
            data_key_length=parameters.get(names.DATA_KEY_LENGTH),
            metadata_hash=parameters.get(HASH),
            where="Glue",
            anew=f"remove {HASH} and {HASH_OF} from its parameters and correct the others",
        )
        check_facts(facts, table.metadata, table=".".join(name), location=location, hash_of=self._recent.hash_of)
        return table
