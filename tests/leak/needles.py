"""What is searched for, and the search: every form in which a secret could have been written down.

A key in a megabyte of ciphertext is looked for by its first eight bytes at every offset, which is one pass for any number of keys.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

_PREFIX = 8


def forms(secret: bytes) -> dict[str, bytes]:
    """Return a secret's bytes as they are and as text; base64 also inside of other data, at each of three offsets."""
    found = {"raw": secret, "hex": secret.hex().encode(), "HEX": secret.hex().upper().encode(), "repr": repr(secret)[2:-1].encode()}
    for shift in range(3):
        # Characters that the bytes alone decide: those of the bytes before and after are cut off.
        inner = slice((8 * shift + 5) // 6, (8 * (shift + len(secret))) // 6)
        text = base64.b64encode(bytes(shift) + secret + bytes(3))[inner]
        found[f"base64+{shift}"] = text
        found[f"urlsafe+{shift}"] = text.translate(bytes.maketrans(b"+/", b"-_"))
    return found


@dataclass(frozen=True)
class Found:
    """A secret's name, the form it had, and where."""

    secret: str
    form: str
    place: str


class Needles:
    """Secrets by name, ready to be searched for."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self._by_prefix: dict[bytes, list[tuple[str, str, bytes]]] = {}
        for name, secret in secrets.items():
            for form, needle in forms(secret).items():
                self._by_prefix.setdefault(needle[:_PREFIX], []).append((name, form, needle))
        self._prefixes = np.sort(np.frombuffer(b"".join(self._by_prefix), dtype="<u8"))

    def find(self, place: str, data: bytes) -> Iterator[Found]:
        """Return what ``data`` holds."""
        for offset in self._candidates(data):
            for name, form, needle in self._by_prefix[data[offset : offset + _PREFIX]]:
                if data.startswith(needle, offset):
                    yield Found(name, form, place)

    def _candidates(self, data: bytes) -> Iterable[int]:
        for shift in range(_PREFIX):
            words = np.frombuffer(data, dtype="<u8", count=max(0, len(data) - shift) // _PREFIX, offset=min(shift, len(data)))
            at = np.minimum(np.searchsorted(self._prefixes, words), len(self._prefixes) - 1)
            yield from (int(i) * _PREFIX + shift for i in np.flatnonzero(self._prefixes[at] == words))


def texts(canaries: Mapping[str, str], place: str, data: bytes) -> Iterator[Found]:
    """Return the canary values that ``data`` holds as text, in base64 or in hex."""
    for name, canary in canaries.items():
        for form, needle in forms(canary.encode()).items():
            if needle in data:
                yield Found(name, form, place)
