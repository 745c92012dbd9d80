"""The file of last-seen versions: what a client remembers of tables between its runs (``icelock.pins-file``).

    {"version": 1, "tables": {"<catalog>": {"<namespace.table>": {"key-id", "table-uuid", "last-sequence-number", "last-updated-ms",
    "metadata-location", "metadata-hash", "keks"}}}}

``keks`` are the wrapped KEKs, as in the metadata: by them another master key is believed after a rotation. Earlier versions wrote none.

Readers take no lock: the file is only ever replaced by an atomic rename. A writer holds an exclusive ``flock`` on ``<file>.lock`` from
reading to renaming. Mode 0600. POSIX only. Keep it where writers of the table's storage have no access.

Not here: what is compared (``catalog.trust.pins``).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from icelock.errors import FormatError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.kms.private_file import lock_path, replace_file, take_lock

_VERSION: Final = 1
_LOCK_WAIT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A version of an encrypted table; ``metadata_hash`` is Java's (``metadata.canonical_json``), ``keks`` are those of its master key."""

    key_id: str
    table_uuid: str
    last_sequence_number: int
    last_updated_ms: int
    metadata_location: str
    metadata_hash: str
    keks: tuple[EncryptedKey, ...] = ()

    def is_before(self, other: Seen) -> bool:
        """Whether the other one is later, as far as their numbers tell."""
        return (self.last_sequence_number, self.last_updated_ms) < (other.last_sequence_number, other.last_updated_ms)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the file."""
        values = {name.replace("_", "-"): getattr(self, name) for name in _KINDS}
        return {**values, "keks": [kek.to_json() for kek in self.keks]}

    @classmethod
    def from_json(cls, entry: Any, *, where: str) -> Seen:
        """Read an entry of the file.

        Raises:
            FormatError: it is invalid.
        """
        try:
            values = {name: entry[name.replace("_", "-")] for name in _KINDS}
        except (TypeError, KeyError) as e:
            raise FormatError(f"{where}: {e} is missing; restore the file, or remove it and start again") from e
        keks = entry.get("keks", [])
        wrong = [name for name, value in values.items() if type(value) is not _KINDS[name]]
        if wrong or not isinstance(keks, list):
            raise FormatError(f"{where}: {', '.join(wrong) or 'keks'} is of another type; restore the file, or remove it and start again")
        try:
            return cls(**values, keks=tuple(map(EncryptedKey.from_json, keks)))
        except FormatError as e:
            raise FormatError(f"{where}: {e}; restore the file, or remove it and start again") from e


_KINDS: Final = {field.name: int if field.type == "int" else str for field in fields(Seen) if field.name != "keks"}


class PinsFile:
    """The file; safe to share between threads and processes."""

    def __init__(self, path: Path, *, catalog: str) -> None:
        self.path = path
        self._catalog = catalog

    def get(self, table: str) -> Seen | None:
        """Return what was seen last of a table.

        Raises:
            FormatError: the file is damaged.
            PolicyError: it cannot be read.
        """
        return self._seen(self._read(), table)

    def _seen(self, tables: dict[str, dict[str, Any]], table: str) -> Seen | None:
        entry = tables.get(self._catalog, {}).get(table)
        return None if entry is None else Seen.from_json(entry, where=f"{self.path}, table {table}")

    def put(self, table: str, seen: Seen) -> None:
        """Remember a version, unless a later one of the same table is remembered."""
        if self.get(table) == seen:
            return
        with self._locked():
            tables = self._read()
            known = self._seen(tables, table)
            if known is not None and known.table_uuid == seen.table_uuid and seen.is_before(known):
                return
            tables.setdefault(self._catalog, {})[table] = seen.to_json()
            self._write(tables)

    def drop(self, table: str) -> None:
        """Forget a table."""
        if self.get(table) is None:
            return
        with self._locked():
            tables = self._read()
            tables.get(self._catalog, {}).pop(table, None)
            self._write(tables)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            content = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise PolicyError(f"icelock.pins-file {self.path} cannot be read: {e.strerror}") from e
        except ValueError as e:
            raise FormatError(f"icelock.pins-file {self.path} is damaged: {e}; restore it, or remove it and start again") from e
        tables = content.get("tables") if isinstance(content, dict) and content.get("version") == _VERSION else None
        if not isinstance(tables, dict) or not all(isinstance(entries, dict) for entries in tables.values()):
            raise FormatError(
                f"icelock.pins-file {self.path} is not a pins file of version {_VERSION}; restore it, or remove it and start again"
            )
        return tables

    def _write(self, tables: dict[str, dict[str, Any]]) -> None:
        data = json.dumps({"version": _VERSION, "tables": tables}, indent=1, sort_keys=True).encode()
        try:
            replace_file(self.path, data)
        except OSError as e:
            raise PolicyError(f"icelock.pins-file {self.path} cannot be written: {e.strerror}") from e

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = lock_path(self.path)
        try:
            descriptor = take_lock(lock, wait_seconds=_LOCK_WAIT_SECONDS)
        except TimeoutError as e:
            raise PolicyError(str(e)) from e
        except OSError as e:
            raise PolicyError(f"lock file {lock} of icelock.pins-file cannot be opened: {e.strerror}") from e
        try:
            yield
        finally:
            os.close(descriptor)
