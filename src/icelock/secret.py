"""``SecretBytes``: key bytes that do not appear in reprs, logs or pickles.

Memory is not wiped (docs/threat-model.md). But the repr shows only the length, comparison takes constant time, and pickling
is refused, so that a key reaches another process only where code explicitly calls ``reveal``.
"""

from __future__ import annotations

import hmac
from typing import NoReturn, final


@final
class SecretBytes:
    """Bytes that are secret.

    >>> SecretBytes(b"0123456789012345")
    SecretBytes(16 bytes)
    >>> SecretBytes(b"a") == SecretBytes(b"a")
    True
    """

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = bytes(value)

    def reveal(self) -> bytes:
        """Return the raw bytes; every call is a place where key bytes leave this class."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretBytes):
            return NotImplemented
        return hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash((SecretBytes, self._value))

    def __repr__(self) -> str:
        return f"SecretBytes({len(self._value)} bytes)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("SecretBytes is not pickled: call reveal() where a key has to cross a process boundary")
