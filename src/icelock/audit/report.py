"""What an audit found, as values and as JSON (docs/reference/audit.md; its version is ``SCHEMA``).

Not here: how it is shown (``cli.audit``, ``audit.html``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from icelock.audit.findings import Finding, Unseen
from icelock.audit.reached import Tally
from icelock.shown import Described, Facts, Grid, utc

SCHEMA: Final = "icelock-audit/1"


class Verdict(StrEnum):
    """What came of it."""

    SOUND = "sound"
    FINDINGS = "findings"
    COULD_NOT_LOOK = "could not look"


@dataclass(frozen=True, slots=True, kw_only=True)
class KekReport:
    """A KEK, and what hangs on it.

    Attributes:
        version: of the master key that wrapped it, if the KMS client tells.
        created_ms: since 1970; new snapshots may use it until ``until_ms``.
        opens: whether the KMS unwraps it.
        snapshots: their ids, the oldest first.
        reached: encrypted files that its snapshots reach.
        lost: those of them that no other KEK leads to: without it they are lost for good.
    """

    id: str
    master_key_id: str
    version: str | None
    created_ms: int | None
    until_ms: int | None
    age_days: int | None
    opens: bool
    snapshots: tuple[int, ...]
    refs: tuple[str, ...]
    first_ms: int | None
    last_ms: int | None
    reached: Tally
    lost: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterKeyReport:
    """What would be lost with a master key."""

    id: str
    snapshots: int
    refs: tuple[str, ...]
    lost: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """A snapshot that was looked at; files are None if its manifests were not read. ``bytes`` of data and delete files."""

    id: int
    at_ms: int
    refs: tuple[str, ...]
    current: bool
    kek: str | None
    encrypted: int | None
    plain: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """An audit of one table.

    Attributes:
        files: for each kind of file its numbers, encrypted and plain.
        objects: for each kind of object below the location its numbers; empty if they were not listed.
        statements: what catalog, hash, a server's answer and pins say of the metadata file: agrees, differs, none.
        findings: the worst first; ``counts`` has the number of each code, which may be more than were kept.
    """

    table: str
    uuid: str = ""
    location: str = ""
    metadata_file: str = ""
    format_version: int = 0
    master_key_id: str | None = None
    data_key_length: int = 0
    encrypted: bool = False
    depths: tuple[str, ...] = ()
    scope: str = "all"
    seconds: float = 0.0
    statements: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[Tally, Tally]] = field(default_factory=dict)
    objects: Mapping[str, Tally] = field(default_factory=dict)
    master_keys: tuple[MasterKeyReport, ...] = ()
    keks: tuple[KekReport, ...] = ()
    snapshots: tuple[SnapshotReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    unseen: tuple[Unseen, ...] = ()
    unseen_count: int = 0
    wrong: int = 0
    notes: int = 0

    @property
    def verdict(self) -> Verdict:
        """Findings that are no notes come first; then what could not be looked at."""
        if self.wrong:
            return Verdict.FINDINGS
        return Verdict.COULD_NOT_LOOK if self.unseen_count else Verdict.SOUND

    def to_json(self) -> dict[str, Any]:
        """Return its object in the report."""
        return {
            "table": self.table,
            "verdict": self.verdict.value,
            "uuid": self.uuid,
            "location": self.location,
            "metadata-file": self.metadata_file,
            "format-version": self.format_version,
            "encrypted": self.encrypted,
            "master-key-id": self.master_key_id,
            "data-key-length": self.data_key_length,
            "depths": list(self.depths),
            "scope": self.scope,
            "seconds": round(self.seconds, 3),
            "statements": dict(self.statements),
            "files": {kind: {"encrypted": _tally(one), "plain": _tally(other)} for kind, (one, other) in self.files.items()},
            "objects": {kind: _tally(one) for kind, one in self.objects.items()},
            "master-keys": [_master(one) for one in self.master_keys],
            "keks": [_kek(one) for one in self.keks],
            "snapshots": [_snapshot(one) for one in self.snapshots],
            "findings": [one.to_json() for one in self.findings],
            "finding-counts": dict(self.counts),
            "not-looked-at": [{"what": one.what, "why": one.why} for one in self.unseen],
            "not-looked-at-count": self.unseen_count,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AuditReport(Described):
    """An audit of one or more tables, made at ``made_ms`` since 1970."""

    catalog: str
    name: str
    made_ms: int
    tables: tuple[TableReport, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of the tables'; without tables it is sound."""
        found = Counter(table.verdict for table in self.tables)
        return next((one for one in (Verdict.FINDINGS, Verdict.COULD_NOT_LOOK) if found[one]), Verdict.SOUND)

    def _title(self) -> str:
        return f"Audit of {self.catalog}.{self.name}"

    def _facts(self) -> Facts:
        yield "verdict", self.verdict
        yield "made at", utc(self.made_ms)
        rows = [(one.table, one.verdict, one.master_key_id, f"{one.wrong} findings" if one.wrong else "") for one in self.tables]
        yield "tables", Grid(("table", "verdict", "master key", "findings"), rows)
        found = [(table.table, one.severity, one.code, one.sentence, one.remedy) for table in self.tables for one in table.findings]
        yield "findings", Grid(("table", "severity", "code", "what", "remedy"), found)
        unseen = [(table.table, one.what, one.why) for table in self.tables for one in table.unseen]
        yield "not looked at", Grid(("table", "what", "why"), unseen)

    def to_json(self) -> dict[str, Any]:
        """Return the whole report."""
        return {
            "schema": SCHEMA,
            "made-at": utc(self.made_ms),
            "catalog": self.catalog,
            "name": self.name,
            "verdict": self.verdict.value,
            "tables": [table.to_json() for table in self.tables],
        }


def _tally(tally: Tally) -> dict[str, int]:
    return {"files": tally.files, "bytes": tally.bytes}


def _master(one: MasterKeyReport) -> dict[str, Any]:
    return {"id": one.id, "snapshots": one.snapshots, "refs": list(one.refs), "lost-without-it": _tally(one.lost)}


def _kek(one: KekReport) -> dict[str, Any]:
    return {
        "id": one.id,
        "master-key-id": one.master_key_id,
        "master-key-version": one.version,
        "opens": one.opens,
        "created-at": utc(one.created_ms),
        "for-new-snapshots-until": utc(one.until_ms),
        "age-days": one.age_days,
        "snapshots": list(one.snapshots),
        "refs": list(one.refs),
        "first-snapshot-at": utc(one.first_ms),
        "last-snapshot-at": utc(one.last_ms),
        "reached": _tally(one.reached),
        "lost-without-it": _tally(one.lost),
    }


def _snapshot(one: SnapshotReport) -> dict[str, Any]:
    return {
        "id": one.id,
        "at": utc(one.at_ms),
        "current": one.current,
        "refs": list(one.refs),
        "kek": one.kek,
        "encrypted-files": one.encrypted,
        "plain-files": one.plain,
        "bytes": one.bytes,
    }
