"""The parameters of a table's row in the Hive metastore, and what they prove about the metadata file that the row names.

    table_type=ICEBERG  metadata_location  previous_metadata_location  EXTERNAL
    encryption.key-id   encryption.data-key-length    only for an encrypted table
    metadata_hash       base64(SHA-256(canonical metadata)), see ``metadata.canonical_json``
    and the table's properties, as PyIceberg and Java put them there

The metastore is trusted, the storage is not: key id, key length and hash of the row are right, and a metadata file that
says otherwise was replaced or changed (source: Java HiveTableOperations.checkIntegrityForEncryption; cases C-15). Stricter than
Java: a row with a key id and without a hash is refused unless ``icelock.hive.require-hash`` is false; a row without a key
id cannot name an encrypted table. Parameters of others are kept. Values are short (case C-45): no key list, no snapshots,
and no table property beyond 4,000 characters.

Not here: the thrift calls (``catalog.hive.catalog``).
"""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from pyiceberg.catalog import hive as ice
from pyiceberg.catalog.hive import _construct_parameters
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.catalog.trust.facts import Facts
from icelock.errors import IntegrityError
from icelock.metadata.canonical_json import metadata_hash
from icelock.metadata.table_metadata import TableMetadataV3, is_encrypted

logger = logging.getLogger(__name__)

METADATA_HASH: Final = "metadata_hash"
LONGEST_VALUE: Final = 4000
# Names that the row itself uses; a table property of such a name stays in the metadata file.
_OWN: Final = (ice.PROP_EXTERNAL, ice.PROP_TABLE_TYPE, ice.PROP_METADATA_LOCATION, ice.PROP_PREVIOUS_METADATA_LOCATION, METADATA_HASH)
_BEYOND_BMP: Final = "\U00010000"


def row_parameters(
    existing: Mapping[str, str] | None,
    metadata: TableMetadata,
    *,
    location: str,
    previous: str | None = None,
    removed: Iterable[str] = (),
    digest: str | None = None,
) -> dict[str, str]:
    """Return the parameters of a row that names a metadata file.

    Args:
        existing: the row's present parameters; those of other clients are kept.
        metadata: the content of the file.
        location: the file.
        previous: the metadata file that the row named until now.
        removed: table properties that the new metadata no longer has.
        digest: the metadata's hash, if it is known already.
    """
    gone = {METADATA_HASH, *removed}
    kept = {key: value for key, value in (existing or {}).items() if key not in gone}
    pushed = {}
    for key, value in metadata.properties.items():
        if key in _OWN:
            continue
        if len(str(value)) > LONGEST_VALUE and key not in names.FIXED:
            kept.pop(key, None)
            logger.debug("property %s of %s is longer than %d characters: it stays in metadata only", key, location, LONGEST_VALUE)
            continue
        pushed[key] = str(value)
    written: dict[str, str] = {**kept, **_construct_parameters(location, previous, pushed)}
    if names.ENCRYPTION_KEY_ID in written and isinstance(metadata, TableMetadataV3):
        written[METADATA_HASH] = digest or metadata_hash(metadata)
    return written


def facts_of(parameters: Mapping[str, str], location: str) -> Facts:
    """Return what a row says of the metadata file that it names."""
    return Facts(
        named=location,
        metadata_location=location,
        key_id=parameters.get(names.ENCRYPTION_KEY_ID),
        data_key_length=parameters.get(names.DATA_KEY_LENGTH),
        metadata_hash=parameters.get(METADATA_HASH),
        where="the metastore",
        anew="correct its parameters",
    )


def check_row(
    parameters: Mapping[str, str],
    metadata: TableMetadata,
    *,
    table: str,
    location: str,
    require_hash: bool,
    file_digest: bytes = b"",
) -> None:
    """Check a metadata file that was read against the row that names it.

    ``file_digest`` is the SHA-256 of the file's bytes: if they are the canonical text, it is the hash, which then need not be computed.

    Raises:
        IntegrityError: the file is not the one that was committed, or the row has no hash though one is required.
    """
    key_id = parameters.get(names.ENCRYPTION_KEY_ID)
    digest = parameters.get(METADATA_HASH)
    if key_id is None:
        if digest or is_encrypted(metadata):
            has = f"a {METADATA_HASH}" if digest else "a metadata file with encryption keys or a key id"
            raise IntegrityError(
                f"table {table} has {has} but no {names.ENCRYPTION_KEY_ID} in the metastore: the parameter was removed, or {location} "
                "might have been modified; compare both with a backup before you restore either"
            )
        return
    for name in names.FIXED:
        expected, found = parameters.get(name), metadata.properties.get(name)
        if expected != found:
            _modified(table, location, f"its {name} is {found!r}, and the metastore says {expected!r}")
    if not isinstance(metadata, TableMetadataV3):
        _modified(table, location, f"it has format version {metadata.format_version}, and the metastore says that the table is encrypted")
    if digest:
        _check_hash(digest, metadata, file_digest, table=table, location=location)
    elif require_hash:
        raise IntegrityError(
            f"table {table} is encrypted, but the metastore has no {METADATA_HASH} for it: the hash was removed, or the table was last "
            f"committed by a client that writes none (Java before 1.11). If you trust {location}, set the catalog property "
            f"{names.HIVE_REQUIRE_HASH}=false and commit once (any change), which writes the hash; then take the property out again"
        )


def warn_beyond_bmp(metadata: TableMetadata, *, table: str, text: str) -> None:
    """Log a warning when metadata, whose canonical text is given, has characters that Java's hash may fail on.

    Java encodes the JSON in pieces and fails when a surrogate pair is split between two (source: Java HashWriter).
    """
    if names.ENCRYPTION_KEY_ID not in metadata.properties or not isinstance(metadata, TableMetadataV3):
        return
    if text.isascii() or max(text) < _BEYOND_BMP:
        return
    beyond = next(i for i, character in enumerate(text) if character >= _BEYOND_BMP)
    logger.warning(
        "metadata of table %s has a character outside the basic plane (%r, near %r): Java 1.12 may be unable to load the table from a "
        "Hive catalog; use other characters in names, comments and properties",
        table,
        text[beyond],
        text[max(0, beyond - 30) : beyond + 10],
    )


def _check_hash(digest: str, metadata: TableMetadataV3, file_digest: bytes, *, table: str, location: str) -> None:
    try:
        expected = base64.b64decode(digest, validate=True)
    except ValueError as e:
        raise IntegrityError(
            f"{METADATA_HASH} of table {table} in the metastore is {digest!r}, which is not base64: restore the parameter"
        ) from e
    if hmac.compare_digest(expected, file_digest):
        return
    found = metadata_hash(metadata)
    if not hmac.compare_digest(expected, base64.b64decode(found)):
        _modified(table, location, f"its hash is {found}, and the metastore says {digest}")


def _modified(table: str, location: str, why: str) -> NoReturn:
    raise IntegrityError(
        f"metadata file {location} of table {table} might have been modified: {why}; restore the file that was committed, or find out "
        "which client changed the table without writing the hash"
    )
