"""Any service's client, with a line in a file for each call: calls of processes that Spark starts are counted too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from icelock.kms.loader import load_kms_client


class CountedKms:
    """Properties: ``kms.counted.of`` (JSON of the client's own properties), ``kms.counted.log`` (the file)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        client = load_kms_client(json.loads(properties["kms.counted.of"]))
        assert client is not None
        self._client = client
        self._log = Path(properties["kms.counted.log"])

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        self._note("wrap")
        return self._client.wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self._note("unwrap")
        return self._client.unwrap_key(wrapped_key, wrapping_key_id)

    def _note(self, call: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{call}\n")


def counted(properties: dict[str, str], log: Path) -> dict[str, str]:
    """Return the properties of a catalog whose client is counted."""
    return {
        "encryption.kms-impl": "counted_kms.CountedKms",
        "kms.counted.of": json.dumps(properties),
        "kms.counted.log": str(log),
    }


def taken(log: Path) -> list[str]:
    """Return the calls since the last time."""
    calls = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return calls
