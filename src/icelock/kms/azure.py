"""``AzureKms``: Azure Key Vault and Managed HSM.

Wrapped key = the raw RSA output of wrapKey, without the key's version, as Java's ``AzureKeyManagementClient``. The key id is a name, or
``name/version``.

The service unwraps a bare name with the newest version only. If that does not open the blob, the versions are listed and the other
enabled ones tried, so that old blobs open after a rotation (Java does not do this). This needs the permission to list keys;
without it the id must be ``name/version``.

The requests go through the official client's pipeline, but not through its ``CryptographyClient``: that one needs the permission to
get the key, and wraps with the public key locally, ignoring permissions and disabled keys (azure-sdk-for-python 45342).

Properties, with Java's names: ``azure.keyvault.url`` and ``azure.keyvault.key-wrap-algorithm`` (``RSA-OAEP-256``). Credentials come from
``DefaultAzureCredential`` and are renewed by it. azure-core's own retries are off (``kms/retry.py``).

A reader needs unwrapKey, a writer wrapKey too. Not run against the real cloud: the tests have a double of the service.

Source: Key Vault REST API, "wrapKey", "unwrapKey", "Get Key Versions"; Iceberg ``AzureKeyManagementClient``, ``AzureProperties``.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from azure.core import exceptions
from azure.core.rest import HttpRequest, HttpResponse
from azure.identity import DefaultAzureCredential
from azure.keyvault.keys import KeyClient

from icelock.errors import KmsError, KmsErrorKind, PolicyError
from icelock.kms.failure import Call, Service
from icelock.kms.retry import RetryPolicy
from icelock.properties import AZURE_KEYVAULT_KEY_WRAP_ALGORITHM, AZURE_KEYVAULT_URL

_SERVICE: Final = Service(
    name="Azure Key Vault",
    remedies={
        KmsErrorKind.MISSING: f"correct encryption.key-id or {AZURE_KEYVAULT_URL}",
        KmsErrorKind.DISABLED: "enable the key or that version, or recover it if it was deleted",
        KmsErrorKind.DENIED: "grant this identity the key permission {call}Key, or correct its credentials",
        KmsErrorKind.FOREIGN: (
            "the wrapped key was changed, or another key or version wrapped it; after a rotation grant the key permission list too, or set "
            "encryption.key-id to name/version"
        ),
        KmsErrorKind.UNAVAILABLE: f"wait for the service, or correct {AZURE_KEYVAULT_URL}",
    },
)
DEFAULT_ALGORITHM: Final = "RSA-OAEP-256"
_ALGORITHMS: Final = (DEFAULT_ALGORITHM, "RSA-OAEP", "RSA1_5", "A128KW", "A192KW", "A256KW")
# The service's own rule. A key id comes from table metadata, and must not lead to another path or host.
_KEY_ID: Final = re.compile(r"[0-9A-Za-z-]{1,127}(?:/[0-9A-Za-z]{1,64})?", re.ASCII)
_OK: Final = 200
_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
_KIND_OF_STATUS: Final[Mapping[int, KmsErrorKind]] = {
    401: KmsErrorKind.DENIED,
    _FORBIDDEN: KmsErrorKind.DENIED,
    404: KmsErrorKind.MISSING,
}
_UNUSABLE: Final = re.compile(r"disabled|expired|notyetvalid|not yet valid|deletedbutrecoverable|deleted but recoverable", re.IGNORECASE)


class AzureKms:
    """A KMS whose master keys are in an Azure key vault.

    Args:
        properties: the catalog's properties.
        client: a ready ``KeyClient``, used unchanged, including its retries.

    Raises:
        PolicyError: no vault, or one that is not https; an unknown algorithm.
    """

    def __init__(self, properties: Mapping[str, str], *, client: KeyClient | None = None) -> None:
        self._url = properties.get(AZURE_KEYVAULT_URL, "") if client is None else client.vault_url
        if not self._url.startswith("https://"):
            raise PolicyError(f"{AZURE_KEYVAULT_URL} is {self._url!r}; set it to the vault, such as 'https://lake.vault.azure.net'")
        self._algorithm = properties.get(AZURE_KEYVAULT_KEY_WRAP_ALGORITHM, DEFAULT_ALGORITHM)
        if self._algorithm not in _ALGORITHMS:
            raise PolicyError(f"{AZURE_KEYVAULT_KEY_WRAP_ALGORITHM} is {self._algorithm!r}; it must be one of {', '.join(_ALGORITHMS)}")
        self._timeout = RetryPolicy.from_properties(properties).call_timeout_seconds
        self._client = client
        self._lock = threading.Lock()

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the newest version of the master key, or the version named (see ``KmsClient.wrap_key``)."""
        return self._ask("wrap", wrapping_key_id, wrapping_key_id, key)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Decrypt what ``wrap_key`` returned under any version of the master key (see ``KmsClient.unwrap_key``)."""
        try:
            return self._ask("unwrap", wrapping_key_id, wrapping_key_id, wrapped_key)
        except KmsError as e:
            if e.kind is not KmsErrorKind.FOREIGN or "/" in wrapping_key_id or not wrapped_key:
                raise
            refused = e
        for version in self._versions(wrapping_key_id):
            try:
                return self._ask("unwrap", wrapping_key_id, f"{wrapping_key_id}/{version}", wrapped_key)
            except KmsError as e:
                if e.kind is not KmsErrorKind.FOREIGN:
                    raise
        raise refused

    def _ask(self, call: Call, key_id: str, key: str, value: bytes) -> bytes:
        if not _KEY_ID.fullmatch(key_id):
            raise _SERVICE.failure(KmsErrorKind.MISSING, call=call, key_id=key_id, code="not a name of a key, or name/version")
        body = {"alg": self._algorithm, "value": base64.urlsafe_b64encode(value).rstrip(b"=").decode()}
        response = self._answer(call, key_id, HttpRequest("POST", f"/keys/{key}/{call}key", json=body))
        if response.status_code != _OK:
            kind, code = _reason(response, call)
            raise _SERVICE.failure(kind, call=call, key_id=key_id, code=code)
        try:
            text = response.json()["value"]
            return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (ValueError, KeyError, TypeError, exceptions.AzureError) as e:
            raise _SERVICE.failure(KmsErrorKind.UNAVAILABLE, call=call, key_id=key_id, code="an answer that is not the service's") from e

    def _answer(self, call: Call, key_id: str, request: HttpRequest) -> HttpResponse:
        try:
            return self._key_client().send_request(request)
        except exceptions.ClientAuthenticationError as e:
            raise _SERVICE.failure(KmsErrorKind.DENIED, call=call, key_id=key_id, code=type(e).__name__) from e
        except exceptions.AzureError as e:
            raise _SERVICE.failure(KmsErrorKind.UNAVAILABLE, call=call, key_id=key_id, code=type(e).__name__) from e
        except ValueError as e:
            # The client refuses to send a token to a server that asks for one of another service.
            code = "the server asks for a token that is not of a key vault in its domain"
            raise _SERVICE.failure(KmsErrorKind.DENIED, call=call, key_id=key_id, code=code) from e

    def _versions(self, name: str) -> Iterator[str]:
        """Yield the enabled versions, newest first; nothing without the permission to list them."""
        try:
            found = [version for version in self._key_client().list_properties_of_key_versions(name) if version.enabled and version.version]
        except exceptions.AzureError as e:
            if isinstance(e, exceptions.HttpResponseError) and e.status_code == _FORBIDDEN:
                return
            raise _SERVICE.failure(KmsErrorKind.UNAVAILABLE, call="unwrap", key_id=name, code=type(e).__name__) from e
        for version in sorted(found, key=lambda one: one.created_on.timestamp() if one.created_on else 0, reverse=True):
            yield str(version.version)

    def _key_client(self) -> KeyClient:
        with self._lock:
            if self._client is None:
                options: dict[str, Any] = {"retry_total": 0, "connection_timeout": self._timeout, "read_timeout": self._timeout}
                self._client = KeyClient(self._url, DefaultAzureCredential(), **options)
            return self._client

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"


def _reason(response: HttpResponse, call: Call) -> tuple[KmsErrorKind, str]:
    """Return the kind of a refusal, and its code."""
    status = response.status_code
    try:
        error = response.json()["error"]
        inner = error.get("innererror") or error.get("innerError") or {}
        code, said = str(inner.get("code") or error["code"]), f"{inner.get('code')} {error.get('message')}"
    except (ValueError, KeyError, TypeError, AttributeError):
        code, said = "no code", ""
    if _UNUSABLE.search(said) and status in (403, 404, 409):
        kind = KmsErrorKind.DISABLED
    elif status == _BAD_REQUEST:
        kind = KmsErrorKind.FOREIGN if call == "unwrap" else KmsErrorKind.DISABLED
    else:
        kind = _KIND_OF_STATUS.get(status, KmsErrorKind.UNAVAILABLE)
    return kind, f"{status} {code}"
