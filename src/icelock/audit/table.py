"""``audit_table``: one table, from its metadata file down.

Not here: which tables (``audit.run``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from icelock import properties as names
from icelock.audit.document import Document, SnapshotRow, read_document
from icelock.audit.fault import Fault
from icelock.audit.file_check import CheckFiles, check_files
from icelock.audit.findings import Findings, Severity
from icelock.audit.keys import LIFE_MS, Kek, KeyTree
from icelock.audit.objects import Objects
from icelock.audit.options import AuditOptions, Depth, Progress
from icelock.audit.reached import Reached, Tally
from icelock.audit.report import KekReport, MasterKeyReport, SnapshotReport, TableReport
from icelock.audit.statements import check_statements
from icelock.audit.walk import Walk
from icelock.catalog.trust.kept import Kept
from icelock.errors import IcelockError, KeyUnavailableError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.kms.client import KmsClient

_DAY_MS: Final = 86_400_000
_KINDS: Final = ("manifest lists", "manifests", "data files", "delete files", "statistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A table to audit.

    Its name and its catalog's, what the catalog keeps, how to get a KMS client, the most bytes of a metadata file, what opens files.
    """

    name: str
    catalog: str = ""
    kept: Kept
    kms: Callable[[], KmsClient]
    metadata_bytes: int = names.LIMITS[names.LIMIT_METADATA_BYTES]
    check_files: CheckFiles = check_files


def audit_table(subject: Subject, options: AuditOptions, progress: Progress | None = None) -> TableReport:
    """Audit a table; whatever is wrong is in the report."""
    began = time.monotonic()
    findings = Findings(options.most, catalog=subject.catalog, table=subject.name)
    kept = subject.kept
    depths = tuple(one.value for one in Depth if one in options.depths)
    report = TableReport(table=subject.name, metadata_file=kept.location, depths=depths, scope=options.snapshots)
    try:
        document = read_document(kept.io, kept.location, limit=subject.metadata_bytes)
    except Fault as e:
        findings.add(e.code, kept.location, e.sentence)
    except OSError as e:
        findings.could_not_look(kept.location, f"{type(e).__name__}: {e}")
    else:
        try:
            report = _Audit(subject, document, options, findings).run(report, progress)
        except Exception as e:  # noqa: BLE001 - what was found until then is not lost
            findings.could_not_look(subject.name, f"{type(e).__name__}: {e}")
    return replace(
        report,
        seconds=time.monotonic() - began,
        findings=tuple(findings.in_order()),
        counts=dict(sorted(findings.counts.items())),
        unseen=tuple(findings.unseen),
        unseen_count=findings.unseen_count,
        wrong=findings.number(Severity.ERROR, Severity.WARNING),
        notes=findings.number(Severity.NOTE),
    )


