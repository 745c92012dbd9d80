"""Pins: what a client itself knows of tables, so that neither storage nor catalog can give it another one.

1. ``icelock.pins.<namespace.table>`` is the master key that the table must have (case C-15); if it is empty, the table is plain, and
   may take plain rows.
2. With ``icelock.pins-file`` the client remembers the last version that it saw of each encrypted table; the first one is trusted. What
   is loaded later must be that version, byte for byte in its meaning, or follow it: its metadata log names the remembered file.
   If the log no longer reaches so far back, sequence numbers decide. So a metadata.json that was rolled back, edited in place or
   exchanged is noticed with any catalog.
3. Without any setting a catalog object remembers the encrypted tables that it saw, by name and by uuid. One that comes back plain, under
   another master key or with another key length is refused when it is loaded, before plain files can be written for it; and no commit
   is built on a version older than one that was seen. Reading an older one is not refused: that takes a file. A name is free
   for a plain table again once the catalog has no table of that name, or after ``forget``. The object also remembers which plain tables
   it created: those may take plain rows.

A table may have another master key than was seen if its KEKs are the same ones, wrapped anew (``keys.rewrap``): the KMS opens both forms,
and nobody can make the new one who has not the KEK. If the old one can no longer be opened, the table has to be forgotten.

Forged metadata that claims to follow the remembered version is not noticed by this; key entries and snapshots still have to open under the
pinned master key.

Not here: the file (``catalog.trust.pins_file``), when tables are compared (``catalog.named``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from icelock import properties as names
from icelock.catalog.trust.pins_file import PinsFile, Seen
from icelock.errors import IntegrityError, KeyUnavailableError
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.rewrap import are_the_same, keks_under
from icelock.metadata.canonical_json import metadata_hash
from icelock.metadata.table_metadata import TableMetadataV3, as_encrypted, is_encrypted
from icelock.secret import SecretBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the file and this process know of a table before it is loaded, and the name it is loaded by."""

    name: str
    pinned: Seen | None
    here: Here | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The last version of an encrypted table that this process saw; ``data_key_length`` in bytes."""

    name: str
    seen: Seen
    data_key_length: int


class Pins:
    """The pins of one catalog. Safe to share between threads."""

    def __init__(self, *, key_ids: Mapping[str, str], file: PinsFile | None, open_kek: Callable[[EncryptedKey], SecretBytes]) -> None:
        self._key_ids = dict(key_ids)
        self._open_kek = open_kek
        self._file = file
        self._guard = threading.Lock()
        self._here: dict[str, Here] = {}
        self._made_plain: dict[str, UUID] = {}
        self._by_uuid: dict[str, Here] = {}  # a table that another client renamed is the same one

    @classmethod
    def from_properties(cls, properties: Mapping[str, object], *, catalog: str, open_kek: Callable[[EncryptedKey], SecretBytes]) -> Pins:
        """Read a catalog's properties; ``open_kek`` has the KMS unwrap a KEK."""
        prefix = names.PINS_PREFIX
        key_ids = {name.removeprefix(prefix): str(value or "") for name, value in properties.items() if name.startswith(prefix)}
        path = properties.get(names.PINS_FILE)
        return cls(key_ids=key_ids, file=PinsFile(Path(str(path)), catalog=catalog) if path else None, open_kek=open_kek)

    def seen(self, table: Identifier | str) -> Known:
        """Return what is remembered of a table; call it before the table is loaded, since others may commit meanwhile.

        Raises:
            FormatError, PolicyError: the pins file is damaged, or cannot be read.
        """
        name = _name(table)
        with self._guard:
            here = self._here.get(name)
        return Known(name=name, pinned=None if self._file is None else self._file.get(name), here=here)

    def check(self, table: Identifier, metadata: TableMetadata, location: str, known: Known) -> None:
        """Compare what was loaded with the pins, and remember it.

        Raises:
            IntegrityError: it is not the table that was pinned, or is older than or another than what was seen, or an encrypted table that
                this process saw is no longer encrypted.
        """
        name, seen = _name(table), known.pinned
        self._check_key(name, metadata, location)
        self._check_stripped(name, metadata, location, known)
        self._remember(name, metadata, location)
        if self._file is None or not (seen is not None or is_encrypted(metadata)):
            return
        encrypted = as_encrypted(metadata)
        if encrypted is None:
            _refuse(name, location, "it is no longer encrypted")
        now = _version(encrypted, location, metadata_hash=metadata_hash(encrypted))
        if seen is not None:
            if now.table_uuid == seen.table_uuid:
                self._check_master_key(seen, encrypted, location, table=name)
            _compare(seen, now, encrypted, table=name)
        self._file.put(name, now)

    def check_base(self, table: Identifier, metadata: TableMetadata, location: str, known: Known) -> None:
        """Like ``check``, for the version that a commit is built on, which must not be older than what this process saw either.

        Raises:
            IntegrityError: likewise; nothing was committed.
        """
        self.check(table, metadata, location, known)
        here, name = known.here, _name(table)
        if here is None or str(metadata.table_uuid) != here.seen.table_uuid or not isinstance(metadata, TableMetadataV3):
            return
        _compare_here(here.seen, metadata, location, table=name)

    def gone(self, table: Identifier | str) -> None:
        """Note that the catalog has no table of this name: the next one may be any table, but a uuid that was seen stays encrypted."""
        with self._guard:
            self._here.pop(_name(table), None)
            self._made_plain.pop(_name(table), None)

    def made_plain(self, table: Identifier | str, table_uuid: UUID) -> None:
        """Note that this client created a plain table, or says that it is one."""
        with self._guard:
            self._made_plain[_name(table)] = table_uuid

    def made_plain_as(self, table: Identifier | str) -> UUID | None:
        """Return the uuid of the plain table of this name that this client created, if any."""
        with self._guard:
            return self._made_plain.get(_name(table))

    def is_plain(self, table: Identifier | str, table_uuid: UUID) -> bool:
        """Whether the client itself knows that a table is plain: by a pin, or because it created the table."""
        with self._guard:
            return self.is_pinned_plain(table) or self._made_plain.get(_name(table)) == table_uuid

    def pinned_key_id(self, table: Identifier | str) -> str | None:
        """Return the master key that a table is pinned to; empty if it is pinned as plain, None if it is not pinned."""
        return self._key_ids.get(_name(table))

    def is_pinned_plain(self, table: Identifier | str) -> bool:
        """Whether a pin says that a table of this name is plain."""
        return self._key_ids.get(_name(table)) == ""

    def forget(self, table: Identifier | str) -> None:
        """Forget the versions of a table that were seen: the next one that is loaded is trusted."""
        name = _name(table)
        with self._guard:
            self._here.pop(name, None)
            self._made_plain.pop(name, None)
            self._by_uuid = {uuid: here for uuid, here in self._by_uuid.items() if here.name != name}
        if self._file is not None:
            self._file.drop(name)

    def _remember(self, table: str, metadata: TableMetadata, location: str) -> None:
        encrypted = as_encrypted(metadata)
        if encrypted is None:
            return
        now = _version(encrypted, location, metadata_hash="")  # costs time, and catalogs that have one compare it themselves
        with self._guard:
            self._made_plain.pop(table, None)
            last = self._here.get(table)
            if last is None or last.seen.table_uuid != now.table_uuid or not now.is_before(last.seen):
                here = Here(name=table, seen=now, data_key_length=names.data_key_length(metadata.properties))
                self._here[table] = self._by_uuid[now.table_uuid] = here

    def _check_stripped(self, table: str, metadata: TableMetadata, location: str, known: Known) -> None:
        """Refuse metadata from which the encryption of a table was removed, wholly or in part, since it was seen."""
        with self._guard:
            # What another thread dropped since it was asked for is not held against the table.
            by_name = known.here if known.here is not None and known.name in self._here else None
            by_uuid = self._by_uuid.get(str(metadata.table_uuid))
        here = by_uuid or by_name
        if here is None:
            return
        encrypted = as_encrypted(metadata)
        if encrypted is None:
            other = "" if by_uuid else f" (it is table {metadata.table_uuid}, and {here.seen.table_uuid} was seen before)"
            _refuse(table, location, f"it is no longer encrypted{other}")
        if str(metadata.table_uuid) != here.seen.table_uuid:
            return  # recreated by another client, encrypted
        length = names.data_key_length(metadata.properties)
        self._check_master_key(here.seen, encrypted, location, table=table)
        if length != here.data_key_length:
            _refuse(table, location, f"its {names.DATA_KEY_LENGTH} is {length}, and was {here.data_key_length}")

    def _check_master_key(self, seen: Seen, metadata: TableMetadataV3, location: str, *, table: str) -> None:
        """Refuse another master key than was seen, unless it wraps the same KEKs."""
        key_id = metadata.properties.get(names.ENCRYPTION_KEY_ID, "")
        if key_id == seen.key_id:
            return
        why = f"its {names.ENCRYPTION_KEY_ID} is {key_id!r}, and was {seen.key_id!r}"
        try:
            same = are_the_same(seen.keks, keks_under(metadata.encryption_keys, key_id), key_id, opened=self._open_kek)
        except KeyUnavailableError as e:
            _refuse(table, location, f"{why}, and whether its keys are the same cannot be told: {e}")
        if not same:
            _refuse(table, location, why)

    def _check_key(self, table: str, metadata: TableMetadata, location: str) -> None:
        pinned = self._key_ids.get(table)
        found = metadata.properties.get(names.ENCRYPTION_KEY_ID)
        if pinned is not None and found != (pinned or None):
            raise IntegrityError(
                f"table {table}: {location} has {names.ENCRYPTION_KEY_ID} {found!r}, and {names.PINS_PREFIX}{table} says {pinned!r}: the "
                "metadata was changed or exchanged; restore it, or correct the pin if the table was recreated, or its keys were rotated"
            )


