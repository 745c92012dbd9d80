"""Facts: what a catalog keeps of an encrypted table beside the location of its metadata file, and what they prove about the file.

Key id and key length are the table's. The hash (``metadata.canonical_json``) is that of one file: after a commit of a client that writes no
facts it proves nothing. The catalog is trusted, the storage is not (cases C-15).

Not here: where facts are kept (``catalog.sql.facts``, ``catalog.glue.catalog``), Hive's, which are Java's (``catalog.hive.parameters``).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import IntegrityError
from icelock.metadata.canonical_json import metadata_hash
from icelock.metadata.table_metadata import TableMetadataV3


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """``named`` is the metadata file that the table's row names now; the others are from the last commit that wrote facts, if any.

    ``where`` says who keeps them, ``anew`` what to do if another client has recreated the table; both are for messages.
    """

    named: str | None
    metadata_location: str | None
    key_id: str | None
    data_key_length: str | None
    metadata_hash: str | None
    where: str
    anew: str


def check_facts(
    facts: Facts, metadata: TableMetadata, *, table: str, location: str, hash_of: Callable[[TableMetadataV3], str] = metadata_hash
) -> None:
    """Compare a metadata file that was read with the facts; ``hash_of`` may know the hash already.

    Raises:
        IntegrityError: it is not the file that was committed.
    """
    if facts.key_id is None:
        return
    expected = {names.ENCRYPTION_KEY_ID: facts.key_id, names.DATA_KEY_LENGTH: facts.data_key_length}
    for name, value in expected.items():
        found = metadata.properties.get(name)
        if found != value:
            _modified(facts, table, location, f"its {name} is {found!r}, and {facts.where} says {value!r}")
    if not isinstance(metadata, TableMetadataV3):
        _modified(
            facts, table, location, f"it has format version {metadata.format_version}, and {facts.where} says that the table is encrypted"
        )
    if facts.metadata_location != location:
        return
    found = hash_of(metadata)
    if not hmac.compare_digest(found.encode(), str(facts.metadata_hash).encode()):
        _modified(facts, table, location, f"its hash is {found}, and {facts.where} says {facts.metadata_hash}")


def _modified(facts: Facts, table: str, location: str, why: str) -> NoReturn:
    raise IntegrityError(
        f"metadata file {location} of table {table} might have been modified: {why}; restore the file that was committed. If another "
        f"client has recreated the table, {facts.anew}"
    )
