"""Whether this machine's clock is ahead of the storage's, before something is removed for its age.

With a clock that is ahead, all looks old: files of writers at work look left over, and every snapshot has expired. A file is written
beside the table's metadata, looked at and removed: its time is the storage's. It is an encrypted stream of no bytes under a manifest's
name, so that one that stays, of a process that was killed, is encrypted as all is, and is found and removed like a writer's.

Not here: ages that are compared with a clock and remove nothing (KEKs: ``keys.kek``).
"""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta
from typing import Final

from icelock.errors import PolicyError
from icelock.io.listing import delete_files, written_ms
from icelock.keys.kek import CLOCKS_DIFFER_MS
from icelock.table.state import OpenTable

_logger: Final = logging.getLogger(__name__)


def check_clock(table: OpenTable) -> None:
    """Refuse to go by a clock that is more than five minutes ahead of the storage's. One that is behind removes less, and is taken.

    Where the storage takes no file, or does not say when one was written, nothing is checked.

    Raises:
        PolicyError: the clock is ahead.
    """
    now = table.encryption.clock()  # before the file is written, however long that takes
    written = _storage_time_ms(table)
    if written is not None and now - written > CLOCKS_DIFFER_MS:
        ahead = timedelta(seconds=(now - written) // 1000)
        raise PolicyError(
            f"table {'.'.join(table.name())}: this machine's clock is ahead of the storage's by {ahead} (days, hours:minutes:seconds), so "
            "what is old cannot be told: snapshots and files of writers at work would be removed. Nothing was changed: set the clock"
        )


def _storage_time_ms(table: OpenTable) -> int | None:
    location = table.location_provider().new_metadata_location(f"{uuid.uuid4()}-m0.avro")
    try:
        with table.io.new_encrypted_output(location).written():
            pass
        return written_ms(table.storage, location)
    except Exception as e:  # noqa: BLE001 - storage clients raise what they like; what comes next needs the storage, and says why it fails
        _logger.debug("the time of the storage of %s is not known: %s", location, e)
        return None
    finally:
        delete_files(table.storage, [location])
