"""The key tree of a metadata file: master key, KEKs, keys of manifest lists. Every entry is opened, also those that nothing names.

An entry that another entry encrypts is a manifest list's; every other is a KEK. The AAD of what a KEK opens is the text of its
``KEY_TIMESTAMP``.

Source: Iceberg table spec, "Encryption keys"; Java ``StandardEncryptionManager``. Not here: files (``audit.table``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from icelock.audit.document import SnapshotRow
from icelock.audit.findings import Findings
from icelock.errors import FormatError, IcelockError, IntegrityError, KmsError, KmsErrorKind
from icelock.format import aes_gcm
from icelock.format.encrypted_key import KEY_TIMESTAMP, EncryptedKey
from icelock.format.key_metadata import KeyMetadata
from icelock.kms import ask
from icelock.kms.client import KmsClient
from icelock.secret import SecretBytes

LIFE_MS: Final = 730 * 24 * 60 * 60 * 1_000
"""How long new snapshots may use a KEK (NIST SP 800-57)."""
_CLOCKS_DIFFER_MS: Final = 5 * 60 * 1_000
_MOST_MS: Final = 1 << 63
_KMS_FINDINGS: Final = {
    KmsErrorKind.MISSING: "master-key-missing",
    KmsErrorKind.DISABLED: "master-key-disabled",
    KmsErrorKind.FOREIGN: "kek-does-not-open",
}


def _is_of_a_file(error: BaseException | None) -> bool:
    """Whether it is the KMS that is not there, a keyring file or its key file, and not the key."""
    return error is not None and (isinstance(error, (FileNotFoundError, NotADirectoryError)) or _is_of_a_file(error.__cause__))


@dataclass(slots=True, kw_only=True)
class Kek:
    """A KEK: its place in masks of KEKs, and what is known of it; ``key`` None if it does not open."""

    place: int
    id: str
    master_key_id: str
    version: str | None = None
    created_ms: int | None = None
    key: SecretBytes | None = field(default=None, repr=False)
    snapshots: list[SnapshotRow] = field(default_factory=list)
    entries: int = 0


class KeyTree:
    """The entries of a metadata file, each opened once; ``kms`` is called once for each KEK, and not at all if it is None."""

    def __init__(self, raw: Sequence[object], *, master_key_id: str, kms: KmsClient | None, findings: Findings, now_ms: int) -> None:
        self._findings, self._kms, self._now = findings, kms, now_ms
        self._entries = self._parsed(raw)
        self.keks: dict[str, Kek] = {}
        for entry in self._entries.values():
            if entry.encrypted_by_id not in self._entries:
                self.keks[entry.key_id] = self._kek(entry, master_key_id)
        self._lists: dict[str, tuple[KeyMetadata, Kek]] = {}
        for entry in self._entries.values():
            if entry.key_id not in self.keks:
                self._open(entry)

    def _parsed(self, raw: Sequence[object]) -> dict[str, EncryptedKey]:
        found: dict[str, EncryptedKey] = {}
        for number, one in enumerate(raw):
            try:
                entry = EncryptedKey.from_json(one)
            except FormatError as e:
                self._findings.add("key-entry-damaged", f"encryption-keys[{number}]", str(e))
                continue
            if found.setdefault(entry.key_id, entry) != entry:
                self._findings.add("key-id-twice", entry.key_id, "two different entries have this id")
        return found

    def _kek(self, entry: EncryptedKey, master_key_id: str) -> Kek:
        kek = Kek(place=len(self.keks), id=entry.key_id, master_key_id=entry.encrypted_by_id)
        add = self._findings.add
        if entry.encrypted_by_id != master_key_id:
            sentence = f"it is wrapped by {entry.encrypted_by_id!r}, which is neither the table's master key {master_key_id!r} nor an entry"
            add("kek-of-another-master-key", entry.key_id, sentence)
        text = entry.properties.get(KEY_TIMESTAMP, "")
        if text.isascii() and text.isdigit() and int(text) < _MOST_MS:
            kek.created_ms = int(text)
            if kek.created_ms > self._now + _CLOCKS_DIFFER_MS:
                add("kek-from-the-future", entry.key_id, "its creation time has not come yet")
            elif self._now - kek.created_ms >= LIFE_MS:
                add("kek-past-its-time", entry.key_id, f"it is {(self._now - kek.created_ms) // 86_400_000} days old, and 730 are its time")
        else:
            add(
                "kek-timestamp-wrong", entry.key_id, f"its {KEY_TIMESTAMP} is {text!r}, not milliseconds" if text else f"no {KEY_TIMESTAMP}"
            )
        self._unwrap(kek, entry)
        return kek

    def _unwrap(self, kek: Kek, entry: EncryptedKey) -> None:
        if self._kms is None:
            return
        try:
            kek.key = SecretBytes(ask.unwrapped(self._kms, entry.encrypted_key_metadata, entry.encrypted_by_id))
        except KmsError as e:
            code = _KMS_FINDINGS.get(e.kind)
            if code is None or _is_of_a_file(e):
                self._findings.could_not_look(f"KEK {kek.id}", str(e))
            else:
                self._findings.add(code, kek.id, f"the KMS does not unwrap it with master key {kek.master_key_id!r}: {e.kind.value}")
        except IcelockError as e:
            self._findings.could_not_look(f"KEK {kek.id}", str(e))
        else:
            kek.version = ask.version_of(self._kms, entry.encrypted_key_metadata, entry.encrypted_by_id)

    def _open(self, entry: EncryptedKey) -> None:
        kek = self.keks.get(entry.encrypted_by_id)
        if kek is None:
            sentence = f"it is encrypted by {entry.encrypted_by_id!r}, which is no KEK"
            self._findings.add("key-entry-without-kek", entry.key_id, sentence)
            return
        kek.entries += 1
        if kek.key is None:
            return  # said of the KEK
        try:
            aad = self._entries[kek.id].properties.get(KEY_TIMESTAMP, "").encode("utf-8", "surrogatepass")
            plain = aes_gcm.decrypt(kek.key.reveal(), entry.encrypted_key_metadata, aad)
        except (IntegrityError, FormatError):
            sentence = f"KEK {kek.id} does not open it: its bytes or the KEK's timestamp were changed, or it is another table's"
            self._findings.add("key-entry-does-not-open", entry.key_id, sentence)
            return
        try:
            self._lists[entry.key_id] = (KeyMetadata.decode(plain), kek)
        except FormatError as e:
            self._findings.add("key-metadata-damaged", entry.key_id, str(e))

    def claim(self, snapshots: Sequence[SnapshotRow], opened: Callable[[SnapshotRow, KeyMetadata, Kek], None]) -> None:
        """Call ``opened`` for each snapshot whose key opens, and say what is wrong with the others, and which entries nothing names."""
        add, named = self._findings.add, set()
        for snapshot in snapshots:
            if snapshot.key_id is None:
                if snapshot.manifest_list:
                    add("plain-manifest-list", snapshot.manifest_list, f"snapshot {snapshot.id} has no key-id: its manifest list is plain")
                else:
                    sentence = "it has no manifest list: the manifests that it may name are not looked at, and no key leads to them"
                    add("plain-manifest-list", f"snapshot {snapshot.id}", sentence)
                continue
            named.add(snapshot.key_id)
            entry = self._entries.get(snapshot.key_id)
            if entry is None:
                add("snapshot-key-missing", snapshot.key_id, f"snapshot {snapshot.id} names this entry, and there is none")
            elif snapshot.key_id in self.keks:
                add("snapshot-key-is-kek", snapshot.key_id, f"snapshot {snapshot.id} names this KEK, not the key of a manifest list")
            else:
                self._claimed(snapshot, opened)
        for key_id in self._entries.keys() - named - self.keks.keys():
            add("key-entry-unneeded", key_id, "it is the key of no snapshot's manifest list")
        newest = max((kek.created_ms or 0 for kek in self.keks.values()), default=0)
        for kek in self.keks.values():
            if not kek.entries and (kek.created_ms or 0) < newest:  # the newest is for snapshots to come
                add("key-entry-unneeded", kek.id, "this KEK has no entry below it")

    def _claimed(self, snapshot: SnapshotRow, opened: Callable[[SnapshotRow, KeyMetadata, Kek], None]) -> None:
        key_id = snapshot.key_id or ""
        kek = self.keks.get(self._entries[key_id].encrypted_by_id)
        if kek is None:
            return  # said of the entry
        kek.snapshots.append(snapshot)
        if kek.created_ms is not None and snapshot.at_ms - kek.created_ms >= LIFE_MS + _CLOCKS_DIFFER_MS:
            days = (snapshot.at_ms - kek.created_ms) // 86_400_000
            self._findings.add("snapshot-under-old-kek", kek.id, f"snapshot {snapshot.id} was made when it was {days} days old")
        if key_id in self._lists:
            opened(snapshot, *self._lists[key_id])
