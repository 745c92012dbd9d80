"""The Glue catalog: encrypted tables in the AWS Glue Data Catalog.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.glue.GlueCatalog``. Needs the extra ``glue`` (boto3). A
table's Parameters hold, beside what PyIceberg puts there,

    encryption.key-id  encryption.data-key-length      the table's properties, as all others
    metadata_hash  metadata_hash_location              Java's hash, and the metadata file that it is of

Java's Glue catalog keeps parameters that it does not know, so after its commit the hash is of another file and says nothing.

Not here: rules (``catalog.base``), commits (``catalog.glue.store``), what the parameters prove (``catalog.trust.facts``).
"""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.catalog.glue import GlueCatalog as IcebergGlueCatalog
from pyiceberg.table import Table as IcebergTable

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.glue.store import HASH, HASH_OF, GlueStore, metadata_location
from icelock.catalog.trust.facts import Facts, check_facts


class GlueCatalog(EncryptedCatalog, IcebergGlueCatalog):
    """PyIceberg's ``GlueCatalog`` whose tables can be encrypted. Safe to share between threads."""

    commit_retries: Final = 20

    def _make_store(self) -> GlueStore:
        return GlueStore(self)

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
        check_facts(facts, table.metadata, table=".".join(name), location=location, hash_of=self.metadata_cache.hash_of)
        return table
