"""What a REST catalog's server answers about a table, and which of its settings are ignored.

    {"metadata-location": text, "metadata": table metadata, "config": {name: value}, "storage-credentials": [{"prefix", "config"}]}

The server is trusted with metadata; of the settings that it sends, only those count that a server may set (``catalog.rest.settings``).
Properties of a table configure only what is done with the table; ``encryption.*``, ``kms.*``, ``azure.keyvault.*``, ``icelock.*`` and
``py-*`` among them are ignored, and logged. An answer that is not what the protocol demands is a FormatError.

Not here: requests (``catalog.rest.requests``).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS, Endpoint
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.catalog.rest import settings as rest_settings
from icelock.errors import FormatError
from icelock.metadata.table_metadata import parse_metadata_object

_OWN: Final = ("encryption.", "kms.", "icelock.", "py-", "azure.keyvault.")
# When credentials end, in milliseconds since 1970; Azure's has the account's name behind it.
_EXPIRY: Final = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAnswer:
    """A table as the server has it; ``location`` is empty if it is only staged."""

    metadata: TableMetadata
    location: str
    config: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[StorageCredential, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, *, table: str) -> TableAnswer:
        """Read an answer; metadata of version 3 becomes ours."""
        what = f"about table {table}"
        body = json_object(text, what=what)
        location, metadata = body.get("metadata-location") or "", body.get("metadata")
        if not isinstance(location, str) or not isinstance(metadata, dict):
            raise _not_the_protocol(what, "no metadata-location that is text, or no metadata that is an object")
        config, ignored = rest_settings.of_table(_settings(body.get("config"), what=what))
        credentials, strange = storage_credentials(body.get("storage-credentials"), what=what)
        parsed = parse_metadata_object(metadata, location=location or f"staged metadata of table {table}")
        own = [name for name in parsed.properties if is_own(name) and not names.is_of_tables(name)]
        return cls(metadata=parsed, location=location, config=config, credentials=credentials, ignored=(*ignored, *strange, *own))

    def storage_config(self, place: str) -> Mapping[str, str]:
        """Return the storage's settings: the table's, and the credentials that fit a place best."""
        return {**self.config, **best_credentials(self.credentials, place)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigAnswer:
    """The answer of ``/v1/config``: the settings that count, what the server supports, and the names of ignored settings."""

    defaults: Mapping[str, str]
    overrides: Mapping[str, str]
    endpoints: frozenset[Endpoint]
    ignored_defaults: tuple[str, ...]
    ignored_overrides: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> ConfigAnswer:
        """Read an answer."""
        what = "to v1/config"
        body = json_object(text, what=what)
        defaults, ignored_defaults = rest_settings.of_catalog(_settings(body.get("defaults"), what=what))
        overrides, ignored_overrides = rest_settings.of_catalog(_settings(body.get("overrides"), what=what))
        return cls(
            defaults=defaults,
            overrides=overrides,
            endpoints=_endpoints(body.get("endpoints"), what=what),
            ignored_defaults=ignored_defaults,
            ignored_overrides=ignored_overrides,
        )


def json_object(text: str, *, what: str) -> dict[str, Any]:
    """Return an answer that has to be a JSON object; ``what`` it answers is for the message."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise _not_the_protocol(what, f"not JSON ({str(e)[:200]})") from e
    if not isinstance(body, dict):
        raise _not_the_protocol(what, "not a JSON object")
    return body


def storage_credentials(sent: Any, *, what: str) -> tuple[tuple[StorageCredential, ...], tuple[str, ...]]:
    """Return storage credentials with those of their settings that count, and the names of the others."""
    if not isinstance(sent, list) and sent is not None:
        raise _not_the_protocol(what, "storage-credentials are not a list")
    kept: list[StorageCredential] = []
    ignored: list[str] = []
    for one in sent or ():
        prefix = one.get("prefix") if isinstance(one, dict) else None
        if not isinstance(prefix, str):
            raise _not_the_protocol(what, "storage-credentials need a prefix and a config")
        config, strange = rest_settings.of_storage(_settings(one.get("config"), what=what))
        kept.append(StorageCredential(prefix=prefix, config=config))
        ignored += strange
    return tuple(kept), tuple(ignored)


def _settings(sent: Any, *, what: str) -> Mapping[str, Any]:
    if not isinstance(sent, dict) and sent is not None:
        raise _not_the_protocol(what, "settings are not an object")
    return sent or {}


def _endpoints(sent: Any, *, what: str) -> frozenset[Endpoint]:
    """Return what a server supports; unknown endpoints are left out, and a server that lists none supports the default ones."""
    if not isinstance(sent, list) and sent is not None:
        raise _not_the_protocol(what, "endpoints are not a list")
    known: set[Endpoint] = set()
    for one in sent or ():
        with contextlib.suppress(ValueError, AttributeError):
            known.add(Endpoint.from_string(one))
    return frozenset(known) if sent else DEFAULT_ENDPOINTS


def _not_the_protocol(what: str, why: str) -> FormatError:
    return FormatError(f"the REST server's answer {what} is not what the protocol demands: {why}")


def is_own(name: str) -> bool:
    """Whether a setting is the client's alone, also as a default or override for new tables."""
    lowered = name.lower()
    for prefix in (names.TABLE_DEFAULT_PREFIX, names.TABLE_OVERRIDE_PREFIX):
        lowered = lowered.removeprefix(prefix)
    return lowered.startswith(_OWN)


def best_credentials(credentials: Iterable[StorageCredential], location: str) -> Mapping[str, str]:
    """Return the credentials whose prefix fits a location and is longest (source: Java S3FileIO.clientForStoragePath)."""
    fitting = [one for one in credentials if location.startswith(one.prefix)]
    return max(fitting, key=lambda one: len(one.prefix)).config if fitting else {}


def end_of(config: Mapping[str, str]) -> int | None:
    """Return when the first of the credentials among storage settings expires, in ms since 1970; None if unknown."""
    ends = [int(value) for name, value in config.items() if name.startswith(_EXPIRY) and names.is_number(str(value))]
    return min(ends, default=None)
