"""A user's KMS, loaded by ``encryption.kms-impl``: Java's test KMS (or another) that writes one line a call, and fails where told to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from icelock.errors import KmsError, KmsErrorKind
from icelock.kms.loader import load_kms_client
from icelock.kms.memory import MemoryKms

KEYS = {"keyA": b"0123456789012345", "keyB": b"1123456789012345"}


class CountingKms:
    """A client by these properties.

    ``kms.counting.log``: file of calls. ``kms.counting.deny``: ``wrap`` or ``unwrap``. ``kms.counting.of``: JSON of the properties of
    the client that is counted, instead of Java's test KMS.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        other = load_kms_client(json.loads(properties.get("kms.counting.of", "{}")))
        self._inner = other or MemoryKms({f"kms.memory.keys.{name}": key.hex() for name, key in KEYS.items()})
        self._log = Path(properties["kms.counting.log"])
        self._deny = Path(properties.get("kms.counting.deny", "/nonexistent"))

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        self._record("wrap", wrapping_key_id)
        return self._inner.wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self._record("unwrap", wrapping_key_id)
        return self._inner.unwrap_key(wrapped_key, wrapping_key_id)

    def _record(self, call: str, key_id: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{call} {key_id}\n")
        if self._deny.exists() and self._deny.read_text() == call:
            msg = f"the right to {call} with {key_id} is missing"
            raise KmsError(msg, kind=KmsErrorKind.DENIED, key_id=key_id)


class TellingKms(CountingKms):
    """Also writes down the command line of the process that called, one a line."""

    def _record(self, call: str, key_id: str) -> None:
        super()._record(call, key_id)
        command = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        with callers_log(self._log).open("a") as log:
            log.write(f"{command!r}\n")


def callers_log(calls: Path) -> Path:
    """Return where ``TellingKms`` writes, by the file of calls."""
    return calls.with_suffix(".callers")


class Calls:
    """The calls that one log has; ``take`` empties it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "kms-calls.log"
        self._deny = folder / "kms-deny"

    def properties(self) -> dict[str, str]:
        return {
            "encryption.kms-impl": "tests.helpers.counting_kms.CountingKms",
            "kms.counting.log": str(self._log),
            "kms.counting.deny": str(self._deny),
        }

    def take(self) -> list[str]:
        calls = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return calls

    def deny(self, call: str) -> None:
        self._deny.write_text(call)