def _name(table: Identifier | str) -> str:
    return table if isinstance(table, str) else ".".join(table)


def _version(metadata: TableMetadataV3, location: str, *, metadata_hash: str) -> Seen:
    key_id = metadata.properties.get(names.ENCRYPTION_KEY_ID, "")
    return Seen(
        key_id=key_id,
        keks=keks_under(metadata.encryption_keys, key_id),
        table_uuid=str(metadata.table_uuid),
        last_sequence_number=metadata.last_sequence_number,
        last_updated_ms=metadata.last_updated_ms,
        metadata_location=location,
        metadata_hash=metadata_hash,
    )


def _compare(seen: Seen, now: Seen, metadata: TableMetadataV3, *, table: str) -> None:
    where = now.metadata_location
    if now.table_uuid != seen.table_uuid:
        _refuse(table, where, f"it is table {now.table_uuid}, and {seen.table_uuid} was seen before")
    if where == seen.metadata_location:
        if now.metadata_hash != seen.metadata_hash:
            _refuse(table, where, f"it was edited: its hash is {now.metadata_hash}, and was {seen.metadata_hash}")
        return
    log = metadata.metadata_log
    if _in_log(seen, metadata):
        return
    reaches_back = not log or log[0].timestamp_ms <= seen.last_updated_ms
    if reaches_back or now.last_sequence_number < seen.last_sequence_number:
        _refuse_older(seen, metadata, where, table=table)


