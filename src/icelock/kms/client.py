"""``KmsClient``: what icelock asks of a key management service, and how to write your own client.

A KMS holds master keys and never hands them out. It is given the raw 16, 24 or 32 bytes of a KEK, and nothing else, so
that the smallest limit (190 bytes of RSA-2048) is never reached (case C-34). The blob that it returns is stored and given back
byte for byte; how versions of the master key are told apart is up to the KMS (case C-37).

Your own class is named by ``encryption.kms-impl`` (or ``py-kms-impl``) and is constructed as ``Class(properties)`` with the
catalog's properties; it needs no base class and must not use globals. ``icelock.testing.KmsContract`` has the tests that it
must pass.

Not here: retries (``kms/retry.py``), caching (``keys/kek.py``), the choice of a class (``kms/loader.py``).

Source: Iceberg's encryption page, "Key Management Clients" (Java ``KeyManagementClient``).
"""

from __future__ import annotations

from typing import Protocol


class KmsClient(Protocol):
    """Wraps and unwraps keys with master keys that stay in the KMS.

    A client is called from many threads. Reading a table needs ``unwrap_key`` only, so a client must not ask the service
    for more rights than the call needs. Expired credentials are renewed within a call; if that fails, it is
    ``KmsErrorKind.DENIED``.
    """

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the master key and return the KMS's blob, opaque to everyone else.

        Args:
            key: 16, 24 or 32 bytes.
            wrapping_key_id: the master key's id, in any form that the KMS takes (id, full name, alias).

        Raises:
            KmsError: its kind says why.
        """
        ...

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Return the bytes that ``wrap_key`` was given.

        Args:
            wrapped_key: a blob exactly as ``wrap_key`` returned it, also one made under an older version of the master key.
            wrapping_key_id: the id that was given to ``wrap_key``.

        Raises:
            KmsError: ``FOREIGN`` when the blob was changed or is another key's; otherwise the kind that says why.
        """
        ...
