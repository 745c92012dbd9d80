"""What catalog and pins say of a table, held against its metadata file.

The catalog's hash is that of the file's text as Java writes it. Files that icelock and Java wrote are that text, so SHA-256 of their bytes
answers; only for a file of another writer the text is made from what the file says (``metadata.canonical_json``).

Not here: what the catalog keeps (``catalog.trust``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping

from icelock import properties as names
from icelock.audit.document import Document
from icelock.audit.findings import Findings
from icelock.catalog.trust.facts import Facts
from icelock.catalog.trust.kept import Kept
from icelock.catalog.trust.pins_file import Seen
from icelock.errors import FormatError, IcelockError
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.rewrap import are_the_same
from icelock.kms import ask
from icelock.kms.client import KmsClient
from icelock.metadata.canonical_json import metadata_hash
from icelock.metadata.table_metadata import TableMetadataV3, decode_metadata
from icelock.secret import SecretBytes


def check_statements(document: Document, kept: Kept, findings: Findings, kms: Callable[[], KmsClient]) -> dict[str, str]:
    """Compare a metadata file with the catalog and the pins; ``kms`` is asked only if the pins file remembers another master key.

    Returns:
        For ``catalog``, ``hash``, ``answer``, ``pin`` and ``pins-file``: ``agrees``, ``differs``, or ``none`` (nothing to compare).
    """
    before = dict(findings.counts)
    said = {"catalog": "none", "hash": "none", "answer": "none", "pin": "none", "pins-file": "none"}
    if kept.facts is not None and kept.facts.key_id is not None:
        _check_facts(document, kept.facts, kept, findings, said)
    elif document.is_encrypted and kept.key_id_required:
        findings.add("catalog-key-id-missing", kept.location, f"{kept.where} has no {names.ENCRYPTION_KEY_ID} for this encrypted table")
        said["catalog"] = "differs"
    if kept.answer:
        _check_answer(document, kept.answer, kept, findings)
        said["answer"] = "agrees"
    if kept.pinned_key_id is not None:
        _check_pin(document, kept, findings)
        said["pin"] = "agrees"
    if kept.seen is not None:
        _check_seen(document, kept.seen, kept, findings, kms)
        said["pins-file"] = "agrees"
    new = {code for code, count in findings.counts.items() if count > before.get(code, 0)}
    for name, codes in _DISAGREE.items():
        if new & codes:
            said[name] = "differs"
    return said


_DISAGREE: Mapping[str, frozenset[str]] = {
    "catalog": frozenset({"catalog-key-id-differs", "catalog-key-length-differs"}),
    "hash": frozenset({"metadata-hash-differs"}),
    "answer": frozenset({"catalog-answer-differs"}),
    "pin": frozenset({"pin-key-id-differs"}),
    "pins-file": frozenset({"pin-version-differs"}),
}


def _check_facts(document: Document, facts: Facts, kept: Kept, findings: Findings, said: dict[str, str]) -> None:
    said["catalog"] = "agrees"
    for name, code, expected in (
        (names.ENCRYPTION_KEY_ID, "catalog-key-id-differs", facts.key_id),
        (names.DATA_KEY_LENGTH, "catalog-key-length-differs", facts.data_key_length),
    ):
        found = document.properties.get(name)
        if found != expected:
            findings.add(code, kept.location, f"its {name} is {found!r}, and {facts.where} says {expected!r}")
    if facts.metadata_hash is None:
        if kept.hash_required:
            findings.add("metadata-hash-missing", kept.location, f"{facts.where} has no hash of it, so that a changed file would pass")
        return
    if facts.metadata_location != kept.location:
        findings.add(
            "metadata-hash-outdated", kept.location, f"{facts.where} has the hash of an older file; another client committed since"
        )
        return
    said["hash"] = "agrees"
    if not _has_hash(document, facts.metadata_hash):
        findings.add("metadata-hash-differs", kept.location, f"its hash is not the one that {facts.where} has: it was changed since")


def _has_hash(document: Document, expected: str) -> bool:
    found = base64.b64encode(hashlib.sha256(document.text).digest())
    if hmac.compare_digest(found, expected.encode()):
        return True
    try:
        metadata = decode_metadata(document.text, location="")
    except IcelockError:
        return False
    return isinstance(metadata, TableMetadataV3) and hmac.compare_digest(metadata_hash(metadata).encode(), expected.encode())


def _check_answer(document: Document, answer: Mapping[str, str], kept: Kept, findings: Findings) -> None:
    found = {
        "table-uuid": document.uuid,
        "current-snapshot-id": str(document.current),
        "last-sequence-number": str(document.last_sequence_number),
        names.ENCRYPTION_KEY_ID: str(document.master_key_id),
    }
    for name, value in answer.items():
        if found[name] != value:
            sentence = f"its {name} is {found[name]}, and {kept.where} answers {value}"
            findings.add("catalog-answer-differs", kept.location, sentence)


def _check_pin(document: Document, kept: Kept, findings: Findings) -> None:
    if (document.master_key_id or "") != kept.pinned_key_id:
        sentence = f"its {names.ENCRYPTION_KEY_ID} is {document.master_key_id!r}, and the client's pin says {kept.pinned_key_id!r}"
        findings.add("pin-key-id-differs", kept.location, sentence)


def _check_seen(document: Document, seen: Seen, kept: Kept, findings: Findings, kms: Callable[[], KmsClient]) -> None:
    def differs(why: str) -> None:
        findings.add("pin-version-differs", kept.location, f"{why}, and the pins file remembers {seen.metadata_location}")

    if document.uuid != seen.table_uuid:
        differs(f"it is table {document.uuid}, not {seen.table_uuid}")
    elif (document.master_key_id or "") != seen.key_id and not _same_keks(document, seen, kms):
        differs(f"its master key is {document.master_key_id!r}, not {seen.key_id!r}, and its KEKs are not known to be the same")
    elif kept.location == seen.metadata_location:
        if not _has_hash(document, seen.metadata_hash):
            differs("it was edited since it was seen")
    elif seen.metadata_location not in document.older_files:
        reaches_back = document.log_begins_ms is None or document.log_begins_ms <= seen.last_updated_ms
        if reaches_back or document.last_sequence_number < seen.last_sequence_number:
            differs("it does not follow the version that was seen")


def _same_keks(document: Document, seen: Seen, kms: Callable[[], KmsClient]) -> bool:
    """Whether a rotation explains another master key than the pins file remembers."""

    def opened(kek: EncryptedKey) -> SecretBytes:
        return SecretBytes(ask.unwrapped(kms(), kek.encrypted_key_metadata, kek.encrypted_by_id))

    try:
        return are_the_same(seen.keks, _entries(document), document.master_key_id, opened=opened)
    except IcelockError:
        return False


def _entries(document: Document) -> list[EncryptedKey]:
    """Return the entries that are sound; those that are not are said by ``audit.keys``."""
    found = []
    for raw in document.keys:
        try:
            found.append(EncryptedKey.from_json(raw))
        except FormatError:
            continue
    return found
