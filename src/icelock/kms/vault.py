"""``VaultKms``: HashiCorp Vault and OpenBao, transit engine.

Wrapped key = UTF-8 of what transit returns, ``vault:vN:base64``; N is the version of the master key, and rotation in the service
leaves older ones open. The format is icelock's own; Java has no such client.

Properties: ``kms.vault.address`` (else ``VAULT_ADDR`` or ``BAO_ADDR``), ``kms.vault.mount`` (``transit``), ``kms.vault.namespace``
(else ``VAULT_NAMESPACE``), ``kms.vault.ca-file`` (else ``VAULT_CACERT``). The token comes from the file ``kms.vault.token-file``,
else from ``VAULT_TOKEN`` or ``BAO_TOKEN``, else from ``~/.vault-token``. It is read for every call, so that a token
that an agent renewed is used at once.

A reader needs ``update`` on ``MOUNT/decrypt/KEY``, a writer also on ``MOUNT/encrypt/KEY``, and neither needs ``create``,
which would create keys. Without ``create`` the service answers "denied" to encrypt with a missing key, and a second call, to
decrypt, tells the two apart.

Not here: logging in. The Vault or OpenBao agent does it and writes the token file; or give a ready ``hvac.Client``.

Source: HashiCorp Vault's and OpenBao's API documentation, "Transit secrets engine"; cases C-40.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import hvac
import requests
from hvac import exceptions

from icelock.errors import FormatError, KmsError, KmsErrorKind, PolicyError
from icelock.kms.failure import Call, Service
from icelock.kms.private_file import read_secret_line
from icelock.kms.retry import RetryPolicy
from icelock.properties import KMS_VAULT_ADDRESS, KMS_VAULT_CA_FILE, KMS_VAULT_MOUNT, KMS_VAULT_NAMESPACE, KMS_VAULT_TOKEN_FILE

_SERVICE: Final = Service(
    name="Vault",
    remedies={
        KmsErrorKind.DISABLED: "restore the soft-deleted key, or lower its min_decryption_version",
        KmsErrorKind.DENIED: "give the token's policy update on the transit path to {call} with this key, or renew the token",
        KmsErrorKind.UNAVAILABLE: "unseal it, wait, or correct kms.vault.address",
    },
)
# The service's own rule. A key id comes from table metadata, and must not lead to another path.
_KEY_NAME: Final = re.compile(r"\w(?:[\w.-]*\w)?", re.ASCII)
DEFAULT_MOUNT: Final = "transit"
_PREFIX: Final = b"vault:v"
_VERSION: Final = re.compile(rb"vault:v([0-9]+):")
_PROBE: Final = "vault:v1:AAAA"
_DEFAULT_TOKEN_FILE: Final = "~/.vault-token"  # noqa: S105 - a path
_KINDS: Final[tuple[tuple[type[Exception], KmsErrorKind], ...]] = (
    (exceptions.Unauthorized, KmsErrorKind.DENIED),
    (exceptions.Forbidden, KmsErrorKind.DENIED),
    (exceptions.InvalidPath, KmsErrorKind.MISSING),
)
# Words in a 400 answer of HashiCorp Vault and OpenBao; with any others the ciphertext is not this key's.
_WORDS: Final = (
    ("key not found", KmsErrorKind.MISSING),
    ("soft-deleted", KmsErrorKind.DISABLED),
    ("soft deleted", KmsErrorKind.DISABLED),
    ("disallowed by policy", KmsErrorKind.DISABLED),
    ("not supported for key type", KmsErrorKind.DISABLED),
)


class VaultKms:
    """A KMS whose master keys are in a transit engine.

    Args:
        properties: the catalog's properties.
        client: a ready client, used unchanged, including its token.

    Raises:
        PolicyError: no address, or one that is not http or https.
    """

    def __init__(self, properties: Mapping[str, str], *, client: hvac.Client | None = None) -> None:
        self._address = properties.get(KMS_VAULT_ADDRESS) or os.environ.get("VAULT_ADDR") or os.environ.get("BAO_ADDR") or ""
        if client is None and not self._address.startswith(("http://", "https://")):
            raise PolicyError(f"{KMS_VAULT_ADDRESS} is {self._address!r}; set it to the service's address, such as 'https://vault:8200'")
        self._mount = properties.get(KMS_VAULT_MOUNT, DEFAULT_MOUNT).strip("/")
        self._namespace = properties.get(KMS_VAULT_NAMESPACE) or os.environ.get("VAULT_NAMESPACE") or None
        self._ca_file = properties.get(KMS_VAULT_CA_FILE) or os.environ.get("VAULT_CACERT") or None
        self._token_file = properties.get(KMS_VAULT_TOKEN_FILE)
        self._timeout = RetryPolicy.from_properties(properties).call_timeout_seconds
        self._given = client

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the newest version of the master key (see ``KmsClient.wrap_key``)."""
        text = base64.b64encode(key).decode()
        ciphertext = self._call(
            "wrap", wrapping_key_id, lambda transit: transit.encrypt_data(wrapping_key_id, text, mount_point=self._mount)
        )
        return ciphertext.encode()

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Decrypt what ``wrap_key`` returned under any version of the master key (see ``KmsClient.unwrap_key``)."""
        if not wrapped_key.startswith(_PREFIX) or not wrapped_key.isascii():
            raise _SERVICE.failure(KmsErrorKind.FOREIGN, call="unwrap", key_id=wrapping_key_id, code="no vault:vN: prefix")
        text = self._call(
            "unwrap", wrapping_key_id, lambda transit: transit.decrypt_data(wrapping_key_id, wrapped_key.decode(), mount_point=self._mount)
        )
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as e:
            raise _strange(call="unwrap", key_id=wrapping_key_id) from e

    def wrapped_version(self, wrapped_key: bytes, wrapping_key_id: str) -> str | None:
        """Return the version in ``vault:vN:``, without a call."""
        del wrapping_key_id
        found = _VERSION.match(wrapped_key)
        return None if found is None else found[1].decode()

    def _call(self, call: Call, key_id: str, ask: Callable[[Any], Any]) -> str:
        """Return the one text in the answer to this call."""
        if not _KEY_NAME.fullmatch(key_id):
            raise _SERVICE.failure(KmsErrorKind.MISSING, call=call, key_id=key_id, code="not a name that a transit key can have")
        with self._client(call, key_id) as client:
            transit = client.secrets.transit
            try:
                answer = ask(transit)
            except (exceptions.VaultError, requests.RequestException) as e:
                kind = _kind(e)
                if kind is KmsErrorKind.DENIED and call == "wrap" and self._lacks(transit, key_id):
                    kind = KmsErrorKind.MISSING
                raise _SERVICE.failure(kind, call=call, key_id=key_id, code=type(e).__name__) from e
        try:
            text = answer["data"]["ciphertext" if call == "wrap" else "plaintext"]
        except (KeyError, TypeError) as e:
            raise _strange(call=call, key_id=key_id) from e
        if not isinstance(text, str):
            raise _strange(call=call, key_id=key_id)
        return text

    def _lacks(self, transit: Any, key_id: str) -> bool:
        try:
            transit.decrypt_data(key_id, _PROBE, mount_point=self._mount)
        except (exceptions.VaultError, requests.RequestException) as e:
            return _kind(e) is KmsErrorKind.MISSING
        return False

    @contextmanager
    def _client(self, call: Call, key_id: str) -> Iterator[hvac.Client]:
        """Return a client for one call: calls are rare, and a ``requests`` session must not be shared between threads."""
        if self._given is not None:
            yield self._given
            return
        client = hvac.Client(
            url=self._address,
            token=self._token(call, key_id),
            timeout=self._timeout,
            namespace=self._namespace,
            verify=self._ca_file or True,
        )
        try:
            yield client
        finally:
            client.adapter.close()

    def _token(self, call: Call, key_id: str) -> str:
        if self._token_file is None:
            token = os.environ.get("VAULT_TOKEN") or os.environ.get("BAO_TOKEN")
            if token:
                return token
        path = Path(self._token_file or _DEFAULT_TOKEN_FILE).expanduser()
        try:
            return read_secret_line(path)
        except (OSError, FormatError) as e:
            code = f"token file {path}: {e.strerror if isinstance(e, OSError) else 'not one line of text'}"
            remedy = f"set VAULT_TOKEN, or {KMS_VAULT_TOKEN_FILE} to the file that the agent writes"
            raise _SERVICE.failure(KmsErrorKind.DENIED, call=call, key_id=key_id, code=code, remedy=remedy) from e

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._address!r}, mount {self._mount!r})"


def _kind(error: Exception) -> KmsErrorKind:
    if isinstance(error, exceptions.InvalidRequest):
        words = " ".join(error.errors or ()).lower()
        return next((kind for word, kind in _WORDS if word in words), KmsErrorKind.FOREIGN)
    return next((kind for kinds, kind in _KINDS if isinstance(error, kinds)), KmsErrorKind.UNAVAILABLE)


def _strange(*, call: Call, key_id: str) -> KmsError:
    return _SERVICE.failure(KmsErrorKind.UNAVAILABLE, call=call, key_id=key_id, code="an answer that is not Vault's")