def _compare_here(seen: Seen, metadata: TableMetadataV3, where: str, *, table: str) -> None:
    """Compare versions of one table without a pins file: a server that keeps no metadata log is not suspected for that."""
    if where == seen.metadata_location or _in_log(seen, metadata):
        return
    log = metadata.metadata_log
    forked = bool(log) and log[0].timestamp_ms <= seen.last_updated_ms
    if forked or (metadata.last_sequence_number, metadata.last_updated_ms) < (seen.last_sequence_number, seen.last_updated_ms):
        _refuse_older(seen, metadata, where, table=table)


def _in_log(seen: Seen, metadata: TableMetadataV3) -> bool:
    return any(entry.metadata_file == seen.metadata_location for entry in metadata.metadata_log)


def _refuse_older(seen: Seen, metadata: TableMetadataV3, where: str, *, table: str) -> NoReturn:
    was = f"{seen.metadata_location} (sequence number {seen.last_sequence_number}) was seen before"
    _refuse(table, where, f"it has sequence number {metadata.last_sequence_number} and does not follow what was seen: {was}")


def _refuse(table: str, location: str, why: str) -> NoReturn:
    raise IntegrityError(
        f"metadata {location} of table {table} was rolled back, changed or exchanged: {why}; restore what the catalog named before. If "
        f"this is intended (recreated, or restored from a backup), call catalog.pins.forget({table!r})"
    )
