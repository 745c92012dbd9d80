"""``AwsKms``: AWS Key Management Service.

Wrapped key = the raw ``CiphertextBlob`` of Encrypt, without encryption context, as Java's ``AwsKeyManagementClient``. It says which
backing key made it, so rotation in the service leaves older ones open. The key id may be an id, an ARN or an alias: it is passed to the
service unchanged, and never compared.

Properties, with Java's names: ``kms.endpoint``, ``client.region`` and ``kms.encryption-algorithm-spec`` (``SYMMETRIC_DEFAULT``).
``kms.data-key-spec`` is accepted and ignored: keys are generated locally. Credentials come from AWS's default chain
(environment, shared files, container, instance). If they have expired, the chain is asked once more within the call.

A reader needs ``kms:Decrypt``, a writer ``kms:Encrypt`` too. boto3's own retries are off (``kms/retry.py``).

Source: AWS KMS API reference, "Encrypt", "Decrypt"; Iceberg ``AwsKeyManagementClient``, ``AwsProperties``; cases C-38, C-71.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from botocore import exceptions
from botocore.config import Config
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParserError
from botocore.session import Session

from icelock.errors import KmsError, KmsErrorKind, PolicyError
from icelock.kms.failure import Call, Service
from icelock.kms.retry import RetryPolicy
from icelock.properties import CLIENT_REGION, KMS_AWS_ALGORITHM, KMS_AWS_ENDPOINT

_SERVICE: Final = Service(
    name="AWS KMS",
    remedies={
        KmsErrorKind.MISSING: f"correct encryption.key-id, {CLIENT_REGION} or the account that the credentials are of",
        KmsErrorKind.DISABLED: "enable the key, or cancel its deletion",
        KmsErrorKind.DENIED: "grant these credentials the right to {call} (kms:Encrypt to wrap, kms:Decrypt to unwrap), or renew them",
        KmsErrorKind.UNAVAILABLE: f"wait for the service, or correct {KMS_AWS_ENDPOINT} or {CLIENT_REGION}",
    },
)
DEFAULT_ALGORITHM: Final = "SYMMETRIC_DEFAULT"
_ALGORITHMS: Final = (DEFAULT_ALGORITHM, "RSAES_OAEP_SHA_1", "RSAES_OAEP_SHA_256", "SM2PKE")
_MISSING: Final = ("NotFoundException", "InvalidArnException")
_DISABLED: Final = ("DisabledException", "KMSInvalidStateException", "InvalidKeyUsageException")
_FOREIGN: Final = ("InvalidCiphertextException", "IncorrectKeyException")
_EXPIRED: Final = ("ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId")
_DENIED: Final = (
    "AccessDeniedException",
    "InvalidSignatureException",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    *_EXPIRED,
)
_KIND_OF_CODE: Final[Mapping[str, KmsErrorKind]] = {
    **dict.fromkeys(_MISSING, KmsErrorKind.MISSING),
    **dict.fromkeys(_DISABLED, KmsErrorKind.DISABLED),
    **dict.fromkeys(_FOREIGN, KmsErrorKind.FOREIGN),
    **dict.fromkeys(_DENIED, KmsErrorKind.DENIED),
}
_NO_CREDENTIALS: Final = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.ProfileNotFound,
    exceptions.ConfigNotFound,
    exceptions.SSOError,
    exceptions.TokenRetrievalError,
    exceptions.LoginError,
    exceptions.NoAuthTokenError,
)


class AwsKms:
    """A KMS whose master keys are in AWS KMS.

    Args:
        properties: the catalog's properties.
        client: a ready boto3 KMS client, used unchanged, including its retries.

    Raises:
        PolicyError: an unknown algorithm, or an endpoint that is not http or https.
    """

    def __init__(self, properties: Mapping[str, str], *, client: Any = None) -> None:
        self._endpoint = properties.get(KMS_AWS_ENDPOINT)
        self._region = properties.get(CLIENT_REGION)
        self._algorithm = properties.get(KMS_AWS_ALGORITHM, DEFAULT_ALGORITHM)
        if self._algorithm not in _ALGORITHMS:
            raise PolicyError(f"{KMS_AWS_ALGORITHM} is {self._algorithm!r}; it must be one of {', '.join(_ALGORITHMS)}")
        if self._endpoint is not None and not self._endpoint.startswith(("http://", "https://")):
            raise PolicyError(
                f"{KMS_AWS_ENDPOINT} is {self._endpoint!r}; it must be a URL, such as 'https://kms.eu-central-1.amazonaws.com'"
            )
        self._timeout = RetryPolicy.from_properties(properties).call_timeout_seconds
        self._given = client
        self._made: Any = None
        self._lock = threading.Lock()

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the newest version of the master key (see ``KmsClient.wrap_key``)."""
        arguments = {"KeyId": wrapping_key_id, "Plaintext": key, "EncryptionAlgorithm": self._algorithm}
        return self._call("wrap", wrapping_key_id, "CiphertextBlob", lambda kms: kms.encrypt(**arguments))

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Decrypt what ``wrap_key`` returned under any version of the master key (see ``KmsClient.unwrap_key``)."""
        if not wrapped_key:
            raise _SERVICE.failure(KmsErrorKind.FOREIGN, call="unwrap", key_id=wrapping_key_id, code="0 bytes")
        arguments = {"KeyId": wrapping_key_id, "CiphertextBlob": wrapped_key, "EncryptionAlgorithm": self._algorithm}
        return self._call("unwrap", wrapping_key_id, "Plaintext", lambda kms: kms.decrypt(**arguments))

    def _call(self, call: Call, key_id: str, member: str, ask: Callable[[Any], Any]) -> bytes:
        try:
            try:
                answer = self._asked(ask)
            except exceptions.ClientError as e:
                if self._given is not None or _code(e) not in _EXPIRED:
                    raise
                answer = self._asked(ask)
            return bytes(answer[member])
        except (exceptions.ClientError, exceptions.BotoCoreError, ResponseParserError, KeyError) as e:
            raise _failure(e, call=call, key_id=key_id) from e

    def _asked(self, ask: Callable[[Any], Any]) -> Any:
        kms: Any = None
        try:
            kms = self._client()
            return ask(kms)
        except exceptions.ClientError as e:
            if _code(e) in _EXPIRED:
                self._drop(kms)
            raise
        except exceptions.BotoCoreError:
            self._drop(kms)
            raise

    def _client(self) -> Any:
        if self._given is not None:
            return self._given
        with self._lock:
            if self._made is None:
                config = Config(retries={"total_max_attempts": 1}, connect_timeout=self._timeout, read_timeout=self._timeout)
                self._made = _session().create_client("kms", endpoint_url=self._endpoint, region_name=self._region, config=config)
            return self._made

    def _drop(self, kms: Any) -> None:
        """Make the next call ask the credential chain again."""
        with self._lock:
            if self._made is kms:
                self._made = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(endpoint {self._endpoint!r}, region {self._region!r})"


def _session() -> Session:
    """Return a session that looks for credentials anew, with the models of services that all sessions share (0.15 s of CPU to read)."""
    session = Session()
    session.register_component("data_loader", _models(session.get_config_variable("data_path")))
    return session


@cache
def _models(folders: str | None) -> Loader:
    """Return what reads models of services from AWS's folders and those of ``AWS_DATA_PATH``, and keeps them."""
    return create_loader(folders)


def _code(error: exceptions.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _failure(error: Exception, *, call: Call, key_id: str) -> KmsError:
    kind, code = KmsErrorKind.UNAVAILABLE, type(error).__name__
    if isinstance(error, exceptions.ClientError):
        code = _code(error)
        kind = _KIND_OF_CODE.get(code, kind)
    elif isinstance(error, exceptions.ParamValidationError):
        kind = KmsErrorKind.MISSING if call == "wrap" or not key_id else KmsErrorKind.FOREIGN
    elif isinstance(error, _NO_CREDENTIALS):
        kind = KmsErrorKind.DENIED
    elif isinstance(error, exceptions.NoRegionError):
        kind = KmsErrorKind.MISSING
    return _SERVICE.failure(kind, call=call, key_id=key_id, code=code)
