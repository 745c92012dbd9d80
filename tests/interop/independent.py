"""The reader that shares no code with icelock (``tests/verify``), on tables that two engines wrote.

Hadoop leaves checksum files of its own beside Java's, so the folder is looked at by ``our_side.plain_files`` instead.
"""

from __future__ import annotations

import gzip
import json

from tests.interop.our_side import Ours, path_of
from tests.interop.session import KEYS
from tests.verify.reading import Storage
from tests.verify.verify_table import Keys, Verifier


def verify_chain(ours: Ours, table: str) -> None:
    """Verify every snapshot of a table down to its rows: keys, lengths, counts, deletes, row lineage (case C-01).

    Raises:
        Fault: names the file or key.
    """
    stored = path_of(ours.java.parameters(table)["metadata_location"]).read_bytes()
    text = gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored
    metadata = json.loads(text)
    keys = Keys(metadata, {name: [key] for name, key in KEYS.items()})
    verifier = Verifier(metadata, Storage({}), keys)
    for snapshot in metadata["snapshots"]:
        verifier.snapshot(snapshot)
    verifier.lineage()
    keys.refuse_keys_in(text)
