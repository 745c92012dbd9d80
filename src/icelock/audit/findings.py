"""Findings: what an audit found wrong, each of a kind that has a stable code, a severity and a remedy.

Findings of one code are kept up to a number and counted beyond it, so that a table of which everything is wrong needs no memory.

Not here: what is looked at (``audit.table``).
"""

from __future__ import annotations

import re
import shlex
import threading
from bisect import insort
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Severity(StrEnum):
    """How bad it is. A note alone leaves a table sound."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_FATAL: Final = "restore the file from a backup, or expire the snapshots that need it"
_METADATA: Final = "compare it with an older metadata file or a backup before you restore either"
_REWRITE: Final = "write the rows again into this table, and expire the snapshots that need the file"
_CONVERT: Final = "icelock convert TABLE, if it is from before the key id was set (mixed-table); else find out who added it"

# code: severity, remedy, in which TABLE is the name for commands, and NAME the one in the catalog. The codes are part of the JSON report:
# they are not renamed.
CODES: Final[dict[str, tuple[Severity, str]]] = {
    # What catalog, pins and the metadata file say of one another.
    "plain-table": (Severity.WARNING, "convert it, or pin it as plain (icelock.pins.NAME empty) if it has to be"),
    "key-id-removed": (Severity.ERROR, _METADATA),
    "catalog-key-id-differs": (Severity.ERROR, _METADATA),
    "catalog-key-length-differs": (Severity.ERROR, _METADATA),
    "catalog-key-id-missing": (Severity.ERROR, _METADATA),
    "metadata-hash-differs": (Severity.ERROR, "restore the metadata file that was committed"),
    "metadata-hash-missing": (Severity.WARNING, "if you trust the file, commit once with icelock, which writes the hash"),
    "metadata-hash-outdated": (Severity.NOTE, "commit once with icelock, which writes the hash of the current file"),
    "catalog-answer-differs": (Severity.ERROR, "ask who runs the catalog: the file that it names is not what it answers"),
    "pin-key-id-differs": (Severity.ERROR, "restore the metadata, or correct the pin if the table was recreated"),
    "pin-version-differs": (Severity.ERROR, "restore what the catalog named before, or forget the pin if that is intended"),
    "metadata-missing": (Severity.ERROR, "restore the metadata file"),
    "metadata-damaged": (Severity.ERROR, "restore the metadata file"),
    "metadata-incoherent": (Severity.ERROR, _METADATA),
    "key-length-invalid": (Severity.ERROR, "set encryption.data-key-length back to 16, 24 or 32"),
    "statistics-in-the-clear": (Severity.WARNING, "remove the statistics, and the file: it has values of columns; Java writes it plain"),
    # Keys.
    "key-entry-damaged": (Severity.ERROR, "restore an older metadata file that still has the entry"),
    "key-id-twice": (Severity.ERROR, "restore an older metadata file"),
    "kek-of-another-master-key": (Severity.ERROR, "set the table's encryption.key-id back, or restore an older metadata file"),
    "kek-timestamp-wrong": (Severity.ERROR, "restore an older metadata file: the timestamp is part of what the KEK opens"),
    "kek-from-the-future": (Severity.WARNING, "correct the clock of the writer; new snapshots use another KEK until then"),
    "kek-past-its-time": (Severity.NOTE, "new snapshots get a new KEK; write the data again if old keys must not remain in use"),
    "snapshot-under-old-kek": (Severity.ERROR, "find out which writer used a KEK for more than 730 days, and rotate"),
    "master-key-missing": (Severity.ERROR, "bring the master key back: without it nothing below it can be read"),
    "master-key-disabled": (Severity.ERROR, "enable the master key: without it nothing below it can be read"),
    "kek-does-not-open": (Severity.ERROR, "restore an older metadata file, or use the KMS that wrapped the KEK"),
    "key-entry-does-not-open": (Severity.ERROR, "restore an older metadata file: this entry is changed, or another table's"),
    "key-entry-without-kek": (Severity.ERROR, "restore an older metadata file that has the KEK"),
    "key-entry-unneeded": (Severity.NOTE, "the next expiry by icelock removes it"),
    "snapshot-key-missing": (Severity.ERROR, "restore an older metadata file that has the entry"),
    "snapshot-key-is-kek": (Severity.ERROR, "restore an older metadata file"),
    "key-metadata-damaged": (Severity.ERROR, _FATAL),
    "key-metadata-without-length": (Severity.ERROR, "write it again: cut at a block, the file would pass for whole"),
    "key-metadata-without-aad-prefix": (Severity.WARNING, "write it again: blocks of files under one key could be exchanged"),
    "dek-too-short": (Severity.WARNING, "write it again: encryption.data-key-length promises more"),
    "key-used-twice": (Severity.ERROR, "write one of the files again: each has to have a key of its own"),
    "two-keys-for-one-file": (Severity.ERROR, _METADATA),
    # Files.
    "plain-manifest-list": (Severity.ERROR, f"{_CONVERT}; it has paths and counts in the clear"),
    "plain-manifest": (Severity.ERROR, f"{_CONVERT}; it has values of columns in the clear"),
    "plain-file": (Severity.ERROR, _CONVERT),
    "mixed-table": (
        Severity.ERROR,
        "if the plain files are from before the key id was set, let them be read (icelock.plaintext-files) and run icelock convert TABLE",
    ),
    "file-missing": (Severity.ERROR, _FATAL),
    "file-length-differs": (Severity.ERROR, _FATAL),
    "promised-length-differs": (Severity.ERROR, "write it again: readers that trust the one or the other see different files"),
    "file-not-encrypted": (Severity.ERROR, f"find out who replaced it; {_FATAL}"),
    "block-does-not-authenticate": (Severity.ERROR, _FATAL),
    "footer-does-not-authenticate": (Severity.ERROR, _FATAL),
    "page-does-not-authenticate": (Severity.ERROR, _FATAL),
    "footer-in-the-clear": (Severity.ERROR, _REWRITE),
    "algorithm-without-authentication": (Severity.ERROR, _FATAL),
    "format-not-encryptable": (Severity.ERROR, _REWRITE),
    "record-count-differs": (Severity.ERROR, _FATAL),
    "manifest-list-exchanged": (Severity.ERROR, _METADATA),
    "manifest-damaged": (Severity.ERROR, _FATAL),
    # Objects below the location that no snapshot reaches; those that are encrypted are counted only.
    "plain-object": (Severity.WARNING, "look at it, and remove it if it is nobody's: icelock leftovers TABLE --delete"),
    # The same, of a table that was converted and whose plain files were not all removed.
    "plain-object-of-conversion": (
        Severity.WARNING,
        "icelock convert TABLE --remove-plain; what is left then, look at, and remove if it is nobody's: icelock leftovers TABLE --delete",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: ``what`` is a location or key id, ``sentence`` says what is wrong with it; ``table`` is of ``catalog``."""

    code: str
    what: str
    sentence: str
    catalog: str = ""
    table: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return CODES[self.code][0]

    @property
    def remedy(self) -> str:
        """What to do about it; names of tables are quoted as a shell needs it."""
        text = CODES[self.code][1]
        if not self.table:
            return text
        names = {"TABLE": shlex.quote(f"{self.catalog}.{self.table}" if self.catalog else self.table), "NAME": self.table}
        return re.sub(r"\b(TABLE|NAME)\b", lambda found: names[found[0]], text)

    def to_json(self) -> dict[str, Any]:
        """Return its object in the report."""
        return {"code": self.code, "severity": self.severity.value, "what": self.what, "sentence": self.sentence, "remedy": self.remedy}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Something that could not be looked at, and why."""

    what: str
    why: str


class Findings:
    """Findings of a table, from any thread. Of each code ``most`` are kept: those of the first names, in whatever order they come."""

    def __init__(self, most: int, *, catalog: str = "", table: str = "") -> None:
        self._most = most
        self._catalog, self._table = catalog, table
        self._lock = threading.Lock()
        self._kept: dict[str, list[tuple[str, str]]] = {}
        self.counts: Counter[str] = Counter()
        self._unseen: list[tuple[str, str]] = []
        self.unseen_count = 0

    def add(self, code: str, what: str, sentence: str) -> None:
        """Keep a finding.

        Raises:
            KeyError: there is no such code.
        """
        severity, _ = CODES[code]
        del severity
        with self._lock:
            self.counts[code] += 1
            self._keep(self._kept.setdefault(code, []), (what, sentence))

    def could_not_look(self, what: str, why: str) -> None:
        """Keep what could not be looked at."""
        with self._lock:
            self.unseen_count += 1
            self._keep(self._unseen, (what, why))

    def _keep(self, kept: list[tuple[str, str]], one: tuple[str, str]) -> None:
        insort(kept, one)
        del kept[self._most :]

    @property
    def unseen(self) -> list[Unseen]:
        """What could not be looked at, in the order of its names."""
        return [Unseen(what=what, why=why) for what, why in self._unseen]

    def number(self, *severities: Severity) -> int:
        """Return how many findings there are of these severities."""
        return sum(count for code, count in self.counts.items() if CODES[code][0] in severities)

    def in_order(self) -> list[Finding]:
        """Return the kept ones, the worst first, then by code and what they are about."""
        rank = {severity: place for place, severity in enumerate(Severity)}
        kept = (
            Finding(code=code, what=what, sentence=sentence, catalog=self._catalog, table=self._table)
            for code, found in self._kept.items()
            for what, sentence in found
        )
        return sorted(kept, key=lambda one: (rank[one.severity], one.code, one.what, one.sentence))
