"""``Kept``: all that a catalog and this client keep of a table, unchecked, for the audit.

Not here: what it is compared with (``audit.statements``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.io import FileIO

from icelock.catalog.trust.facts import Facts
from icelock.catalog.trust.pins_file import Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is known of a table before its metadata file is read.

    Attributes:
        location: the metadata file that the catalog names.
        io: storage access without keys.
        where: who keeps it, for messages.
        facts: what the catalog keeps beside the location.
        key_id_required: an encrypted table without a key id there is a fault.
        hash_required: so is one without a hash.
        answer: what a server answers of the table's metadata: uuid, current snapshot, sequence number, key id.
        pinned_key_id: the client's pin; empty text says that the table is plain.
        seen: what the pins file remembers.
    """

    location: str
    io: FileIO
    where: str = "the catalog"
    facts: Facts | None = None
    key_id_required: bool = False
    hash_required: bool = False
    answer: Mapping[str, str] = field(default_factory=dict)
    pinned_key_id: str | None = None
    seen: Seen | None = None
