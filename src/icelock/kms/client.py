"""``KmsClient``: what icelock asks of a key management service, and how a client of one's own is made.

A KMS holds master keys and never hands them out. It is given the raw 16, 24 or 32 bytes of a KEK, and nothing else, so
that the smallest limit (190 bytes of RSA-2048) is never met (cases C-34). The blob it returns is kept and given back
byte for byte; whatever tells versions of the master key apart is the KMS's own matter (cases C-37).

A class of one's own is named by ``encryption.kms-impl`` (or ``py-kms-impl``) and is made as ``Class(properties)``, where
``properties`` are the catalog's; it needs no base class and must use no globals. ``icelock.testing.KmsContract`` is the
test that such a class has to pass.

Not here: retries (``kms/retry.py``), caching (``keys/cache.py``), the choice of a class (``kms/loader.py``).

Source: Iceberg's encryption page, "Key Management Clients" (Java ``KeyManagementClient``).
"""

from __future__ import annotations

from typing import Protocol


class KmsClient(Protocol):
    """Wraps and unwraps keys with master keys that stay in the KMS.

    A client is called from many threads. Reading a table needs ``unwrap_key`` only, so a client must not ask the service
    for more rights than the call that is made. Credentials that expire are renewed inside a call; what remains expired
    is ``KmsErrorKind.DENIED``.
    """

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the master key and return the KMS's blob, opaque to everyone else.

        Args:
            key: 16, 24 or 32 bytes.
            wrapping_key_id: the master key's id, in any form that the KMS takes (id, full name, alias).

        Raises:
            KmsError: with the kind that says why.
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