class _Audit:
    def __init__(self, subject: Subject, document: Document, options: AuditOptions, findings: Findings) -> None:
        self._subject, self._document, self._options, self._findings = subject, document, options, findings
        self._length = self._data_key_length()
        self._reached = Reached(findings, data_key_length=self._length)
        self._walk = Walk(subject.kept.io, options, findings, self._reached, subject.check_files)

    def run(self, report: TableReport, progress: Progress | None) -> TableReport:
        document, findings, kept = self._document, self._findings, self._subject.kept
        for sentence in document.incoherent:
            findings.add("metadata-incoherent", kept.location, sentence)
        report = replace(
            report,
            uuid=document.uuid,
            location=document.location,
            format_version=document.version,
            master_key_id=document.master_key_id,
            data_key_length=self._length,
            encrypted=document.is_encrypted,
            statements=check_statements(document, kept, findings, self._subject.kms),
        )
        if not document.is_encrypted:
            self._plain(kept)
            return report
        tree = self._keys()
        if self._options.opens:
            self._walk.read_manifests(progress)
            self._mixed()
        statistics = self._statistics()
        objects = self._objects(progress) if Depth.FOREIGN in self._options.depths else {}
        return replace(
            report,
            files=self._files(statistics),
            objects=objects,
            keks=tuple(self._kek(kek) for kek in tree.keks.values()),
            master_keys=self._master_keys(tree),
            snapshots=self._snapshots(tree),
        )

    def _data_key_length(self) -> int:
        text = self._document.properties.get(names.DATA_KEY_LENGTH)
        try:
            return names.data_key_length(self._document.properties)
        except PolicyError:
            self._findings.add("key-length-invalid", self._subject.kept.location, f"its {names.DATA_KEY_LENGTH} is {text!r}")
            return 0

    def _plain(self, kept: Kept) -> None:
        document, pinned = self._document, kept.pinned_key_id == ""
        if document.keys or document.master_key_id or any(snapshot.key_id for snapshot in document.snapshots):
            what = "has key entries" if document.keys else "has keys of snapshots or a key id"
            sentence = f"it {what}, and is no longer encrypted: format version {document.version}, key id {document.master_key_id!r}"
            self._findings.add("key-id-removed", kept.location, sentence)
        elif not pinned:
            self._findings.add("plain-table", kept.location, f"the table is not encrypted (format version {document.version})")

    def _keys(self) -> KeyTree:
        document = self._document
        kms: KmsClient | None = None
        try:
            kms = self._subject.kms()
        except (KeyUnavailableError, PolicyError) as e:
            self._findings.could_not_look("KMS", str(e))
        tree = KeyTree(
            document.keys,
            master_key_id=document.master_key_id or "",
            kms=kms,
            findings=self._findings,
            now_ms=self._options.now_ms,
        )
        tree.claim(document.snapshots, self._open_list)
        if self._options.opens:
            for snapshot in document.snapshots:
                if snapshot.key_id is None and snapshot.manifest_list and self._wanted(snapshot):
                    self._walk.read_list(snapshot, None, None)
        return tree

    def _open_list(self, snapshot: SnapshotRow, key: KeyMetadata, kek: Kek) -> None:
        if self._options.opens and self._wanted(snapshot):
            self._walk.read_list(snapshot, key, (kek.id, 1 << kek.place))

    def _wanted(self, snapshot: SnapshotRow) -> bool:
        return self._options.snapshots == "all" or snapshot.id == self._document.current

    def _mixed(self) -> None:
        """Count what is plain of all that snapshots reach."""
        tallies = list(self._reached.tallies())
        numbers = ", ".join(f"{tally.files} {kind} of {tally.bytes} bytes" for kind, is_encrypted, tally in tallies if not is_encrypted)
        if not numbers:
            return
        encrypted = sum(tally.files for _, is_encrypted, tally in tallies if is_encrypted)
        self._findings.add("mixed-table", self._subject.name, f"snapshots reach plain {numbers}; {encrypted} files are encrypted")

    def _statistics(self) -> Tally:
        """Count the statistics files; all are in the clear: a key that metadata.json has for one, nothing wraps."""
        count = size = 0
        for row in self._document.statistics:
            count += 1
            length = row.get("file-size-in-bytes")
            size += length if isinstance(length, int) else 0
            why = "a key that the metadata file has in the clear" if row.get("key-metadata") else "no key"
            sentence = f"statistics of snapshot {row.get('snapshot-id')} have {why}: sketches of columns' values are in the clear"
            self._findings.add("statistics-in-the-clear", str(row.get("statistics-path", "?")), sentence)
        return Tally(files=count, bytes=size)

    def _files(self, statistics: Tally) -> dict[str, tuple[Tally, Tally]]:
        found = {kind: [Tally(), Tally()] for kind in _KINDS}
        for kind, encrypted, tally in self._reached.tallies():
            found[kind][0 if encrypted else 1] = tally
        found["statistics"] = [Tally(), statistics]
        return {kind: (encrypted, plain) for kind, (encrypted, plain) in found.items()}

    def _objects(self, progress: Progress | None) -> dict[str, Tally]:
        document, kept = self._document, self._subject.kept
        reached = ((path, bool(seen.key_hash)) for path, seen in self._reached.files.items())
        objects = Objects(
            reached,
            (str(row.get("statistics-path")) for row in document.statistics),
            metadata_bytes=self._subject.metadata_bytes,
            converted=any(name in document.properties for name in names.PLAIN_ORIGIN),
        )
        objects.look(kept.io, document.location, self._findings, progress)
        return objects.tallies()

    def _kek(self, kek: Kek) -> KekReport:
        times = [snapshot.at_ms for snapshot in kek.snapshots]
        age = None if kek.created_ms is None else (self._options.now_ms - kek.created_ms) // _DAY_MS
        return KekReport(
            id=kek.id,
            master_key_id=kek.master_key_id,
            version=kek.version,
            created_ms=kek.created_ms,
            until_ms=None if kek.created_ms is None else kek.created_ms + LIFE_MS,
            age_days=age,
            opens=kek.key is not None,
            snapshots=tuple(one.id for one in sorted(kek.snapshots, key=lambda one: one.at_ms)),
            refs=tuple(sorted(ref for one in kek.snapshots for ref in one.refs)),
            first_ms=min(times, default=None),
            last_ms=max(times, default=None),
            reached=self._sum(lambda mask: bool(mask >> kek.place & 1)),
            lost=self._sum(lambda mask: mask == 1 << kek.place),
        )

    def _sum(self, counts: Callable[[int], bool]) -> Tally:
        chosen = [tally for mask, tally in self._reached.by_keks().items() if counts(mask)]
        return Tally(files=sum(one.files for one in chosen), bytes=sum(one.bytes for one in chosen))

    def _master_keys(self, tree: KeyTree) -> tuple[MasterKeyReport, ...]:
        found = []
        for key_id in sorted({kek.master_key_id for kek in tree.keks.values()}):
            keks = [kek for kek in tree.keks.values() if kek.master_key_id == key_id]
            own = sum(1 << kek.place for kek in keks)
            found.append(
                MasterKeyReport(
                    id=key_id,
                    snapshots=sum(len(kek.snapshots) for kek in keks),
                    refs=tuple(sorted(ref for kek in keks for one in kek.snapshots for ref in one.refs)),
                    lost=self._sum(lambda mask, own=own: bool(mask) and not mask & ~own),  # type: ignore[misc]
                )
            )
        return tuple(found)

    def _snapshots(self, tree: KeyTree) -> tuple[SnapshotReport, ...]:
        read = {found.row.id: found for found in self._walk.snapshots}
        kek_of = {snapshot.id: kek.id for kek in tree.keks.values() for snapshot in kek.snapshots}
        reports = []
        for row in sorted(filter(self._wanted, self._document.snapshots), key=lambda one: one.at_ms):
            manifests = read[row.id].manifests if row.id in read else None
            reports.append(
                SnapshotReport(
                    id=row.id,
                    at_ms=row.at_ms,
                    refs=row.refs,
                    current=row.id == self._document.current,
                    kek=kek_of.get(row.id),
                    encrypted=None if manifests is None else sum(one.encrypted for one in manifests),
                    plain=None if manifests is None else sum(one.plain for one in manifests),
                    bytes=None if manifests is None else sum(one.bytes for one in manifests),
                )
            )
        return tuple(reports)


def could_not_look(name: str, error: Exception) -> TableReport:
    """Return the report of a table that could not be looked at, which says why."""
    findings = Findings(1)
    text = str(error) if isinstance(error, IcelockError) else f"{type(error).__name__}: {error}"
    findings.could_not_look(name, " ".join(text.split()))
    return TableReport(table=name, unseen=tuple(findings.unseen), unseen_count=1)
