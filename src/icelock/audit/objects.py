"""Depth ``foreign``: every object below a table's location, reached or not, encrypted or plain.

Metadata files are plain by the format, and counted apart; so are the statistics that metadata names, empty objects, and the checksum files
that Hadoop's local file system writes beside encrypted ones.

Not here: listing (``io.listing``), what snapshots reach (``audit.reached``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Final

from pyiceberg.io import FileIO

from icelock.audit.document import read_document
from icelock.audit.fault import Fault
from icelock.audit.findings import Findings
from icelock.audit.options import Progress
from icelock.audit.reached import Tally
from icelock.audit.storage import StoredBytes
from icelock.audit.without_key import unlike_encrypted
from icelock.errors import PolicyError
from icelock.io.listing import StoredFile, list_files
from icelock.io.locations import place_of

KINDS: Final = ("encrypted, reached", "encrypted, left over", "plain, reached", "plain, left over", "metadata", "statistics", "other")
_HINT: Final = "/version-hint.text"
_LONGEST_HINT: Final = 20
_METADATA: Final = (".metadata.json", ".metadata.json.gz", _HINT)
_MISSING: Final = "metadata-missing"
_LINK: Final = "it is a symbolic link to a folder, which is not followed: list what is there, and replace the link by the folder or a mount"
_HADOOP_CHECKSUM: Final = b"crc\x00"


class Objects:
    """What is below a location.

    ``reached`` has every location that snapshots reach, and whether it is encrypted; metadata files have at most ``metadata_bytes``.
    ``converted``: the table has plain files from before its conversion, for all that it says.
    """

    def __init__(self, reached: Iterable[tuple[str, bool]], statistics: Iterable[str], *, metadata_bytes: int, converted: bool) -> None:
        self._limit = metadata_bytes
        self._plain = "plain-object-of-conversion" if converted else "plain-object"
        # Of a location a hash is kept: the list of a large table would take the memory twice.
        self._reached = {_hashed(location): encrypted for location, encrypted in reached}
        self._statistics = {_hashed(location) for location in statistics}
        self._numbers: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def look(self, io: FileIO, location: str, findings: Findings, progress: Progress | None) -> None:
        """List the location, and look at the form of what snapshots do not reach."""
        known = max(1, len(self._reached))

        def linked(folder: str) -> None:
            findings.could_not_look(folder, _LINK)

        try:
            for number, stored in enumerate(list_files(io, location, not_followed=linked), 1):
                kind = self._kind(io, stored, findings)
                self._numbers[kind] += 1
                self._bytes[kind] += stored.size
                if progress is not None:
                    progress(number, max(number, known))
        except (OSError, PolicyError) as e:
            findings.could_not_look(location, f"its objects cannot be listed: {e}")

    def tallies(self) -> dict[str, Tally]:
        """Return how many objects there are of each kind."""
        return {kind: Tally(files=self._numbers[kind], bytes=self._bytes[kind]) for kind in KINDS}

    def _kind(self, io: FileIO, stored: StoredFile, findings: Findings) -> str:
        place = _hashed(stored.location)
        if place in self._reached:
            return "encrypted, reached" if self._reached[place] else "plain, reached"
        if place in self._statistics:
            return "statistics"
        if not stored.size:
            return "other"
        look = self._named_metadata if stored.location.endswith(_METADATA) else self._looked_at
        try:
            return look(io, stored, findings)
        except OSError as e:  # one that cannot be read hides no other
            findings.could_not_look(stored.location, f"{type(e).__name__}: {e}")
            return "other"

    def _named_metadata(self, io: FileIO, stored: StoredFile, findings: Findings) -> str:
        """Tell a metadata file, or a version hint, from another one of such a name."""
        try:
            if stored.location.endswith(_HINT):
                with StoredBytes(io, stored.location) as opened:
                    sound = opened.size <= _LONGEST_HINT and opened.read(0, opened.size).strip().isdigit()
            else:
                sound = bool(read_document(io, stored.location, limit=self._limit).location)
        except FileNotFoundError:
            return "other"  # removed meanwhile
        except Fault as e:
            if e.code == _MISSING:
                return "other"
            sound = False
        if sound:
            return "metadata"
        findings.add(self._plain, stored.location, "it is not encrypted, and has the name of a metadata file, but is none")
        return "plain, left over"

    def _looked_at(self, io: FileIO, stored: StoredFile, findings: Findings) -> str:
        try:
            with StoredBytes(io, stored.location) as opened:
                unlike = unlike_encrypted(opened)
                if unlike is None:
                    return "encrypted, left over"
                if stored.location.endswith(".crc") and opened.read(0, len(_HADOOP_CHECKSUM)) == _HADOOP_CHECKSUM:
                    return "other"
        except FileNotFoundError:
            return "other"  # removed meanwhile
        findings.add(self._plain, stored.location, f"no snapshot reaches it, and it is not encrypted: {unlike}")
        return "plain, left over"


def _hashed(location: str) -> bytes:
    return hashlib.blake2b(place_of(location).encode("utf-8", "surrogatepass"), digest_size=16).digest()
