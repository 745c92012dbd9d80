"""``GcpKms``: Google Cloud Key Management Service.

Wrapped key = the raw ciphertext of Encrypt, without additional authenticated data, as Java's ``GcpKeyManagementClient``. It says which
version of the key made it, so rotation in the service leaves older ones open. The key id is the resource name of a CryptoKey,
``projects/P/locations/L/keyRings/R/cryptoKeys/K``.

Credentials are the application defaults, renewed by Google's library; or the token in ``gcs.oauth2.token`` (Java's name), never renewed.
The library's own retries are off (``kms/retry.py``): with ``timeout`` alone it kept trying for a minute.

A reader needs ``cloudkms.cryptoKeyVersions.useToDecrypt``, a writer ``useToEncrypt`` too. Not run against the real cloud: the tests have
a double of the service.

Source: Cloud KMS API reference, "Encrypt", "Decrypt"; Iceberg ``GcpKeyManagementClient``, ``GCPProperties``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud import kms_v1
from google.oauth2.credentials import Credentials

from icelock.errors import KmsError, KmsErrorKind
from icelock.kms.failure import Call, Service
from icelock.kms.retry import RetryPolicy
from icelock.properties import GCS_OAUTH2_TOKEN

_SERVICE: Final = Service(
    name="Google Cloud KMS",
    remedies={
        KmsErrorKind.MISSING: "correct encryption.key-id: projects/P/locations/L/keyRings/R/cryptoKeys/K",
        KmsErrorKind.DISABLED: "enable the key version, or restore it if its destruction is scheduled",
        KmsErrorKind.DENIED: "grant the right to {call} (cloudkms.cryptoKeyVersions.useToEncrypt, useToDecrypt), or renew the credentials",
    },
)
# A key id comes from table metadata, and must not name anything else.
_KEY_NAME: Final = re.compile(r"projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+")
# gRPC says "unavailable" when the credentials cannot be renewed, with the library's error in the text.
_REFRESH_FAILED: Final = re.compile(r"metadata from plugin failed.*(?:invalid_grant|RefreshError|Reauthentication)", re.DOTALL)
_KINDS: Final[tuple[tuple[type[Exception], KmsErrorKind], ...]] = (
    (exceptions.NotFound, KmsErrorKind.MISSING),
    (exceptions.FailedPrecondition, KmsErrorKind.DISABLED),
    (exceptions.Forbidden, KmsErrorKind.DENIED),
    (exceptions.Unauthorized, KmsErrorKind.DENIED),
    (auth_exceptions.TransportError, KmsErrorKind.UNAVAILABLE),
    (auth_exceptions.TimeoutError, KmsErrorKind.UNAVAILABLE),
    (auth_exceptions.GoogleAuthError, KmsErrorKind.DENIED),
)


class GcpKms:
    """A KMS whose master keys are in Google Cloud KMS.

    Args:
        properties: the catalog's properties.
        client: a ready ``KeyManagementServiceClient``, used unchanged.
    """

    def __init__(self, properties: Mapping[str, str], *, client: kms_v1.KeyManagementServiceClient | None = None) -> None:
        self._token = properties.get(GCS_OAUTH2_TOKEN)
        self._timeout = RetryPolicy.from_properties(properties).call_timeout_seconds
        self._client = client
        self._lock = threading.Lock()

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the primary version of the master key (see ``KmsClient.wrap_key``)."""
        request = {"name": wrapping_key_id, "plaintext": key}
        return bytes(self._call("wrap", wrapping_key_id, lambda kms: kms.encrypt(request, retry=None, timeout=self._timeout)).ciphertext)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Decrypt what ``wrap_key`` returned under any version of the master key (see ``KmsClient.unwrap_key``)."""
        request = {"name": wrapping_key_id, "ciphertext": wrapped_key}
        return bytes(self._call("unwrap", wrapping_key_id, lambda kms: kms.decrypt(request, retry=None, timeout=self._timeout)).plaintext)

    def _call(self, call: Call, key_id: str, ask: Callable[[kms_v1.KeyManagementServiceClient], Any]) -> Any:
        if not _KEY_NAME.fullmatch(key_id):
            raise _SERVICE.failure(KmsErrorKind.MISSING, call=call, key_id=key_id, code="not the name of a CryptoKey")
        try:
            return ask(self._service())
        except (exceptions.GoogleAPIError, auth_exceptions.GoogleAuthError) as e:
            raise _failure(e, call=call, key_id=key_id) from e

    def _service(self) -> kms_v1.KeyManagementServiceClient:
        with self._lock:
            if self._client is None:
                credentials = None if self._token is None else Credentials(token=self._token)  # type: ignore[no-untyped-call]
                self._client = kms_v1.KeyManagementServiceClient(credentials=credentials)
            return self._client

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _failure(error: Exception, *, call: Call, key_id: str) -> KmsError:
    if isinstance(error, exceptions.InvalidArgument):
        kind = KmsErrorKind.FOREIGN if call == "unwrap" else KmsErrorKind.DISABLED
    elif _REFRESH_FAILED.search(str(error)):
        kind = KmsErrorKind.DENIED
    else:
        kind = next((kind for kinds, kind in _KINDS if isinstance(error, kinds)), KmsErrorKind.UNAVAILABLE)
    return _SERVICE.failure(kind, call=call, key_id=key_id, code=type(error).__name__)
