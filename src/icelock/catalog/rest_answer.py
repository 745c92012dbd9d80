"""What a REST catalog's server answers about a table, and which of its settings are not listened to.

    {"metadata-location": text, "metadata": table metadata, "config": {name: value}, "storage-credentials": [{"prefix", "config"}]}

The server is trusted with metadata; where keys come from, and which classes are loaded, is the client's business alone: ``encryption.*``,
``kms.*``, ``azure.keyvault.*``, ``icelock.*`` and ``py-*`` of its configuration, of a table's ``config`` and of credentials are left out
(docs/threat-model.md).

Not here: requests (``catalog.rest_requests``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from pyiceberg.catalog.rest.scan_planning import StorageCredential

from icelock import properties as names
from icelock.errors import FormatError
from icelock.metadata.table_metadata import parse_metadata_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.table.metadata import TableMetadata

_OWN: Final = ("encryption.", "kms.", "icelock.", "py-", "azure.keyvault.")
_OF_TABLES: Final = (names.ENCRYPTION_KEY_ID, names.DATA_KEY_LENGTH)
# When credentials end, in milliseconds since 1970; Azure's has the account's name behind it.
_EXPIRY: Final = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAnswer:
    """A table as the server has it; ``location`` is empty for one that is only staged."""

    metadata: TableMetadata
    location: str
    config: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[StorageCredential, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, *, table: str) -> TableAnswer:
        """Read an answer; metadata of version 3 becomes ours.

        Raises:
            FormatError: it is not what the protocol demands.
        """
        try:
            body = json.loads(text)
            credentials = tuple(StorageCredential.model_validate(one) for one in body.get("storage-credentials") or ())
            location, config = body.get("metadata-location") or "", body.get("config") or {}
            metadata = body["metadata"]
            sent = {str(name): str(value) for name, value in config.items()}
        except (ValueError, KeyError, AttributeError, TypeError, ValidationError) as e:
            msg = f"the REST server's answer about table {table} is not what the protocol demands: {type(e).__name__} {e}"
            raise FormatError(msg) from e
        parsed = parse_metadata_object(metadata, location=location or f"staged metadata of table {table}")
        kept, ignored = without_own(sent)
        strange = [name for name in parsed.properties if is_own(name) and name not in _OF_TABLES]
        return cls(metadata=parsed, location=str(location), config=kept, credentials=credentials, ignored=(*ignored, *strange))

    def storage_config(self, place: str) -> Mapping[str, str]:
        """Return the storage's settings: the table's, and the credentials that fit a place best."""
        return {**self.config, **best_credentials(self.credentials, place)}


def is_own(name: str) -> bool:
    """Whether a setting is the client's business alone; so is what it says of new tables in such a name."""
    lowered = name.lower()
    for prefix in (names.TABLE_DEFAULT_PREFIX, names.TABLE_OVERRIDE_PREFIX):
        lowered = lowered.removeprefix(prefix)
    return lowered.startswith(_OWN)


def without_own(sent: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a server's settings without those that are the client's business, and the names of these."""
    return {name: value for name, value in sent.items() if not is_own(name)}, tuple(name for name in sent if is_own(name))


def best_credentials(credentials: Iterable[StorageCredential], location: str) -> Mapping[str, str]:
    """Return the credentials whose prefix fits a location and is longest (source: Java S3FileIO.clientForStoragePath)."""
    fitting = [one for one in credentials if location.startswith(one.prefix)]
    return without_own(max(fitting, key=lambda one: len(one.prefix)).config)[0] if fitting else {}


def end_of(config: Mapping[str, str]) -> int | None:
    """Return when the first of the credentials among storage settings ends, in ms since 1970; None if none says."""
    ends = [int(value) for name, value in config.items() if name.startswith(_EXPIRY) and str(value).isdigit()]
    return min(ends, default=None)
