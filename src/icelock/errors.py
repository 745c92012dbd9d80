"""The whole exception tree.

``IcelockError`` has six branches, and ``CatalogUnreachableError`` stands beside it. A message names the file or key id, what was expected,
what was found and what to do; it never contains key bytes. Causes are chained.

Not here: PyIceberg's own exceptions (``NoSuchTableError``, ``CommitFailedException`` ...), which pass through unchanged.
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "CatalogUnreachableError",
    "CommitError",
    "ExpiredSnapshotError",
    "FormatError",
    "IcelockError",
    "IntegrityError",
    "KeyUnavailableError",
    "KmsClientError",
    "KmsError",
    "KmsErrorKind",
    "PolicyError",
]


class IcelockError(Exception):
    """Base of every error that icelock raises on its own account."""


class FormatError(IcelockError, ValueError):
    """Bytes or JSON that violate the format (truncated, another magic, another version)."""


class IntegrityError(IcelockError):
    """Authentication failed: bytes were changed, cut, swapped, or opened with the wrong key."""


class KeyUnavailableError(IcelockError):
    """A key is unavailable: no KMS configured, a key entry is missing, or the KMS refused."""


class KmsErrorKind(Enum):
    """The five reasons why a KMS refuses, the same for every service (case C-39)."""

    MISSING = "key not found"
    DISABLED = "key disabled or pending deletion"
    DENIED = "access denied"
    FOREIGN = "ciphertext not ours (wrong key, or damaged)"
    UNAVAILABLE = "service unavailable"


class KmsError(KeyUnavailableError):
    """A KMS call failed. ``kind`` says which of the five reasons it was; ``key_id`` names the master key."""

    def __init__(self, message: str, *, kind: KmsErrorKind, key_id: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.key_id = key_id


class PolicyError(IcelockError, ValueError):
    """A request that would break a promise (plaintext into an encrypted table, an unknown setting). Nothing was done."""


class ExpiredSnapshotError(PolicyError):
    """What is asked for begins at a snapshot that was expired, or needs files that went with it; the message says where to go on."""


class KmsClientError(KeyUnavailableError, PolicyError):
    """A KMS client cannot be constructed: the configured class failed. So keys are unavailable, and the setting is wrong."""


class CatalogUnreachableError(ConnectionError):
    """No server of a catalog answers at its address: the request never left. What the library raised is its ``__cause__``.

    It is no ``IcelockError``: that is an answer, which stays the same, and this may be over in a moment. It is also of the class that the
    library raised (``requests.ConnectionError``, Thrift's ``TTransportException``), for who expects that.
    """


class CommitError(IcelockError):
    """A commit was not made, or was made and the catalog did not keep what was committed."""
